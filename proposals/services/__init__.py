"""What is done with runs and proposals: the Coordinator's work, reviews, the history of what was approved."""
