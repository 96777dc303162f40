"""PyTorch profiler traces (Kineto JSON) → device traces."""
