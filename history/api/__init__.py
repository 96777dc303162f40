"""REST: the optimization database."""
