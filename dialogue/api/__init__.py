"""REST of the challenge dialogue."""
