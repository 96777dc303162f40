"""The agent loop, typed tools and model providers.  Knows no Django and no sharding."""
