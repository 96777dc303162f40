"""Every figure of a run with what it is, how it was computed and where it stands; and which of them a message means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

from formatting import plain
from perfmodel.config import ConfigError
from perfmodel.workload import chip_of
from proposals.agents.figures.figure import KEY_FIGURES, Figure, figure
from proposals.agents.figures.lookup import Named, by_words, look_up, numbers_in_text, relations, with_canonical_units
from proposals.agents.figures.measured import measured
from proposals.agents.figures.predicted import predicted, stated
from proposals.agents.identity import ComparedByIdentity
from proposals.agents.workbench import Workbench
from proposals.candidate import changes_chips

__all__ = [
    "Figure",
    "Named",
    "by_words",
    "figures_of",
    "look_up",
    "numbers_in_text",
    "relations",
    "with_canonical_units",
]


def figures_of(bench: Workbench) -> tuple[Figure, ...]:
    """All figures of a run, under what the conversation holds."""
    return _figures(ComparedByIdentity(bench))


def _utilisation(bench: Workbench) -> Iterator[Figure]:
    """MFU of the proposals, and the FLOP/s of a chip that an MFU stands for."""
    mfu, chip = bench.diagnosis.kpis.get("mfu"), chip_of(bench.config.hardware)
    if not mfu:
        return
    peak = chip.peak(bench.config.training.precision)
    yield from figure(
        "model FLOP/s per chip of the current configuration", mfu * peak, "flops_per_s", "computed", KEY_FIGURES,
        formula="MFU × peak FLOP/s", weight=4,
        inputs=(("MFU", plain(mfu, "share")), ("peak", plain(peak, "flops_per_s"))),
    )  # fmt: skip
    for item in bench.plan.proposals:
        speed = item.predicted.speedup
        if speed and item.kind != "keep" and not changes_chips(item.changes) and "precision" not in item.changes:
            yield from figure(
                f"MFU of proposal {item.rank}",
                mfu * speed,
                "share",
                "predicted",
                "proposals",
                formula="MFU of the current configuration × speed-up per token",
                of=(f"proposal {item.rank}",),
                weight=4,
                inputs=(("MFU", plain(mfu, "share")), ("speed-up", plain(speed, "speedup"))),
            )


@lru_cache(maxsize=8)
def _figures(bench: ComparedByIdentity[Workbench]) -> tuple[Figure, ...]:
    of = bench.value
    every = [*measured(of.profile, of.diagnosis), *stated(of.config, chip_of(of.config.hardware))]
    with suppress(ConfigError):  # where nothing can be proposed there is nothing predicted
        every += [*predicted(of.plan), *_utilisation(of)]
    return tuple(every)
