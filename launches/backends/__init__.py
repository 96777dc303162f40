"""Where a launch runs: Slurm, Kubernetes, or a command of the operator.  Knows no Django."""

from launches.backends.base import Backend, BackendError, JobSpec, JobState, JobStatus
from launches.backends.enabled import MANUAL, Enabled, backend, read

__all__ = ["MANUAL", "Backend", "BackendError", "Enabled", "JobSpec", "JobState", "JobStatus", "backend", "read"]
