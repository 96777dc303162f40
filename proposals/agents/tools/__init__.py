"""The functions behind `proposals.agents.toolbox`."""
