"""Predict step time and memory of a sharded transformer training step.  Pure: no Django, no I/O beyond its own data."""
