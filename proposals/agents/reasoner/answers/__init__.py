"""What each question is answered with, from the results of the tools."""
