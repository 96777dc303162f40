"""XLA flags that overlap an exposed transfer, for this chip and cause, where the run does not set them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from diagnosis.analyzer.facts import Facts, OpFacts
from perfmodel import known_flags

_WORDS = {
    "ici_all_gather": "all-gathers",
    "ici_reduce_scatter": "reduce-scatters",
    "ici_all_reduce": "all-reduces",
    "dcn_all_reduce": "gradient all-reduces over DCN",
    "dcn_all_gather": "all-gathers over DCN",
    "all_to_all": "all-to-alls",
    "collective_permute": "collective-permutes",
    "collective_matmul": "tensor-parallel collectives with their matmuls",
    "host_offload": "host transfers with compute",
    "small_collectives": "small collectives",
}


@dataclass(frozen=True)
class Advice:
    """flags: those that the run does not set.  text: a sentence about them that follows another,
    empty where nothing is documented."""

    flags: tuple[str, ...] = ()
    source: str = ""
    text: str = ""


def causes_of(ops: Iterable[OpFacts]) -> tuple[str, ...]:
    """The causes of these exposed collectives, costliest first."""
    costs: dict[str, float] = {}
    for op in ops:
        cause = known_flags.cause_of(op.collective.kind, op.over_dcn) if op.collective else None
        if cause:
            costs[cause] = costs.get(cause, 0.0) + op.exposed_share
    return tuple(sorted(costs, key=lambda cause: -costs[cause]))


def advise(facts: Facts, causes: Iterable[str], verb: str = "overlap") -> Advice:
    """Flags for these causes on the chip that ran; empty where none is documented for it."""
    if facts.chip is None or not facts.of_xla:
        return Advice()
    given = facts.config.training.xla_flags if facts.config else ()
    shown = known_flags.shown_by((op.op.name, op.collective.kind) for op in facts.collectives if op.collective)
    sets = [flag_set for cause in causes if (flag_set := known_flags.flag_set(facts.chip.name, cause)) is not None]
    if not sets:
        return Advice()
    flags = tuple(dict.fromkeys(flag for flag_set in sets for flag in known_flags.missing(flag_set, (*given, *shown))))
    sources = "; ".join(dict.fromkeys(title for flag_set in sets for title, _ in flag_set.sources))
    what = " and ".join(dict.fromkeys(_WORDS[flag_set.cause] for flag_set in sets))
    if not flags:
        return Advice(text=f" The documented XLA flags that {verb} {what} are already set.")
    if any(flag.partition("=")[0] in shown for flag_set in sets for flag in flag_set.flags):
        text = (
            " Asynchronous collectives are already enabled, as the ops show; set the other XLA flags that "
            f"{verb} {what} on"
        )
        return Advice(flags, sources, f"{text} {facts.chip.name} ({sources}).")
    return Advice(flags, sources, f" Set the XLA flags that {verb} {what} on {facts.chip.name} ({sources}).")
