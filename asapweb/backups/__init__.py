"""Backups of an installation, database and files together: `make.back_up` writes one, `restore.restore` reads it."""
