"""A training step to read, run, record and compile: a decoder sharded over a mesh as an experiment configuration says.

Pure JAX.  `step.build` returns the jitted step with its abstract state and batch; `layout.device_mesh` lays the axes
of a configuration on devices.  docs/compile-check.md.
"""
