"""How alike two cases are: how much of what a change brought in the one carries over to the other.  Knows no Django.

One likeness for everything that is looked up: a product of factors, each 1 where two cases agree in what decides
whether an effect carries over.  What a difference costs is measured (`evaluation.transfer`, docs/history.md): the
effect of one change predicts that of another as far as its logarithm times the likeness, give or take `spread`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import exp, log, log2, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from history import moves
from history.record import Record
from perfmodel.catalogue import load_catalogue
from perfmodel.chips import get_chip, load_chips

Floats = npt.NDArray[np.float64]

#: Below it nothing is shown as alike: of measured pairs this much alike three in four go the same way.
BOUND = 0.5
#: From here on it is the same run: its outcome is a measurement of what is proposed, and bears on rank and confidence.
REPEAT = 0.9
#: The most that a case can be alike whose model or tokens are not known.
CAPPED = 0.9 * BOUND

#: Measured: another bottleneck; each axis in use in one of them only; each doubling that a move is longer or
#: shorter; the angle between two moves (to the power of 1 − cosine).
OTHER_BOTTLENECK, PER_AXIS, PER_DOUBLING_MOVED, PER_ANGLE = 0.72, 0.95, 0.8, 0.2
#: Another chip of the same vendor: no two sources measured one program on two chips, so that this is of other programs
#: too.
OTHER_CHIP = 0.6
#: Judged, and more careful than measured: the sweeps' effects carry over to any size within a program, which says
#: little of sizes and programs beyond them.  Each doubling of the chips, of the model's size and of the tokens
#: per chip; another family of models; a mixture of experts for a dense model; a bottleneck that is not known; another
#: vendor's chip; a TPU for a GPU, whose links and compiler differ so that it never reaches the bound.
PER_DOUBLING_OF_CHIPS, PER_DOUBLING_OF_SIZE, PER_DOUBLING_OF_TOKENS = 0.94, 0.9, 0.9
OTHER_FAMILY, OTHER_ARCHITECTURE, UNKNOWN_BOTTLENECK, OTHER_VENDOR, OTHER_KIND = 0.9, 0.6, 0.85, 0.5, 0.3
#: Standard deviation of the logarithm of an effect of which nothing alike was measured, and of a repeated measurement.
SPREAD, NOISE = 0.5, 0.15
#: Time per token that grew or fell by more tells of a program that stalls, not of what was changed.
MOST_TELLING = 4.0
#: Standard deviations on either side that hold four in five.
Z80 = NormalDist().inv_cdf(0.9)
#: Factors from which a difference is worth saying.
WORTH_SAYING = 1.4


@dataclass(frozen=True)
class Case:
    """What a run or a record is known by; what is not known stays empty.

    move: what changes, by `moves.ROLES` and `moves.KEYS`; empty for a run without a proposal.  roles: sizes by role of
    what runs (`fsdp` as data); settings: its policies by `moves.SETTINGS`.  batch: sequences per optimizer step;
    seq_len: tokens of each.  mixture: whether the model is one of experts.  flags: names of the XLA flags that change.
    directed: False for a record whose change has no direction, or tells of a program that stalls.
    """

    chip: str = ""
    chips: int | None = None
    model_name: str = ""
    model_family: str = ""
    parameters: float | None = None
    batch: float | None = None
    seq_len: float | None = None
    bottleneck: str = ""
    move: Mapping[str, float] = field(default_factory=dict)
    roles: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    mixture: bool | None = None
    flags: frozenset[str] = frozenset()
    directed: bool = True

    @property
    def family(self) -> str:
        return self.model_family or family_of(self.model_name)

    @property
    def tokens_per_chip(self) -> float | None:
        return self.batch * self.seq_len / self.chips if self.batch and self.seq_len and self.chips else None

    @property
    def size_per_chip(self) -> float | None:
        return self.parameters / self.chips if self.parameters and self.chips else None


def case_of(record: Record) -> Case:
    """What a record is known by."""
    moved = moves.change(record)
    stalls = record.speedup is not None and not 1.0 / MOST_TELLING <= record.speedup <= MOST_TELLING
    return Case(
        chip=record.chip,
        chips=record.chips,
        model_name=record.model_name,
        model_family=record.model_family,
        parameters=record.parameters,
        batch=moves.number(record.before.training.get("global_batch")),
        seq_len=moves.number(record.before.training.get("seq_len")),
        bottleneck=record.bottleneck,
        move=moved or {},
        roles=moves.role_sizes(record.before, fsdp_as_data=True),
        settings=moves.settings(record.before.training),
        mixture=_mixture(record),
        flags=moves.flags(record.before, record.after) if "xla_flags" in record.changes else frozenset(),
        directed=moved is not None and not stalls,
    )


def likeness(theirs: Case, ours: Case) -> float:
    """0–1: situation and move; of a run without a proposal the situation, if the run could make the record's move."""
    alike = situation_likeness(theirs, ours)
    if not ours.move or not alike:
        return alike if alike and can_make(theirs.move, theirs, ours) else 0.0
    if not theirs.move or ((theirs.flags or ours.flags) and not theirs.flags & ours.flags):
        return 0.0
    return alike * float(move_likeness(vector(ours.move)[None, :], vector(theirs.move)[None, :])[0, 0])


