"""REST: proposals, plans, reviews, the history, and the addresses of the whole API."""
