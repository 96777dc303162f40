"""`asap trial`: the reference step of a configuration on the devices at hand, timed after warm-up and recorded."""

from experiments.trial.runner import Trial, run
from experiments.trial.scaling import Room, Scaled, scale

__all__ = ["Room", "Scaled", "Trial", "run", "scale"]
