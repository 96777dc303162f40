"""REST of launches and of the reports that come from a cluster."""
