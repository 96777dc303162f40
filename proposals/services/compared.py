"""A proposal's run beside the run that it was made for."""

from __future__ import annotations

from dataclasses import dataclass

from diagnosis.models import DiagnosisRecord
from perfmodel.config import ExperimentConfig


@dataclass(frozen=True)
class Compared:
    """Two runs that do compare.  speedup: time per token (and chip, where there are fewer) before / after; caveats:
    sentences."""

    before: DiagnosisRecord
    after: DiagnosisRecord
    before_config: ExperimentConfig
    after_config: ExperimentConfig
    before_s: float
    after_s: float
    speedup: float
    caveats: tuple[str, ...]
