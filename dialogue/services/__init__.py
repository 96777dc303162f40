"""Threads: asking, answering in the background, stopping, stated constraints and facts."""
