"""The palette: what typed words or settings lead to, as rows to press; the same beside a run and behind Ctrl K.

`results` is where to start.  Rows of a run come from its stored workbench; those of the team from the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.urls import reverse

from accounts.models import Membership, Role
from agent.tools import ToolError
from dialogue.computations import OF_PROPOSALS, OF_RUN, Computation, arguments, registry
from dialogue.computations.matching import matches
from dialogue.computations.words import SEARCHED, score, telling, words_of
from dialogue.content import question_url
from dialogue.links import link_of
from experiments.models import Experiment
from experiments.step_profile import PROFILE
from formatting import quantity
from formatting.numbers import whole_number
from perfmodel.config import ConfigError
from proposals.agents.references import resolve
from proposals.agents.retrieval import Unavailable
from proposals.agents.settings import parse
from proposals.agents.toolbox import call
from proposals.agents.tools.operations import Filter, ops
from proposals.agents.tools.prices import PriceArguments, PricesSideBySide
from proposals.agents.tools.shared import Configuration
from proposals.agents.workbench import Workbench

#: Rows of a group.
MOST = 5


@dataclass(frozen=True)
class Row:
    """A result.  key: of the computation that pressing it answers in the conversation; asks: it sends this text to the
    model.  arguments: (name in the address, label, value), to be edited; predicted: a predicted quantity at the right,
    before the detail.  at: its place in the list."""

    title: str
    url: str
    detail: str = ""
    key: str = ""
    asks: str = ""
    arguments: Sequence[tuple[str, str, str]] = ()
    predicted: str = ""
    theme: bool = False
    at: str = ""


@dataclass(frozen=True)
class Group:
    """Rows of one kind."""

    name: str
    rows: Sequence[Row] = field(default_factory=tuple)
    note: str = ""


def results(
    query: str, membership: Membership, experiment: Experiment | None, bench: Workbench | None, model: str = "",
    before: Sequence[str] = (),
) -> list[Group]:  # fmt: skip
    """Return the groups of rows that a text leads to, empty ones left out.

    bench: of the experiment, None where it has no diagnosis or none is chosen.  model: that answers free text, if any.
    before: what was asked earlier in the conversation.
    """
    text = query.strip()
    words = words_of(" ".join(parse(text, bench.config).rest) if bench else text)
    groups: list[Group] = []
    may_ask = membership.may(Role.ENGINEER)
    if experiment is not None and model and text and may_ask:
        ask = reverse("dialogue-ask", args=[experiment.pk])
        groups.append(Group("Ask", (Row(f"Ask the model: {text[:120]}", ask, model, asks=text),)))
    if experiment is not None and bench is not None:
        groups.append(Group("Compute", tuple(_computations(experiment, bench, text, before))))
        if text:
            groups.append(Group("In this run", tuple(_in_run(experiment, bench, words))[: MOST + 3]))
            groups.append(_read(experiment, bench, text, words))
    places = Group("Go to", tuple(_places(membership, experiment, words)))
    is_named = len(text) > 2 and any(row.title.lower().startswith(text.lower()) for row in places.rows)
    groups.insert(0 if is_named else len(groups), places)
    return [
        replace(group, rows=[replace(row, at=f"{place}-{number}") for number, row in enumerate(group.rows)])
        for place, group in enumerate(groups)
        if group.rows or group.note
    ]


def _computations(experiment: Experiment, bench: Workbench, text: str, before: Sequence[str]) -> Iterator[Row]:
    found = matches(bench, text, before) if text else []
    if not found:  # what most people ask, under whatever else the text leads to
        yield from (row_of(experiment, bench, registry()[key], {}) for key in (*OF_RUN, *OF_PROPOSALS))
    for match in found:
        if match.problem:
            yield Row(match.computation.title, "", match.problem)
        else:
            yield row_of(experiment, bench, match.computation, match.arguments)


def _at_the_right(bench: Workbench, of: Configuration, key: str) -> tuple[str, str]:
    """The predicted time of a configuration, or its memory, and its detail.  Raises ToolError."""
    found = call(bench, PriceArguments(configurations=(of,)))
    assert isinstance(found, PricesSideBySide)
    (row,) = found.configurations

    def printed(path: str) -> str:
        return resolve(f"{{{path}}}", {"row": row, "now": found.current}).plain

    if key == "fits":
        held = f"of {printed('now.capacity_bytes')}" if row.memory_bytes else "unknown"
        return (printed("row.memory_bytes") if row.memory_bytes else "", held)
    if row.violations:
        return "", "breaks a rule"
    if row.step_time_s:
        return printed("row.step_time_s.estimate"), ""
    return (printed("row.speedup_per_token.estimate"), "per token") if row.speedup_per_token else ("", "unknown")


def row_of(experiment: Experiment, bench: Workbench, of: Computation, given: Mapping[str, Any]) -> Row:
    """Return the row of a computation with its arguments as they were edited; without an address where they are
    wrong."""
    try:
        asked = arguments(of, given)
        priced = asked if isinstance(asked, Configuration) and given else None
        predicted, detail = _at_the_right(bench, priced, of.key) if priced else ("", "")
    except ToolError as error:
        return Row(of.title, "", str(error), of.key, arguments=_fields(given))
    shown = _fields(given) if not priced or of.key == "price" else ()
    url = question_url(experiment.pk, of.key, given)
    return Row(of.title, url, detail, of.key, arguments=shown, predicted=predicted)


def _fields(given: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (name in the address, label, value) of each argument; each size and setting of a configuration is one."""
    parts: list[tuple[str, str, Any]] = []
    for name, value in given.items():
        inside = value.items() if isinstance(value, Mapping) else ()
        parts += [(f"{name}.{key}", key, each) for key, each in inside] or [(name, name, value)]
    return [(name, label.replace("_", " "), str(value)) for name, label, value in parts]


