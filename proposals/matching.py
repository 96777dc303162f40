"""Whether the run is the proposed configuration: two configurations compared, as sentences.  Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from diagnosis.compare.comparison import ConfigChange
from diagnosis.compare.sides import changes
from perfmodel.config import ExperimentConfig


@dataclass(frozen=True)
class Match:
    """departures: why it is another configuration than the proposed one; further: what else differs, as caveats."""

    departures: tuple[str, ...]
    further: tuple[str, ...]

    @property
    def is_same_configuration(self) -> bool:
        return not self.departures


def match(proposed: ExperimentConfig, ran: ExperimentConfig, changed: Collection[str]) -> Match:
    """Compare the run with the proposal; changed: the training keys that the proposal changes.

    Chip, number of chips, mesh, model and the changed keys decide whether it is the proposal; there may be more XLA
    flags than the proposed ones.  Everything else that differs is named, because it may have had a part in the effect.
    """
    departures: list[str] = []
    further: list[str] = []
    mesh_differs = False
    for change in changes(proposed, ran):
        part, _, key = change.field.partition(".")
        if change.field == "mesh.order":
            further.append("The mesh axes are in a different order.")
        elif part == "mesh":
            mesh_differs = True
        elif change.field == "hardware.chip":
            departures.append(f"It ran on {change.after}; the proposal is for {change.before}.")
        elif part == "model":
            if not any("model" in line for line in departures):
                departures.append(
                    f"The model differs in {key}: {_words(change.before)} against {_words(change.after)}."
                )
        elif key in changed and not _has_flags(change):
            departures.append(f"It ran with {key} {_words(change.after)}; the proposal has {_words(change.before)}.")
        elif key not in changed:
            said = f"{key.replace('_', ' ')} was {_words(change.after)}, not {_words(change.before)}."
            further.append(said[:1].upper() + said[1:])
    if mesh_differs:
        departures.insert(0, f"It ran with mesh {ran.mesh.text()}; the proposal has {proposed.mesh.text()}.")
    if proposed.hardware.chips != ran.hardware.chips and not mesh_differs:
        departures.append(f"It ran on {ran.hardware.chips:,} chips; the proposal is for {proposed.hardware.chips:,}.")
    return Match(tuple(departures), tuple(further))


def token_ratio(before: ExperimentConfig, after: ExperimentConfig) -> float | None:
    """Tokens per step after over before; 1 where neither states them and both say the same; None where unknown."""
    one, two = before.training, after.training
    if one.global_batch_tokens and two.global_batch_tokens:
        return two.global_batch_tokens / one.global_batch_tokens
    if one.seq_len == two.seq_len and one.global_batch and two.global_batch:
        return two.global_batch / one.global_batch
    return 1.0 if (one.global_batch, one.seq_len) == (two.global_batch, two.seq_len) else None


def _has_flags(change: ConfigChange) -> bool:
    """Whether all proposed XLA flags were set, with others beside them."""
    return change.field == "training.xla_flags" and set(change.before or ()) <= set(change.after or ())


def _words(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, list):
        return " ".join(str(part) for part in value) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
