"""What GPUs did, whichever profiler recorded it: kernels, copies and steps of a device → `StepProfile`."""
