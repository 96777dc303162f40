"""What the profile contradicts in the configuration it is read with, said on stderr."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.consistency import Contradiction, contradictions, facts_of
from experiments.step_profile import StepProfile
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import read_mapping

#: Longest line on stderr.
_LINE = 300


def print_contradictions(
    profile: StepProfile, config: ExperimentConfig | None, path: str | None
) -> tuple[Contradiction, ...]:
    """One line for each field that the profile contradicts and that is used unchanged; nothing without a file.

    Called once the command has its answer: one that fails says only why.
    """
    if config is None or not path:
        return ()
    contradicted = contradictions(facts_of(profile), read_mapping(Path(path)), config)
    for item in contradicted:
        text = " ".join(f"Warning: {item.field}: {item.sentence} {' '.join(item.evidence)}".split())
        sys.stderr.write((text if len(text) <= _LINE else f"{text[: _LINE - 1]}…") + "\n")
    return contradicted
