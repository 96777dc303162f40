"""Whether a measured effect carries over: `python -m evaluation.transfer` writes docs/history-transfer.md.

Every measured pair is looked up in the shipped records as the change of a run would be, without the records of its own
model on its own chip.  What the records let expect is held against what was measured, by likeness; and confidences that
take precedents into account against those that do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
import numpy.typing as npt

from evaluation import history_ablation
from evaluation.confidence_pairs import Predicted, predict_pairs
from evaluation.history_ablation import changed, same_work
from evaluation.measured_pairs import MeasuredRun, measured_pairs
from evaluation.report import wrapped
from evaluation.time_table import table_without_model
from history import seeds
from history.case import Case, cases_of, hardware_kind
from history.labels import BOUND, REPEAT
from history.similarity import carried, rate
from history.uncertainty import spread
from perfmodel.confidence import shipped
from perfmodel.config import Measured
from perfmodel.efficiency import EfficiencyTable
from perfmodel.step_time import Z80
from proposals.proposer.precedents import Precedent, precedents_of, published
from proposals.proposer.prices import drawn

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

PAGE = Path(__file__).parents[1] / "docs" / "history-transfer.md"
BINS = (0.0, 0.3, 0.4, BOUND, 0.6, 0.7, 0.8, 1.01)
#: Effects below are no direction: repeated runs differ by as much.
LEAST = 0.02


@dataclass(frozen=True)
class Said:
    """What the record most alike says of a pair.  likeness: 0 where none is; effect: its own measured log gain;
    expected: the log gain that it lets expect here."""

    likeness: float = 0.0
    effect: float = 0.0
    expected: float = 0.0


@dataclass(frozen=True)
class Asked:
    """A measured pair and what the records say of it.

    proposed: from the run predicted slower to the one predicted faster.  shown, elsewhere: in a direction drawn by
    hash, so that neither is the likelier; elsewhere: by records of other sources alone; alone: log gain that the model
    predicts in it without any record; measured: log gain in it.
    """

    predicted: Predicted
    proposed: Said
    shown: Said
    elsewhere: Said
    alone: float
    measured: float

    @property
    def half(self) -> int:
        """By hash of the family: 0 or 1."""
        return int(sha256(self.predicted.pair.family.encode()).hexdigest(), 16) % 2


@cache
def asked() -> tuple[Asked, ...]:
    """Every measured pair that the Proposer could have proposed."""
    found = []
    for one in predict_pairs(measured_pairs()):
        if abs(one.measured) > log(4.0):
            continue  # programs that stall
        table = table_without_model(one.before.config) if one.pair.source != "optico" else None
        case = _case(one.before, one.after, table)
        if not case.move:
            continue
        others = [item for item in _records(table) if not same_work(item, case)]
        elsewhere = [item for item in others if item.record.source not in _sources(one)]
        proposed, measured = _said(others, case), one.measured
        shown = proposed
        if _drawn(one):
            case, measured = _case(one.after, one.before, table), -measured
            shown = _said(others, case)
        alone = case.mechanism.gain if case.mechanism is not None else 0.0
        found.append(Asked(one, proposed, shown, _said(elsewhere, case), alone, measured))
    return tuple(found)


def _records(table: EfficiencyTable | None) -> tuple[Precedent, ...]:
    """The shipped records as a table prices them that has not seen the pair's model."""
    if id(table) not in _PRICED:
        every = precedents_of(seeds.records(), cases_of(seeds.records(), table))
        _PRICED[id(table)] = tuple(item for item in every if not item.failure)
    return _PRICED[id(table)]


#: Tables are kept by those who made them (`time_table`), so that an id names one.
_PRICED: dict[int, tuple[Precedent, ...]] = {}


def _drawn(one: Predicted) -> bool:
    """Whether a pair is looked up the other way round."""
    names = f"{one.before.config.name} {one.after.config.name} {one.measured:.6f}"
    return int(sha256(names.encode()).hexdigest(), 16) % 2 == 1


def _said(precedents: Sequence[Precedent], ours: Case) -> Said:
    """Of the record most alike, bound or not."""
    rated = rate([item.case for item in precedents], ours)
    best = max(range(len(rated)), key=lambda n: rated[n], default=None)
    if best is None or not rated[best]:
        return Said()
    theirs = precedents[best].case
    assert theirs.gain is not None
    return Said(rated[best], theirs.gain, carried(theirs, ours, rated[best])[0])


def _sources(one: Predicted) -> tuple[str, ...]:
    """Sources of the records that come from where the pair does."""
    from evaluation.history_from_sweeps import SOURCES

    source = one.pair.source
    if source in SOURCES:
        return (SOURCES[source].name,)
    names = {item.record.source for item in published()}
    return tuple(name for name in names if ("OptiCo" in name) == (source == "optico"))


def _case(before: MeasuredRun, after: MeasuredRun, table: EfficiencyTable | None) -> Case:
    """A change of a run that is known by its step time alone."""
    return changed(replace(before.config, measured=Measured(step_time_s=before.step_time_s)), after.config, table)


def _share(mask: Bools, weight: Floats) -> float:
    return float((weight * mask).sum() / weight.sum()) if weight.sum() else float("nan")


