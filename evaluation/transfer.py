"""Whether a measured effect carries over: `python -m evaluation.transfer` writes docs/history-transfer.md.

Every measured pair is looked up in the shipped records as the change of a run would be, without the records of its own
model on its own chip.  What the records let expect is held against what was measured, by likeness; and confidences that
take precedents into account against those that do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
import numpy.typing as npt

from diagnosis.analyzer import diagnose
from evaluation import history_ablation
from evaluation.confidence_pairs import Predicted, predict_pairs
from evaluation.history_ablation import same_work
from evaluation.measured_pairs import MeasuredRun, measured_pairs
from experiments.without_profile import without_profile
from history import moves, seeds
from history.likeness import BOUND, REPEAT, Case, hardware_kind, spread, vector
from history.moves import ROLES
from history.record import Side
from perfmodel.config import Measured
from perfmodel.step_time import Z80
from proposals.proposer.confidence import shipped
from proposals.proposer.likeness import Library, Support
from proposals.proposer.precedents import Precedent, precedents_of, published, situation
from proposals.proposer.ranking import drawn

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

PAGE = Path(__file__).parents[1] / "docs" / "history-transfer.md"
BINS = (0.0, 0.3, 0.4, BOUND, 0.6, 0.7, 0.8, 1.01)
#: Effects below are no direction: repeated runs differ by as much.
LEAST = 0.02


@dataclass(frozen=True)
class Asked:
    """A measured pair and what the records say of it: likeness of the record most alike, 0 where none is, and expected
    log gain.

    proposed: from the run predicted slower to the one predicted faster.  shown, elsewhere: in a direction drawn by
    hash, so that neither is the likelier; elsewhere: by records of other sources alone; measured: log gain in it.
    """

    predicted: Predicted
    proposed: tuple[float, float]
    shown: tuple[float, float]
    elsewhere: tuple[float, float]
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
        start, move = _case(one.before), _change(one.before, one.after)
        if not move:
            continue
        others = [item for item in published() if not same_work(item, start)]
        elsewhere = [item for item in others if item.source not in _sources(one)]
        proposed, measured = _said(others, start, move), one.measured
        shown = proposed
        if _drawn(one):
            start, move, measured = _case(one.after), _change(one.after, one.before), -measured
            shown = _said(others, start, move)
        found.append(Asked(one, proposed, shown, _said(elsewhere, start, move), measured))
    return tuple(found)


def _drawn(one: Predicted) -> bool:
    """Whether a pair is looked up the other way round."""
    names = f"{one.before.config.name} {one.after.config.name} {one.measured:.6f}"
    return int(sha256(names.encode()).hexdigest(), 16) % 2 == 1


def _said(precedents: Sequence[Precedent], start: Case, move: Mapping[str, float]) -> tuple[float, float]:
    """Likeness and expected log gain; bound and all as on a page, but nothing is held back below it."""
    nothing = np.zeros((1, len(ROLES)))
    support = Library(precedents, start, least=0.0).support(vector(move)[None, :], nothing, np.zeros(1), None)
    return float(support.likeness[0]), float(support.said[0])


def _sources(one: Predicted) -> tuple[str, ...]:
    """Sources of the records that come from where the pair does."""
    from evaluation.history_from_sweeps import SOURCES

    source = one.pair.source
    if source in SOURCES:
        return (SOURCES[source].name,)
    names = {item.source for item in published()}
    return tuple(name for name in names if ("OptiCo" in name) == (source == "optico"))


_CASES: dict[int, Case] = {}


def _case(run: MeasuredRun) -> Case:
    """A run known by its step time alone."""
    if id(run) not in _CASES:
        config = replace(run.config, measured=Measured(step_time_s=run.step_time_s))
        _CASES[id(run)] = situation(config, diagnose(without_profile(config), config))
    return _CASES[id(run)]


def _change(before: MeasuredRun, after: MeasuredRun) -> Mapping[str, float]:
    return moves.change_of((), _side(before), _side(after)) or {}


def _side(run: MeasuredRun) -> Side:
    training = run.config.training
    keys = ("global_batch", "grad_accum", "micro_batch", "remat", "weight_sharding", "precision")
    values = {key: value for key in keys if (value := getattr(training, key)) is not None}
    return Side(mesh=run.config.mesh.to_json(), axis_roles=run.config.mesh.axis_roles, training=values)


def _share(mask: Bools, weight: Floats) -> float:
    return float((weight * mask).sum() / weight.sum()) if weight.sum() else float("nan")


def rows(found: Sequence[Asked], elsewhere: bool = False) -> list[str]:
    """A table by likeness."""
    like, said = np.array([one.elsewhere if elsewhere else one.shown for one in found]).T
    measured = np.array([one.measured for one in found])
    weight = np.array([one.predicted.weight for one in found])
    lines = [
        "| likeness | pairs | direction right | in range | error | error of expecting nothing |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    bands = [*pairwise(BINS), (BOUND, 1.01)]
    for low, high in bands:
        part = (like >= low) & (like < high) & (like > 0)
        if part.sum() < 5:
            lines.append(f"| {_band(low, high)} | {part.sum()} | – | – | – | – |")
            continue
        tells = part & (np.abs(said) > 1e-3) & (np.abs(measured) > LEAST)
        right = _share((said > 0)[tells] == (measured > 0)[tells], weight[tells])
        sigma = np.array([spread(value) for value in like])
        inside = _share((np.abs(measured - said) <= Z80 * sigma)[part], weight[part])
        error, nothing = (_middle(np.abs(value)[part], weight[part]) for value in (measured - said, measured))
        lines.append(
            f"| {_band(low, high)} | {part.sum()} | {100 * right:.0f} % | {100 * inside:.0f} % | "
            f"{100 * error:.0f} % | {100 * nothing:.0f} % |"
        )
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
    like, said = np.array([one.proposed for one in found]).T
    faster = np.array([one.predicted.measured > 0 for one in found], dtype=float)
    weight = np.array([one.predicted.weight for one in found])
    half = np.array([one.half for one in found])

    nothing = np.zeros(len(found))
    support = Support(said, nothing, like, nothing.astype(np.int64), nothing, nothing.astype(np.int64))

    def score(least: float) -> list[float]:
        stated = shipped().probability(*drawn(gain, sigma, support, least))
        error = (stated - faster) ** 2
        return [float(np.average(error[part], weights=weight[part])) for part in (half == 0, half == 1, half >= 0)]

    return {
        "the model alone": score(2.0),
        f"drawn to what repeats it (likeness from {REPEAT:g})": score(REPEAT),
        f"drawn to all that is shown (from {BOUND:g})": score(BOUND),
    }


def usable() -> list[str]:
    """How many shipped records can be a precedent, by chip."""
    lines = [
        "| chip | records | can be a precedent | model and tokens known | bottleneck known |",
        "|---|--:|--:|--:|--:|",
    ]
    every = seeds.records()
    for chip in sorted({record.chip for record in every}, key=lambda name: (hardware_kind(name), name)):
        mine = [record for record in every if record.chip == chip]
        told = precedents_of(mine)
        sized = [item for item in told if item.case.parameters and item.case.tokens_per_chip]
        known = [item for item in told if item.case.bottleneck]
        lines.append(f"| {chip or 'several or none'} | {len(mine)} | {len(told)} | {len(sized)} | {len(known)} |")
    return lines


def page() -> str:
    found = asked()
    known = [one for one in found if one.shown[0] >= BOUND]
    lines = [
        "# Does a measured effect carry over?",
        "",
        f"Written by `python -m evaluation.transfer` on {datetime.now(UTC):%Y-%m-%d}. {len(found):,} measured pairs "
        "(docs/accuracy-confidence.md; those four times apart and more, programs that stall, left out), each in a "
        "direction drawn by hash, so that half of them get slower, and looked up in the shipped records without any "
        "of the same model on the same chip.",
        "",
        "*Direction right*: of pairs that differ by 2 % or more, the share that went the way the records let expect. "
        "*In range*: measured within the 80 % range. *Error*: median difference of measured and expected, in "
        "logarithms of the speed-up; beside it that of expecting no change. Pairs are weighed as in "
        "docs/accuracy-confidence.md.",
        "",
        *rows(found),
        "",
        f"{len(known):,} of {len(found):,} pairs have a record above the bound, {BOUND:g}.",
        "",
        "## From another program",
        "",
        "The same without all records of the pair's own source, so that program, cluster and chip are others. It is "
        "the hardest case, and the usual one for a run that is uploaded.",
        "",
        *rows(found, elsewhere=True),
        "",
        "## In the confidence",
        "",
        "Brier scores of the confidence that the predicted gain is one, by halves of the families drawn by hash. "
        "*Drawn*: the predicted gain and its spread moved towards what the records let expect, as far as the model is "
        "unsure.",
        "",
        "| | one half | the other | both |",
        "|---|--:|--:|--:|",
        *(f"| {name} | {' | '.join(f'{value:.4f}' for value in values)} |" for name, values in briers(found).items()),
        "",
        "## What can be a precedent",
        "",
        "Of the shipped records. What changed the kernel, the model, the precision or the release as well can be read "
        "and searched, and is no precedent of a proposal; what does not name model or tokens stays below the bound.",
        "",
        *usable(),
        "",
        "## Proposals with and without history",
        "",
        "Starts in the measured sweeps (docs/accuracy-proposals.md), the records of the same model on the same chip "
        "left out: mean measured log gain of the first proposal and of the best of three; time per "
        "token after the first over the fastest measured; first proposals that failed.",
        "",
        *history_ablation.lines(),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
