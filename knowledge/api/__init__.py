"""REST: the knowledge base."""
