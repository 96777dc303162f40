"""The challenge dialogue: threads beside an experiment's proposals, in which an engineer argues with the agents."""
