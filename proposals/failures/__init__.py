"""From the log of a run that failed to its cause: what, by which parameters, how sure, forbid or try again.  Pure."""

from proposals.failures.failure import CAUSES, Failure
from proposals.failures.reading import read_failure

__all__ = ["CAUSES", "Failure", "read_failure"]
