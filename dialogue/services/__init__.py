"""What is done with threads: asking, answering in the background, stopping, what is held fast."""