#: A row with texts that it is found by, each with its weight.
Offered = tuple[Row, tuple[tuple[str, float], ...]]


def _best(words: Sequence[str], offered: Sequence[Offered], least: float) -> Iterator[Row]:
    """Yield the rows whose texts say enough of the words, the best first."""
    scored = [(-score(words, *texts), place, row) for place, (row, texts) in enumerate(offered)]
    yield from (row for points, _, row in sorted(scored, key=lambda item: item[:2])[:MOST] if -points >= least)


def _in_run(experiment: Experiment, bench: Workbench, words: Sequence[str]) -> Iterator[Row]:
    """Findings, proposals and ops that the words are about."""
    link, said = link_of(experiment), telling(words)
    offered: list[Offered] = []
    for number, finding in enumerate(bench.diagnosis.findings, start=1):
        saving = f"≤ {quantity(finding.saving_s, 's')}" if finding.saving_s else ""
        row = Row(f"Finding {number} · {finding.title}".replace("`", ""), link(f"finding:{number}"), saving)
        named = f"finding {number} {finding.title} {finding.mesh_axis or ''}"
        offered.append((row, ((named, 2.0), (finding.rule.replace("_", " "), 1.0))))
    for state in bench.rows:
        plan = state.proposal
        changes = " ".join(f"{key} {value}" for key, value in plan.changes.items())
        row = Row(f"Proposal {plan.rank} · {plan.title}", link(f"proposal:{plan.rank}"), state.status)
        offered.append((row, ((f"proposal {plan.rank} {plan.title} {changes}", 2.0),)))
    yield from _best(said, offered, 1.5)
    strong = " ".join(word for word in said if len(word) > 2 and whole_number(word) is None)
    if not strong or bench.diagnosis.basis != PROFILE:
        return
    found = ops(bench, Filter(words=strong, top=3))
    if found.matching > 1:
        time = f", {quantity(found.time_s, 's')}" if found.time_s else ""
        url = question_url(experiment.pk, "ops", {"words": strong})
        yield Row(f"Ops that match {strong}", url, f"{found.matching} ops{time}", "ops")
    for op in found.rows:
        yield Row(op.name, link(f"op:{op.key}"), str(quantity(op.time_s, "s")) if op.time_s else "")


