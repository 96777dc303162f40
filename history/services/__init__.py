"""The optimization database: search, likeness, comparison, import and export of its records."""
