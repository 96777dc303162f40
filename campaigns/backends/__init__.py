"""Where trials run: one small protocol, and what implements it.  No Django."""

from campaigns.backends.backend import Backend, Outcome, Stopped
from campaigns.backends.compiled import Compiled
from campaigns.backends.local import Local
from campaigns.backends.modelled import Modelled

__all__ = ["Backend", "Compiled", "Local", "Modelled", "Outcome", "Stopped"]