def _read(experiment: Experiment, bench: Workbench, text: str, words: Sequence[str]) -> Group:
    """Passages and records in which the telling words occur; a note where none is close."""
    said = [word for word in telling(words) if whole_number(word) is None]
    if not said:
        return Group("Read")
    link = link_of(experiment)
    try:
        passages, _ = bench.retrieval.search_knowledge(text[:SEARCHED], "", "", 3)
        records, _ = bench.retrieval.search_history(text[:SEARCHED], 3)
    except (Unavailable, ConfigError):
        return Group("Read")
    rows = [
        Row(item.title, link(f"passage:{item.key}"), f"{item.source} {item.section}".strip())
        for item in passages
        if _close(said, f"{item.title} {item.text}")
    ]
    for record in (item.record for item in records):
        if _close(said, f"{record.title} {record.change} {record.effect}"):
            outcome = str(quantity(record.speedup, "speedup")) if record.speedup else record.outcome.replace("_", " ")
            rows.append(Row(record.title, link(f"record:{record.id}"), outcome))
    return Group("Read", rows, "" if rows else "No passage or record is close to this.")


def _close(words: Sequence[str], text: str) -> bool:
    """Return True if at least half of the words occur in a text."""
    return score(words, (text, 1.0)) >= max(0.5, len(words) / 2)


def _places(membership: Membership, experiment: Experiment | None, words: Sequence[str]) -> Iterator[Row]:
    """Pages and actions of the run and of the product that the words name; those of the run where there are none."""
    offered: list[tuple[Row, str]] = []
    if experiment is not None:
        pk = experiment.pk
        own = [
            ("Diagnosis", "experiment", "findings breakdown roofline ops verdict"),
            ("Timeline", "timeline", "trace steps perfetto"),
            ("Ops", "ops", "operations table modules layers"),
            ("HBM", "hbm", "memory heap peak"),
            ("Proposals", "proposals", "approve review decide reject reviewer"),
            ("Rejected meshes", "rejected", "rules"),
            ("Explore with these values", "explore_experiment", "what if sliders"),
            ("Campaigns", "campaigns", "tuning trials"),
            ("Launch files", "launch", "maxtext megatron start submit"),
            ("Configuration", "configuration", "edit settings yaml"),
            ("Sharding Memory", "memory", "events trace audit"),
            ("Report", "report", "export print markdown"),
        ]
        offered += [(Row(name, reverse(url, args=[pk]), "this run"), more) for name, url, more in own]
        first = experiment.proposals.filter(status="proposed").order_by("-plan_id", "rank").first()
        if first is not None and membership.may(Role.REVIEWER):
            title = f"Approve proposal {first.rank}: {first.title}"
            offered.append((Row(title, first.get_absolute_url(), "asks for a comment"), "approve accept decide"))
    general = [
        ("Home", "home", Role.VIEWER, "start"),
        ("Experiments", "experiments", Role.VIEWER, "runs list"),
        ("Upload", "upload", Role.ENGINEER, "new profile run add"),
        ("Explore", "explore", Role.VIEWER, "model what if"),
        ("History", "history", Role.VIEWER, "records precedents optimisations"),
        ("Knowledge", "knowledge", Role.VIEWER, "passages documents book"),
        ("Accuracy", "accuracy", Role.VIEWER, "errors calibration trust"),
        ("Settings", "settings", Role.VIEWER, "account tokens team"),
        ("Compare two runs", "compare", Role.VIEWER, "before after difference"),
    ]
    offered += [(Row(name, reverse(url), "page"), more) for name, url, role, more in general if membership.may(role)]
    offered.append((Row("Switch between light and dark", "#theme", "action", theme=True), "theme dark light mode"))
    if not words:
        yield from (row for row, _ in offered if experiment is None and not row.theme)
        return
    texts: list[Offered] = [(row, ((row.title, 2.0), (more, 1.0))) for row, more in offered]
    yield from _best(telling(words), texts, 1.0)
    for item in Experiment.objects.filter(team=membership.team, name__icontains=" ".join(words)[:100])[:MOST]:
        yield Row(item.name, reverse("experiment", args=[item.pk]), item.get_state_display().lower())
