"""Records that are like a case, each with what is alike.

Likeness is a sum of plain parts.  Candidates come from indexes (same bottleneck and same move, same chip, same model,
nearest in meaning), so that the number of records does not matter; then every part is computed for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import log2

from django.db.models import Q, QuerySet

from accounts.models import Team
from history import moves
from history.models import HistoryRecord
from history.record import Side
from history.services import words
from history.services.search import visible
from knowledge import retrieval
from knowledge.retrieval import retrieve
from perfmodel.chips import load_chips

#: What each part counts at most; together 1.  The bottleneck and the move decide whether a result carries over, the
#: hardware and the model how far.
WEIGHTS = {"bottleneck": 0.28, "move": 0.28, "hardware": 0.16, "model": 0.12, "scale": 0.08, "meaning": 0.08}
#: Candidates of each kind.
EACH = 40


@dataclass(frozen=True)
class Features:
    """What a case is known by; what is not known stays empty and adds nothing.

    move: of the mesh in doublings by role (`history.moves.move`), for a proposal; changes: kinds of change; roles:
    sizes by role that run now.  text: in words.
    """

    chip: str = ""
    chips: int | None = None
    model_name: str = ""
    model_family: str = ""
    parameters: float | None = None
    bottleneck: str = ""
    move: Mapping[str, float] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    roles: Mapping[str, int] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True)
class Part:
    """One way in which a record is like the case.  points: what it adds, up to its weight; text: for people."""

    name: str
    points: float
    text: str


@dataclass(frozen=True)
class Alike:
    """score: 0-1, the sum of the parts; parts: the largest first, without those that add nothing."""

    record: HistoryRecord
    score: float
    parts: tuple[Part, ...]


def similar(teams: Team | Iterable[int], to: HistoryRecord | Features, k: int = 5) -> tuple[Alike, ...]:
    """The k records that the teams see which are most like a record (without itself) or a case."""
    rows = visible(teams)
    if isinstance(to, HistoryRecord):
        case = replace(_features(to), text=to.title)
        rows = rows.exclude(pk=to.pk)
        found = retrieval.similar(rows, to, k=EACH).hits
    else:
        case = to
        found = retrieve(rows, words.query_words(case.text), k=EACH).hits if case.text else ()
    meaning = {hit.pk: hit.vector.score for hit in found if hit.vector}
    candidates = _candidates(rows, case) | set(meaning) | {hit.pk for hit in found}
    rated = [
        (row.pk, _parts(_features(row), case, meaning.get(row.pk, 0.0)))
        for row in HistoryRecord.objects.filter(pk__in=candidates).only(*_RATED)
    ]
    rated.sort(key=lambda item: (-_score(item[1]), -item[0]))
    best = visible(teams).in_bulk([pk for pk, _ in rated[:k]])
    return tuple(Alike(best[pk], _score(parts), parts) for pk, parts in rated[:k] if pk in best)


#: What likeness is computed from; whole records are loaded only for the best.
_RATED = (
    "chip", "chips", "model_name", "model_family", "parameters", "bottleneck", "changes", "before", "after",
)  # fmt: skip


def _features(row: HistoryRecord) -> Features:
    before, after = moves.role_sizes(Side(**row.before)), moves.role_sizes(Side(**row.after))
    return Features(
        chip=row.chip,
        chips=row.chips,
        model_name=row.model_name,
        model_family=row.model_family,
        parameters=row.parameters,
        bottleneck=row.bottleneck,
        move=moves.doublings(before, after) if before and after else {},
        changes=tuple(row.changes),
        roles=before,
    )


def _score(parts: tuple[Part, ...]) -> float:
    return sum(part.points for part in parts)


def _candidates(rows: QuerySet[HistoryRecord], case: Features) -> set[int]:
    conditions = []
    signs = moves.signs(case.move)
    if signs and case.bottleneck:
        conditions.append(Q(moves__contains=signs, bottleneck=case.bottleneck))
    if signs:
        # Of many records that share a part of the move, those that share all of it or the chip must not be cut off.
        conditions.append(Q(moves__contains=signs))
        conditions.append(Q(moves__overlap=signs))
        if case.chip:
            conditions.append(Q(moves__overlap=signs, chip=case.chip))
    if case.bottleneck and case.chip:
        conditions.append(Q(bottleneck=case.bottleneck, chip=case.chip))
    if case.model_name and case.bottleneck:
        conditions.append(Q(model_name=case.model_name, bottleneck=case.bottleneck))
    if case.model_family and case.chip:
        conditions.append(Q(model_family=case.model_family, chip=case.chip))
    if case.chip and not conditions:
        conditions.append(Q(chip=case.chip))
    return {pk for q in conditions for pk in rows.filter(q).order_by().values_list("pk", flat=True)[:EACH]}


def _parts(theirs: Features, ours: Features, meaning: float) -> tuple[Part, ...]:
    """The ways in which one case is like the other, what counts most first."""
    parts = [
        Part(name, WEIGHTS[name] * share, text)
        for name, (share, text) in {
            "bottleneck": _bottleneck(theirs, ours),
            "move": _move(theirs, ours),
            "hardware": _hardware(theirs, ours),
            "model": _model(theirs, ours),
            "scale": _scale(theirs, ours),
            "meaning": (max(0.0, meaning), f"similar description ({meaning:.2f} of 1)"),
        }.items()
        if share > 0
    ]
    return tuple(sorted(parts, key=lambda part: -part.points))


def _bottleneck(theirs: Features, ours: Features) -> tuple[float, str]:
    same = bool(ours.bottleneck) and theirs.bottleneck == ours.bottleneck
    return (1.0, f"the same bottleneck: {ours.bottleneck}") if same else (0.0, "")


def _move(theirs: Features, ours: Features) -> tuple[float, str]:
    if ours.move:
        aligned = moves.alignment(theirs.move, ours.move)
        shared = [role for role, value in ours.move.items() if value * theirs.move.get(role, 0.0) > 0]
        if aligned <= 0 or not shared:
            return 0.0, ""
        said = ", ".join(f"{role} {'larger' if ours.move[role] > 0 else 'smaller'}" for role in shared)
        return aligned, f"the same mesh change: {said}"
    kinds = [kind for kind in ours.changes if kind in theirs.changes]
    if kinds:
        every = set(ours.changes) | set(theirs.changes)
        return len(kinds) / len(every), f"the same kind of change: {', '.join(k.replace('_', ' ') for k in kinds)}"
    roles = [role for role, size in ours.roles.items() if size > 1 and theirs.roles.get(role, 1) > 1]
    if ours.roles and roles:
        every = {r for sizes in (ours.roles, theirs.roles) for r, size in sizes.items() if size > 1}
        return 0.5 * len(roles) / len(every), f"the same axes in use: {', '.join(roles)}"
    return 0.0, ""


def _hardware(theirs: Features, ours: Features) -> tuple[float, str]:
    if not ours.chip or not theirs.chip:
        return 0.0, ""
    if theirs.chip == ours.chip:
        return 1.0, f"the same chip: {ours.chip}"
    if (kind := words.hardware_kind(ours.chip)) and kind == words.hardware_kind(theirs.chip):
        one, other = load_chips()[theirs.chip.lower()], load_chips()[ours.chip.lower()]
        wired = one.ici_axes == other.ici_axes
        return (
            (0.6, f"{theirs.chip} has the same interconnect as {ours.chip}")
            if wired
            else (0.4, f"also a {kind.upper()}")
        )
    return 0.0, ""


def _model(theirs: Features, ours: Features) -> tuple[float, str]:
    if ours.model_name and theirs.model_name == ours.model_name:
        return 1.0, f"the same model: {ours.model_name}"
    near = 0.0
    if ours.parameters and theirs.parameters:
        near = max(0.0, 1 - abs(log2(theirs.parameters / ours.parameters)) / 3)
    if ours.model_family and theirs.model_family == ours.model_family:
        return 0.5 + 0.4 * near, f"the same family of models: {ours.model_family}"
    return (
        (0.5 * near, f"a model of {theirs.parameters / 1e9:.3g}B parameters") if near and theirs.parameters else (0, "")
    )


def _scale(theirs: Features, ours: Features) -> tuple[float, str]:
    if not ours.chips or not theirs.chips:
        return 0.0, ""
    share = max(0.0, 1 - abs(log2(theirs.chips / ours.chips)) / 4)
    return share, "as many chips" if theirs.chips == ours.chips else f"{theirs.chips:,} chips"
