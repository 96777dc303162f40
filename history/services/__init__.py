"""The optimization database: search, likeness, comparison, import and export of its records."""

from history.services.store import RecordError, add, seed

__all__ = ["RecordError", "add", "seed"]
