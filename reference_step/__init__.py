"""A training step to read, run, record and compile: a decoder sharded over a mesh as an experiment configuration says.

Pure JAX.  `build` returns the jitted step with its abstract state and batch; `device_mesh` lays the axes of a
configuration on devices.  docs/compile-check.md.
"""

from reference_step.layout import device_mesh
from reference_step.step import ReferenceStep, UnsupportedStep, build

__all__ = ["ReferenceStep", "UnsupportedStep", "build", "device_mesh"]
