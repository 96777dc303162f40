"""What is done with experiments: receive uploads, check configurations, move runs, append events."""
