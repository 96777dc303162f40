"""The agents on one experiment: what they can look at, the tools over it, what they may say, and who answers."""
