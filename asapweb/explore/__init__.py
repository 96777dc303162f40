"""The page Explore: what the performance model says of a mesh that nobody has run."""