def situation_likeness(theirs: Case, ours: Case) -> float:
    """0–1, whatever the move: chip, chips, model, tokens and bottleneck."""
    if not theirs.directed or not ours.directed:
        return 0.0
    found = (
        chip_likeness(theirs.chip, ours.chip)
        * _per_doubling(PER_DOUBLING_OF_CHIPS, theirs.chips, ours.chips)
        * _bottlenecks(theirs.bottleneck, ours.bottleneck)
    )
    if same_start(theirs, ours):
        return found
    size, tokens = (theirs.size_per_chip, ours.size_per_chip), (theirs.tokens_per_chip, ours.tokens_per_chip)
    if not all((*size, *tokens)):
        return min(found, CAPPED)
    found *= _per_doubling(PER_DOUBLING_OF_SIZE, *size) * _per_doubling(PER_DOUBLING_OF_TOKENS, *tokens)
    if theirs.mixture is not None and ours.mixture is not None and theirs.mixture != ours.mixture:
        found *= OTHER_ARCHITECTURE
    found *= PER_AXIS ** len(_in_use(theirs) ^ _in_use(ours)) if theirs.roles and ours.roles else 1.0
    other_family = theirs.family and ours.family and theirs.family != ours.family
    return found * (OTHER_FAMILY if other_family else 1.0)


def same_start(theirs: Case, ours: Case) -> bool:
    """Whether two changes start from the same run: chips, mesh and batch agree, and nothing else that is known of both
    differs."""
    return bool(
        theirs.roles
        and theirs.batch
        and theirs.batch == ours.batch
        and (theirs.chip, theirs.chips) == (ours.chip, ours.chips)
        and _sharded(theirs) == _sharded(ours)
        and _agree(theirs.seq_len, ours.seq_len)
        and _agree(theirs.parameters, ours.parameters)
    )


def _sharded(case: Case) -> dict[str, int]:
    return {role: size for role, size in case.roles.items() if size > 1}


def _in_use(case: Case) -> set[str]:
    return set(_sharded(case))


def can_make(move: Mapping[str, float], theirs: Case, ours: Case) -> bool:
    """Whether a run could change so: the axes that shrink are as wide, and its policies are those it starts from."""
    axes = all(ours.roles.get(role, 1) >= 2 ** -move[role] for role in moves.ROLES if move.get(role, 0.0) < 0)
    return axes and all(
        ours.settings.get(key, "") == theirs.settings.get(key) for key in moves.SETTINGS if move.get(key)
    )


def _mixture(record: Record) -> bool | None:
    """By its mesh, the catalogue or the name; None where no model is named."""
    if moves.role_sizes(record.before).get("expert", 1) > 1:
        return True
    name = record.model_name.lower()
    entry = load_catalogue().get(name)
    if entry is not None:
        return entry.shape.experts > 0
    return bool(_EXPERTS.search(name)) if name else None


#: Names of models of experts that the catalogue does not have.
_EXPERTS = re.compile(r"moe|\dx\d+b|-a\d+b|deepseek|mixtral|kimi|gpt-oss|expert")


def vector(move: Mapping[str, float]) -> Floats:
    """A move as a row: `moves.ROLES`, then `moves.KEYS`."""
    return np.array([move.get(name, 0.0) for name in (*moves.ROLES, *moves.KEYS)])


def move_likeness(ours: Floats, theirs: Floats) -> Floats:
    """(ours, theirs): 1 for the same move; less for another angle or length, 0 from a right angle on."""
    norm = np.linalg.norm(ours, axis=1)[:, None] * np.linalg.norm(theirs, axis=1)[None, :]
    aligned = np.minimum(1.0, ours @ theirs.T / np.maximum(norm, 1e-30))
    gap = np.abs(np.log2(np.maximum(length_ratio(ours, theirs), 1e-9)))
    found = PER_ANGLE ** (1.0 - aligned) * PER_DOUBLING_MOVED**gap
    return np.where(aligned > 0.5, found, 0.0)


def length_ratio(ours: Floats, theirs: Floats) -> Floats:
    """(ours, theirs): how much longer our moves are, all doublings together."""
    return np.abs(ours).sum(axis=1)[:, None] / np.maximum(np.abs(theirs).sum(axis=1)[None, :], 1e-30)


@dataclass(frozen=True)
class Expected:
    """What a measured change lets expect in another case: speed-up per token, and the range that holds four in five."""

    speedup: float
    low80: float
    high80: float


def expected(speedup: float | None, theirs: Case, ours: Case) -> Expected | None:
    """The effect of a record, re-scaled to a case; None where nothing was measured or the case has no move."""
    if not speedup or not ours.move or not theirs.move:
        return None
    length = float(length_ratio(vector(ours.move)[None, :], vector(theirs.move)[None, :])[0, 0])
    alike = likeness(theirs, ours)
    gain, sigma = carried(log(speedup), alike, length)
    return Expected(exp(gain), exp(gain - Z80 * sigma), exp(gain + Z80 * sigma))