def rows(found: Sequence[Asked], elsewhere: bool = False) -> list[str]:
    """A table by likeness."""
    said = [one.elsewhere if elsewhere else one.shown for one in found]
    like = np.array([one.likeness for one in said])
    effect, told = np.array([(one.effect, one.expected) for one in said]).T
    measured, alone = np.array([(one.measured, one.alone) for one in found]).T
    weight = np.array([one.predicted.weight for one in found])
    lines = [
        "| similarity | pairs | as the record went | as expected | in range | error | error of the model alone | "
        "error of expecting no change |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    bands = [*pairwise(BINS), (BOUND, 1.01)]
    for low, high in bands:
        part = (like >= low) & (like < high) & (like > 0)
        if part.sum() < 5:
            lines.append(f"| {_band(low, high)} | {part.sum()} | – | – | – | – | – | – |")
            continue
        ways = []
        for value in (effect, told):
            tells = part & (np.abs(value) > LEAST) & (np.abs(measured) > LEAST)
            ways.append(_share((value > 0)[tells] == (measured > 0)[tells], weight[tells]))
        sigma = np.array([spread(value) for value in like])
        inside = _share((np.abs(measured - told) <= Z80 * sigma)[part], weight[part])
        errors = [_middle(np.abs(value)[part], weight[part]) for value in (measured - told, measured - alone, measured)]
        shares = " | ".join(f"{100 * value:.0f} %" for value in (*ways, inside, *errors))
        lines.append(f"| {_band(low, high)} | {part.sum()} | {shares} |")
    return lines


def _band(low: float, high: float) -> str:
    return f"{low:g}–{min(high, 1.0):g}" if (low, high) != (BOUND, 1.01) else f"**{low:g} and more**"


def _middle(values: Floats, weight: Floats) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)])


def briers(found: Sequence[Asked]) -> dict[str, list[float]]:
    """Brier score of each half and of both: the model alone, drawn to repeats, drawn to all above the bound."""
    gain = np.array([one.predicted.gain for one in found])
    sigma = np.array([one.predicted.sigma for one in found])
    like, said = np.array([(one.proposed.likeness, one.proposed.expected) for one in found]).T
    faster = np.array([one.predicted.measured > 0 for one in found], dtype=float)
    weight = np.array([one.predicted.weight for one in found])
    half = np.array([one.half for one in found])

    unsure = np.array([spread(value, priced=False) for value in like])

    def score(least: float) -> list[float]:
        stated = shipped().probability(*drawn(gain, sigma, said, np.where(like >= least, unsure, np.inf)))
        error = (stated - faster) ** 2
        return [float(np.average(error[part], weights=weight[part])) for part in (half == 0, half == 1, half >= 0)]

    return {
        "the model alone": score(2.0),
        f"drawn to the same change (similarity from {REPEAT:g})": score(REPEAT),
        f"drawn to all records shown (from {BOUND:g})": score(BOUND),
    }


def usable() -> list[str]:
    """How many shipped records can be a precedent, by chip."""
    lines = [
        "| chip | records | can be a precedent | can be priced | bottleneck known |",
        "|---|--:|--:|--:|--:|",
    ]
    every = seeds.records()
    for chip in sorted({record.chip for record in every}, key=lambda name: (hardware_kind(name), name)):
        mine = [record for record in every if record.chip == chip]
        told = precedents_of(mine)
        sized = [item for item in told if item.case.mechanism is not None]
        known = [item for item in told if item.case.bottleneck]
        lines.append(f"| {chip or 'several or none'} | {len(mine)} | {len(told)} | {len(sized)} | {len(known)} |")
    return lines


def page() -> str:
    found = asked()
    known = [one for one in found if one.shown.likeness >= BOUND]
    lines = [
        "# Does a measured effect carry over?",
        "",
        f"Written by `python -m evaluation.transfer` on {datetime.now(UTC):%Y-%m-%d} from {len(found):,} measured "
        "pairs ([accuracy-confidence.md](accuracy-confidence.md); without pairs four times apart or more, whose "
        "programs stall), each in a direction drawn by hash, so that half of them get slower, and compared with the "
        "shipped records except those of the same model on the same chip.",
        "",
        "*As the record went*, *as expected*: of pairs that differ by 2 % or more, the share that went the same way "
        "as the most similar record, and as the effect expected from it. *In range*: measured within the 80 % "
        "interval. *Error*: median difference of measured and expected log speed-up, beside that of the model's "
        "prediction without any record, and that of expecting no change. Pair and records are priced by efficiencies "
        "fitted without the pair's model. Pairs are weighted as in [accuracy-confidence.md](accuracy-confidence.md).",
        "",
        *rows(found),
        "",
        f"{len(known):,} of {len(found):,} pairs have a record above the threshold, {BOUND:g}.",
        "",
        "## From another program",
        "",
        "The same without records of the pair's own source, so with another program, cluster and chip: the hardest "
        "case, and the usual one for an uploaded run.",
        "",
        *rows(found, elsewhere=True),
        "",
        "## In the confidence",
        "",
        "Brier scores of the confidence in a gain, by two halves of the families drawn by hash. *Drawn*: predicted "
        "gain and spread moved towards the effects of the records, in proportion to the model's uncertainty.",
        "",
        "| | one half | the other | both |",
        "|---|--:|--:|--:|",
        *(f"| {name} | {' | '.join(f'{value:.4f}' for value in values)} |" for name, values in briers(found).items()),
        "",
        "## What can be a precedent",
        "",
        "Of the shipped records. Records that also changed the kernel, the model, the precision or the release can "
        "be read and searched but are no precedents; records that cannot be priced, since they do not name their "
        "model, mesh or tokens, are precedents for the same model only.",
        "",
        *usable(),
        "",
        "## Proposals with and without history",
        "",
        "Starts in the measured sweeps ([accuracy-proposals.md](accuracy-proposals.md)), without records of the same "
        "model on the same chip: mean measured log gain of the first proposal and of the best of three; regret of "
        "the first; share of first proposals that failed.",
        "",
        *history_ablation.lines(),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    PAGE.write_text(wrapped(page()), encoding="utf-8")


if __name__ == "__main__":
    main()
