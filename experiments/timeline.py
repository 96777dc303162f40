"""The Sharding Memory as a list: which events, a page of them, and what they can be narrowed to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import BooleanField, Case, Count, F, Func, Max, Min, Q, QuerySet, Sum, TextField, Value, When
from django.db.models.functions import Left
from django_filters import ChoiceFilter

from accounts.filters import Filters, TextFilter
from experiments import event_text
from experiments.event_words import ACTORS, Line, describe
from experiments.fields import OrderedJSONField
from experiments.models import Event, Experiment, RunStatus
from formatting.numbers import whole_number

PAGE_SIZE = 100
#: Events before the one that an address names.
BEFORE_NAMED = 20
#: Conversations, runs and models to choose from.
MOST_CHOICES = 100
_LARGEST = 2**63 - 1

#: Filter chips of the page: key, word, kinds.
GROUPS = (
    ("user", "User", ("upload", "config", "recording", "review", "constraints", "message", "campaign")),
    ("status", "Status", ("status", "progress", "error", "retention")),
    ("tool", "Tools", ("tool_call", "tool_result")),
    ("model", "Model", ("model_request", "model_response", "complaint", "retry", "stopped", "final")),
    ("result", "Results", ("diagnosis", "proposal", "launch", "measurement")),
)
_KINDS = {key: kinds for key, _, kinds in GROUPS}


class EventFilters(Filters):
    """kind: key of a group.  q: words, each of which an event must hold, or one that begins so."""

    kind = ChoiceFilter(choices=[(key, word) for key, word, _ in GROUPS], method="in_group")
    agent = TextFilter("actor")
    q = TextFilter(method="with_words", max_length=300)

    class Meta:
        model = Event
        fields = ("thread", "run", "model")

    def in_group(self, rows: QuerySet[Event], name: str, kind: str) -> QuerySet[Event]:
        return rows.filter(kind__in=_KINDS[kind])

    def with_words(self, rows: QuerySet[Event], name: str, text: str) -> QuerySet[Event]:
        wanted = [f"'{word}':*" for word in event_text.split(text)]
        if not wanted:
            return rows.none()
        return rows.filter(
            Func(
                F("words"), Value(" & ".join(wanted)),
                template="(%(expressions)s::tsquery)", arg_joiner=" @@ ", output_field=BooleanField(),
            )
        )  # fmt: skip


def found(experiment: Experiment, query: Mapping[str, str]) -> EventFilters:
    """The experiment's events, oldest first, that match an address."""
    return EventFilters(query, experiment.events.order_by("pk"))


@dataclass(frozen=True)
class Page:
    """A page of the list.  start, end: of these events among all that match, from 1; earlier, later: the `before` and
    `after` of the pages beside it, None at the ends."""

    lines: list[Line]
    start: int
    end: int
    total: int
    earlier: int | None
    later: int | None


def page(experiment: Experiment, filters: EventFilters, query: Mapping[str, str]) -> Page:
    """The page that an address names: `after` or `before` an event, the one that holds the event `at`, the `end`.

    Walks the index from there, so that a page far into a long history costs no more than the first.
    """
    every = filters.qs
    rows = _light(every)
    at, before, after = (whole_number(query.get(name, "")) for name in ("at", "before", "after"))
    if query.get("end"):
        before = _LARGEST
    if at is not None:
        ahead = list(rows.filter(pk__lt=at).order_by("-pk")[:BEFORE_NAMED])[::-1]
        events = ahead + list(rows.filter(pk__gte=at)[: PAGE_SIZE - len(ahead)])
    elif before is not None:
        events = list(rows.filter(pk__lt=before).order_by("-pk")[:PAGE_SIZE])[::-1]
    else:
        events = list(rows.filter(pk__gt=after or 0)[:PAGE_SIZE])
    total = every.count()
    if not events:
        return Page([], 0, 0, total, None, None)
    skipped = 0 if at is before is after is None else every.filter(pk__lt=events[0].pk).count()
    end = skipped + len(events)
    return Page(
        _described(events, experiment),
        skipped + 1,
        end,
        total,
        events[0].pk if skipped else None,
        events[-1].pk if end < total else None,
    )


def _light(rows: QuerySet[Event]) -> QuerySet[Event]:
    """With the users, and with the data only where there is no brief that says what a list shows."""
    small = Case(When(brief__isnull=True, then=F("data")), default=None, output_field=OrderedJSONField())
    return rows.select_related("user").defer("data", "words").annotate(small=small)


def _described(events: Iterable[Event], experiment: Experiment) -> list[Line]:
    lines = []
    for event in events:
        if event.brief is None:
            event.data = event.small  # type: ignore[attr-defined]
        lines.append(describe(event, experiment))
    return lines


@dataclass(frozen=True)
class Summary:
    """What an experiment's events come to.

    groups: key, word and count of the groups that have events, first of all `All`.  agents, models: those that did
    something, with words.  calls_refused: tool calls that were refused or failed.  cost_usd: None where no price is
    known.
    """

    events: int
    groups: list[tuple[str, str, int]]
    agents: list[tuple[str, str]]
    models: list[str]
    tool_calls: int
    complaints: int
    tokens: int
    cost_usd: float | None


def summary(experiment: Experiment) -> Summary:
    """One look at all events, without their data."""
    rows = list(
        experiment.events.order_by()
        .values_list("kind", "actor", "model")
        .annotate(n=Count("pk"), spent=Sum("tokens"), cost=Sum("cost_usd"))
    )
    counts: Counter[str] = Counter()
    for kind, _, _, n, _, _ in rows:
        counts[kind] += n
    named = [(key, word, sum(counts[kind] for kind in kinds)) for key, word, kinds in GROUPS]
    costs = [cost for *_, cost in rows if cost is not None]
    return Summary(
        events=counts.total(),
        groups=[("", "All", counts.total()), *(row for row in named if row[2])],
        agents=[(actor, ACTORS.get(actor, actor).capitalize()) for actor in sorted({row[1] for row in rows})],
        models=sorted({row[2] for row in rows if row[2]})[:MOST_CHOICES],
        tool_calls=counts["tool_call"],
        complaints=counts["complaint"],
        tokens=sum(spent or 0 for *_, spent, _ in rows),
        cost_usd=sum(costs) if costs else None,
    )


def threads(experiment: Experiment) -> list[tuple[int, str]]:
    """The conversations that left events, newest first: key, and what it was called last, else its first question."""
    rows = experiment.events.filter(kind="message", thread__isnull=False).order_by("pk")
    names: dict[int, str] = {}
    for thread, text, renamed in rows.values_list("thread", Left(_text("text"), 60), Left(_text("renamed"), 60)):
        if renamed or not names.get(thread):
            names[thread] = renamed or text or ""
    newest = sorted(names.items(), reverse=True)[:MOST_CHOICES]
    return [(key, f"{key}: {event_text.cut(name, 48)}" if name else str(key)) for key, name in newest]


def _text(key: str) -> Func:
    return Func(F("data"), Value(key), function="json_extract_path_text", output_field=TextField())


def took(experiment: Experiment) -> tuple[int, float | None]:
    """How many runs there are, and the seconds that the newest one took from its first event; None while it runs."""
    run = experiment.runs.order_by("-pk").first()
    if run is None:
        return 0, None
    ended = Max("created_at", filter=Q(kind="status", data__to=RunStatus.READY))
    span = run.events.filter(kind__in=("status", "upload")).aggregate(first=Min("created_at"), last=ended)
    seconds = (span["last"] - span["first"]).total_seconds() if span["last"] else None
    return experiment.runs.count(), seconds