def carried(log_gain: float, alike: float, length: float) -> tuple[float, float]:
    """Logarithm of the speed-up that a measured one lets expect, and its standard deviation.

    length: how much longer our move is.  A shorter one is expected to bring as much less; a longer one no more than was
    measured.
    """
    return log_gain * alike * min(1.0, length), spread(alike)


def spread(alike: float) -> float:
    """Standard deviation of the logarithm of a speed-up of which one so much alike was measured."""
    return sqrt(SPREAD**2 * (1.0 - alike**2) + NOISE**2)


@cache
def chip_likeness(one: str, other: str) -> float:
    """0–1 of two chips, whatever their number; 0 where one is not known, as in a recording on CPU devices."""
    chips = load_chips()
    if one not in chips or other not in chips:
        return 0.0
    if chips[one].kind != chips[other].kind:
        return OTHER_KIND
    if chips[one].vendor != chips[other].vendor:
        return OTHER_VENDOR
    return 1.0 if one == other else OTHER_CHIP


def _bottlenecks(one: str, other: str) -> float:
    if not one or not other or "unknown" in (one, other):
        return UNKNOWN_BOTTLENECK
    return 1.0 if one == other else OTHER_BOTTLENECK


def _per_doubling(factor: float, one: float | None, other: float | None) -> float:
    return float(factor ** abs(log2(one / other))) if one and other else 1.0


def _agree(one: float | None, other: float | None) -> bool:
    """Counts of parameters differ a little by what is counted."""
    return not one or not other or abs(one / other - 1.0) < 0.05


def reason(theirs: Case, ours: Case) -> str:
    """What is alike and what is not, in one line: `same move on the same chip; model 4× larger`."""
    if same_start(theirs, ours) and not ours.move:
        return "the same run"
    where = "on the same chip" if theirs.chip == ours.chip else f"on {theirs.chip}"
    differs = [
        text
        for text in (
            _bottleneck_in_words(theirs, ours),
            _ratio_in_words("model", "larger", "smaller", theirs.parameters, ours.parameters),
            _ratio_in_words("", "the tokens per chip", "", theirs.tokens_per_chip, ours.tokens_per_chip),
            _ratio_in_words("", "the chips", "", theirs.chips, ours.chips),
            "a mixture of experts" if theirs.mixture and ours.mixture is False else "",
            "a dense model" if theirs.mixture is False and ours.mixture else "",
            "its model's size is not known" if ours.parameters and not theirs.parameters else "",
            "its tokens per chip are not known" if ours.tokens_per_chip and not theirs.tokens_per_chip else "",
        )
        if text
    ]
    return "; ".join((f"{_move_in_words(theirs, ours)} {where}", ", ".join(differs))).rstrip("; ")


def _move_in_words(theirs: Case, ours: Case) -> str:
    if not ours.move or not theirs.move:
        return "a run like this one"
    one, other = vector(ours.move)[None, :], vector(theirs.move)[None, :]
    ratio = 1.0 / float(length_ratio(one, other)[0, 0])
    how = "same move" if moves.signs(ours.move) == moves.signs(theirs.move) else "similar move"
    far = "" if max(ratio, 1.0 / ratio) < WORTH_SAYING else f", {_times(ratio).removesuffix(' of')} as far,"
    return f"{how}{far}"


def _bottleneck_in_words(theirs: Case, ours: Case) -> str:
    if not ours.bottleneck or theirs.bottleneck == ours.bottleneck:
        return ""
    return f"bottleneck {theirs.bottleneck or 'not known'} there"


def _ratio_in_words(what: str, more: str, less: str, theirs: float | None, ours: float | None) -> str:
    """`model 4× larger`, `half the chips`."""
    if not theirs or not ours or max(theirs / ours, ours / theirs) < WORTH_SAYING:
        return ""
    if not what:
        return f"{_times(theirs / ours)} {more}"
    ratio = theirs / ours
    return f"{what} {_number(max(ratio, 1.0 / ratio))}× {more if ratio > 1 else less}"


def _times(ratio: float) -> str:
    """`2×`, `half`, `a quarter of`, `1/16 of`."""
    if ratio >= 1 or ratio > 1 / 3:
        return "half" if f"{ratio:.2g}" == "0.5" else f"{_number(ratio)}×"
    return "a quarter of" if f"{ratio:.2g}" == "0.25" else f"1/{_number(1.0 / ratio)} of"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 9.5 else f"{value:.2g}"


@cache
def hardware_kind(chip: str) -> str:
    """`tpu` or `gpu`; empty where the chip is not known."""
    try:
        return get_chip(chip).kind if chip else ""
    except KeyError:
        return ""


@lru_cache(4096)
def family_of(model_name: str) -> str:
    """The family that a model's name begins with: `llama` of `llama3.1-8b`; empty where it begins otherwise."""
    match = re.match(r"[a-z]+(?:-oss)?", model_name.strip().lower().rsplit("/", 1)[-1])
    return match[0] if match and len(match[0]) > 2 else ""
