"""REST of tuning campaigns."""
