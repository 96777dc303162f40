"""Nsight Systems exports (SQLite) → device traces."""
