"""`asap run`: starts, watches and stops PostgreSQL, Redis, the worker and the web server as one application."""
