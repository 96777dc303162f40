"""Text as vectors of unit length, by the built-in all-MiniLM-L6-v2."""
