"""Training steps whose bottleneck is known: drawn, worked out by hand, printed in the paper, recorded."""
