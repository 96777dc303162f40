"""What a text names of a run: configurations, proposals, findings, axes, ops, chips and amounts.  Needs no database.

`Mentions` is where to start; `mentions_of` reads one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent.tools import ToolError
from dialogue.computations.words import SEARCHED, score, telling, words_of
from formatting.numbers import whole_number
from perfmodel.chips import load_chips
from perfmodel.config import ExperimentConfig
from proposals.agents.settings import INSTEAD, SETTING_WORDS, Settings, axis_of, parse
from proposals.agents.tools.look import kpi_name
from proposals.agents.tools.shared import Configuration, arguments_of, as_tool_error, proposal
from proposals.agents.workbench import Workbench
from proposals.candidate import is_same, keeps

K = TypeVar("K", int, str)
#: Between configurations.
_OR = re.compile(r"\s+(?:or|vs\.?|versus|against)\s+|\s*;\s*", re.IGNORECASE)
#: A proposal or finding by its number or place, and further ones after it.
_AND = r"(?:\s*(?:,|and|or|&|vs\.?|versus|against)\s*(?:prop(?:osal)?s?\s*)?#?[1-9])*"
_PLACES = {"first": 1, "top": 1, "best": 1, "your": 1, "ur": 1, "second": 2, "third": 3}
_PICK = r"(?:prop(?:osal)?|pick|option|suggestion|recommendation|candidate|choice)"
_PROPOSAL = re.compile(
    rf"(?:\bprop(?:osal)?s?\.?\s*(?:#|nr\.?|number)?|#|\bn[ro]\.?)\s*[1-9]{_AND}\b"
    rf"|\b(?:{'|'.join(_PLACES)})\s+(?:{_PICK}\b|one\b(?! of))",
    re.IGNORECASE,
)
_FINDING = re.compile(rf"\bfindings?,?\s*(?:#|nr\.?|number)?\s*[1-9]\d?{_AND}\b", re.IGNORECASE)
_CHIPS = rf"(?:chips|[gt]pus|{'|'.join(load_chips())})"
#: A number of chips, or of hosts.
_COUNT = re.compile(
    rf"\b(\d{{1,5}})\s*(?:x\s*)?(?:(?:more|idle|free|spare|such|other|of (?:those|these|them)) )?"
    rf"(?:{_CHIPS}s?|(?P<host>hosts?|nodes?|box(?:es)?|dgx\w*))\b",
    re.IGNORECASE,
)
#: A whole number without a unit.
_ALONE = re.compile(rf"(?<![\w.,$])(?<!finding )(\d{{1,6}})(?![\w%]|[.,]\d|\s?(?:%|[GMT]B|gigs?|ms|s\b|x\b|{_CHIPS}))")
#: Characters of a text that a number alone may be the question of.
SHORT = 60
#: What a training run takes: tokens, and money for a chip and hour.
_NUMBER = r"(\d+(?:\.\d+)?)"
_AMOUNTS = {
    "tokens": re.compile(rf"{_NUMBER}\s*([KMBT]?)(?:illion)?\s*tok(?:ens?)?\b(?!\s*(?:/|per))", re.IGNORECASE),
    "price_per_chip_hour": re.compile(
        rf"(?:[$€]\s*{_NUMBER}|{_NUMBER}\s*(?:\$|€|(?:usd|eur|dollars?|bucks)\b|/\s*[ctg]\w+[ -]?h))()", re.IGNORECASE
    ),
}
_POWERS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
#: Ops, longest first, whose kind a text may name, and share of a finding's or KPI's name that it must hold.
KINDS, TITLED = 40, 0.3


@dataclass(frozen=True)
class Named:
    """A configuration that a text names.  arguments: of its price; settings: as written; problem: why it cannot be
    priced; is_new: neither current nor proposed."""

    arguments: Mapping[str, Any]
    settings: Settings
    problem: str = ""
    is_new: bool = True


@dataclass(frozen=True)
class Mentions:
    """Hold what a text names, in its order.

    earlier: arguments of the configuration spoken of before it; proposed: of the proposal that it names.  about: the
    finding whose title its words are of; likely_op: the op.  alone: share of the words that a configuration takes.
    """

    configurations: Sequence[Named]
    earlier: Mapping[str, Any]
    proposed: Mapping[str, Any]
    proposals: Sequence[int]
    findings: Sequence[int]
    about: int
    axes: Sequence[str]
    chips: Sequence[str]
    counts: Sequence[int]
    ops: Sequence[str]
    likely_op: str
    kinds: Sequence[str]
    keys: Sequence[str]
    figures: Sequence[str]
    amounts: Mapping[str, float] = field(default_factory=dict)
    alone: float = 0.0

    @property
    def signals(self) -> tuple[float, ...]:
        """Return what kinds of things the text names, each 0 to 1, in the order of the fitted weights."""
        new = any(each.is_new for each in self.configurations)
        several = len(self.proposals) > 1
        named = (self.proposals, several, self.findings, self.about, self.ops, self.kinds, self.chips, self.counts)
        more = (self.amounts, self.keys, self.axes, self.figures, self.earlier)
        return (new, bool(self.configurations) and not new, self.alone, *map(bool, (*named, *more)))


def mentions_of(bench: Workbench, text: str, before: Sequence[str] = ()) -> Mentions:
    """Return what a text names.  before: what was asked earlier in the conversation."""
    words, said, diagnosis = words_of(text), text.lower(), bench.diagnosis
    mesh, now = bench.config.mesh, bench.config.hardware
    proposed = _proposed(bench, text) or {}
    configurations, earlier = _configurations(bench, text, before, proposed)
    rest = words_of(" ".join(configurations[0].settings.rest)) if configurations else words
    titles = {n: f"{each.title} {each.rule.replace('_', ' ')}" for n, each in enumerate(diagnosis.findings, 1)}
    listed = [op.name for op in diagnosis.ops[:KINDS]]
    # `dynamic-update-slice.33` is a dynamic-update-slice.
    kinds = {name: kind for name in listed if len(kind := re.sub(r"[.\d]+$", "", name).lower()) > 5 and kind in said}
    ops = [
        op.name for op in diagnosis.ops if len(op.name) > 3 and re.search(rf"{re.escape(op.name.lower())}(?!\d)", said)
    ]
    ops = sorted(ops, key=lambda name: said.index(name.lower())) or [
        name for name, kind in kinds.items() if "_" in kind
    ]
    parts = {name: set(re.split(r"[\W_]+", name.lower())) for name in listed}
    shared = {name: (len(of & set(telling(words))), -len(of)) for name, of in parts.items()}
    likely = max(shared, key=lambda name: shared[name], default="")
    wide = [axis for axis, size in (*mesh.ici, *mesh.dcn) if size > 1]
    axes = {axis for axis, _ in (*mesh.ici, *mesh.dcn)} | {"dcn", *(each.axis for each in diagnosis.collectives)}
    named = (re.sub(r"(?:s|-\d+)$", "", word) for word in words)  # `v6e-4` is of v6e, `h100s` are h100
    chips = [chip for chip in named if chip in load_chips() and chip != now.chip]
    per_host = load_chips()[chips[0] if chips else now.chip].chips_per_host
    found = sorted(_COUNT.finditer(text), key=lambda count: bool(count["host"]))
    counts = [int(count[1]) * (per_host if count["host"] else 1) for count in found]
    return Mentions(
        configurations=configurations, earlier=earlier, proposed=proposed, proposals=_numbers(_PROPOSAL, text),
        findings=_numbers(_FINDING, text), about=next(iter(_closest(words, titles, TITLED)), 0),
        axes=[axis for word in words if (axis := axis_of(mesh, plain := word.rstrip("0123456789=-")) or plain) in axes]
        or wide * (len(wide) == 1),
        chips=chips, counts=counts if counts and (chips or counts[0] != now.chips) else [],
        ops=ops, likely_op=likely if likely and shared[likely][0] else "", kinds=list(kinds.values()),
        keys=[SETTING_WORDS[word] for word in words if word in SETTING_WORDS],
        figures=_closest(words, {key: kpi_name(key) for key in diagnosis.kpis}),
        amounts={key: amount for key, pattern in _AMOUNTS.items() if (amount := _amount(pattern, text))},
        # Beside few other words a configuration is the question, else a circumstance of it.
        alone=1.0 - len(telling(rest)) / max(len(words), 1) if configurations else 0.0,
    )  # fmt: skip


def _configurations(
    bench: Workbench, text: str, before: Sequence[str], proposed: Mapping[str, Any]
) -> tuple[list[Named], dict[str, Any]]:
    """Return the configurations that a text names, each also as a change of the proposal in it and of the one spoken of
    before; and the arguments of that one."""
    config, earlier, last = bench.config, dict[str, Any](), Settings()
    for said in before:
        settings, base = parse(said, config), _proposed(bench, said)
        if (settings or base) and (found := _named(bench, settings, base or earlier)) and not found.problem:
            earlier, last = dict(found.arguments), settings or last
    named = [settings for part in _parts(text, config) if (settings := parse(part, config))]
    plain = _PROPOSAL.sub("", INSTEAD.sub("", text))
    rest = " ".join(named[0].rest) if named else plain
    if last and len(text) <= SHORT and (numbers := _ALONE.findall(rest)):
        more = last.with_last(int(numbers[-1]))
        named = [more.over(named[0]) if named else more]
    elif not named and last and proposed:
        named = [last]
    made: dict[str, Named] = {}
    for settings in named:
        for each in (*filter(None, (proposed, earlier)), {}):
            if found := _named(bench, settings, each):
                made.setdefault(repr((found.arguments, found.problem)), found)
    return list(made.values()), earlier


def _parts(text: str, config: ExperimentConfig) -> list[str]:
    """Return the configurations of a text that names several, each with a mesh; else the text."""
    parts = _OR.split(text[:SEARCHED])
    has_meshes = len(parts) > 1 and all((found := parse(part, config)).ici or found.dcn for part in parts)
    return parts if has_meshes else [text]


def _named(bench: Workbench, settings: Settings, base: Mapping[str, Any]) -> Named | None:
    """Return a configuration; None where it is the current one by its training keys.  base: arguments of the one that
    it changes; empty: the current one."""
    sizes, changes = {**base.get("mesh", {}), **settings.sizes}, {**base.get("changes", {}), **settings.changes}
    try:
        with as_tool_error():
            of = Configuration(mesh=sizes, changes=changes).candidate(bench.config)
            offered = [state.proposal for state in bench.proposals]
    except ToolError as error:
        return Named({}, settings, str(error))
    is_current = keeps(bench.config, of)
    if is_current and not settings.sizes:  # settings as they are now: spoken of, not asked for
        return None
    is_known = is_current or any(is_same(bench.config, of, each) for each in offered)
    return Named(arguments_of(bench.config, of), settings, is_new=not is_known)


def _proposed(bench: Workbench, text: str) -> dict[str, Any] | None:
    """Return the arguments of the proposal that a text names; None where it names none."""
    numbers = _numbers(_PROPOSAL, text)
    with contextlib.suppress(ToolError):
        return arguments_of(bench.config, proposal(bench, numbers[0]).proposal) if numbers else None
    return None


def _numbers(named: re.Pattern[str], text: str) -> list[int]:
    """Return the numbers of the proposals or findings that a text names, in its order."""
    words = (word for place in named.finditer(text) for word in re.findall(r"\d+|[a-z]+", place[0].lower()))
    return [number for word in words if (number := _PLACES.get(word) or whole_number(word))]


def _closest(words: Sequence[str], named: Mapping[K, str], least: float = 0.5) -> list[K]:
    """Return the keys of names of which the words hold at least a share, those that they hold most of first."""
    said = (" ".join(words), 1.0)
    shares = {key: score(telling(words_of(name)), said) / len(words_of(name)) for key, name in named.items()}
    return sorted((key for key, share in shares.items() if share >= least), key=lambda key: -shares[key])


def _amount(pattern: re.Pattern[str], text: str) -> float:
    """Return the number that a pattern finds, with its power of a thousand; 0 where there is none."""
    found = pattern.search(text)
    if found is None:
        return 0.0
    *numbers, power = found.groups()
    return float(next(number for number in numbers if number)) * _POWERS[power.upper()]
