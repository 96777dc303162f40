"""Store a diagnosis, and read it back: the contract's JSON, and its ops page by page."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.core.paginator import Page, Paginator
from django.db import connection, models, transaction
from django.db.models import Count, F, Func, QuerySet, Sum, Value

from accounts.filters import Filters, SearchFilter, SortFilter, TextFilter
from accounts.models import User
from diagnosis import scopes
from diagnosis.analyzer.report import mark_defaults
from diagnosis.models import DiagnosisRecord, OpRow
from diagnosis.report import DIAGNOSIS, OP, Diagnosis, OpDiagnosis
from experiments.models import Experiment, Run, RunStatus
from experiments.services import configuration, events, profiles, runs
from experiments.step_profile import PROFILE
from formatting.text import clean_json

PAGE_SIZE = 50
MAX_PAGE_SIZE = 500

#: A filter's value that means: none.
NONE = "none"
#: What ops can be summed by.
GROUPS: dict[str, Any] = {name: F(name) for name in ("category", "module", "source", "bound_by", "mesh_axis", "phase")}
GROUPS["scope"] = Func(
    F("scope"), Value(r"\d+"), Value(scopes.ANY_NUMBER), Value("g"), function="REGEXP_REPLACE",
    output_field=models.TextField(),
)  # fmt: skip


class ColumnFilter(TextFilter):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, help_text="Exact match; `none` for ops without it.", strip=False, **options)

    def filter(self, rows: QuerySet[OpRow], value: str) -> QuerySet[OpRow]:
        return rows.filter(**{self.field_name: "" if value == NONE else value}) if value else rows


class OpFilters(Filters):
    q = SearchFilter(
        "name", "path", "source",
        help_text="Words, each in the op's name, framework path or source line; case-insensitive.",
    )  # fmt: skip
    scope = TextFilter(
        method="in_scope",
        strip=False,
        help_text="Beginning of the framework path, `#` for any number; `none` for ops without one.",
    )
    sort = SortFilter(
        {
            "rank": "rank", "name": "name", "category": "category", "time_share": "time_share", "time": "time_s",
            "occurrences": "occurrences", "bound_by": "bound_by", "mesh_axis": "mesh_axis", "resource": "resource",
            "module": "module", "roofline_efficiency": "roofline_efficiency",
        },
        then="rank",
        help_text="default rank",
    )  # fmt: skip

    class Meta:
        model = OpRow
        fields = ("category", "bound_by", "mesh_axis", "resource", "module", "source", "collective", "phase")
        filter_overrides = {kind: {"filter_class": ColumnFilter} for kind in (models.CharField, models.TextField)}

    def in_scope(self, rows: QuerySet[OpRow], name: str, scope: str) -> QuerySet[OpRow]:
        return rows.filter(scope="") if scope == NONE else rows.filter(scope__regex=scopes.pattern(scope))


def axis_text(axis: str | tuple[str, ...] | list[str] | None) -> str:
    """`model`, `data, seq`, `dcn`, or nothing for an op that is no collective."""
    if axis is None:
        return ""
    return axis if isinstance(axis, str) else ", ".join(axis)


def store(run: Run, diagnosis: Diagnosis) -> DiagnosisRecord:
    """Store the run's diagnosis with every op as a row; one that the run already has is replaced."""
    said = _with_defaults(run.experiment_id, diagnosis.report)
    data = DIAGNOSIS.write(replace(diagnosis, ops=(), report=said))
    del data["ops"]
    with transaction.atomic():
        events.lock(run.experiment_id)
        DiagnosisRecord.objects.filter(run=run).delete()
        record = DiagnosisRecord.objects.create(
            team_id=run.team_id,
            run=run,
            bottleneck=diagnosis.bottleneck.primary,
            confidence=diagnosis.bottleneck.confidence,
            data=clean_json(data),
        )
        _copy_rows(record, diagnosis.ops)
        Experiment.objects.filter(pk=run.experiment_id).update(
            bottleneck=diagnosis.bottleneck.primary, step_time_s=diagnosis.kpis.get("step_time_s")
        )
        events.append(
            run.experiment_id,
            "diagnosis",
            "analyzer",
            run=run,
            data=clean_json(
                {
                    "bottleneck": diagnosis.bottleneck.primary,
                    "confidence": diagnosis.bottleneck.confidence,
                    "statement": diagnosis.bottleneck.statement,
                    "findings": [finding.title for finding in diagnosis.findings],
                    "ops": len(diagnosis.ops),
                }
            ),
        )
    return record


def _with_defaults(experiment_id: int, report: dict[str, list[str]]) -> dict[str, list[str]]:
    """The report with what the configuration's file leaves to a default marked as such."""
    experiment = Experiment.objects.get(pk=experiment_id)
    config = configuration.load(experiment)
    if config is None:
        return report
    given = (experiment.config or {}).get("training") or {}
    return mark_defaults(report, config.training, {key for key, value in given.items() if value is not None})


def _copy_rows(record: DiagnosisRecord, ops: tuple[OpDiagnosis, ...]) -> None:
    """COPY: 20,000 rows in about a second where INSERT takes several."""
    if not ops:
        return
    table = connection.ops.quote_name(OpRow._meta.db_table)
    rows = (_row(rank, op) for rank, op in enumerate(ops, start=1))
    first = next(rows)
    columns = ", ".join(connection.ops.quote_name(name) for name in ("diagnosis_id", *first))
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
        for row in itertools.chain([first], rows):
            copy.write_row((record.pk, *row.values()))


def _row(rank: int, op: OpDiagnosis) -> dict[str, Any]:
    """Columns of OpRow but the diagnosis."""
    data = OP.write(op)
    data["time_share"] = data["time_share"] or 0.0
    data = clean_json(data)
    same = ("name", "key", "category", "phase", "time_share", "time_s", "occurrences", "roofline_efficiency")
    return {
        "rank": rank,
        **{name: data[name] for name in same},
        "mesh_axis": axis_text(data["mesh_axis"])[:200],
        "resource": data["resource"][:20],
        "bound_by": (data["bound_by"] or "")[:40],
        "module": data["module"][:100],
        "source": data["source"] or "",
        "path": data["op_name"],
        "scope": scopes.scope(data["op_name"]),
        "collective": data["collective"] or "",
        "data": json.dumps(data),
    }


def state_recording(run: Run, user: User, kind: str, program: str) -> Run:
    """Keep with the run's profile what the engineer states of it (empty: as the profile tells), and diagnose it again.

    Raises RunError if there is nothing to diagnose, or a newer run.
    """
    with transaction.atomic():
        events.lock(run.experiment_id)
        run.refresh_from_db()
        newest_run = runs.newest(run.experiment)
        if newest_run is None or newest_run.pk != run.pk or not run.experiment.config:
            raise runs.RunError("A newer analysis of this experiment has been started, or it has no configuration.")
        value = profiles.load(run.profile)
        if value.basis != PROFILE:
            raise runs.RunError("Nothing was recorded: the run has only a step time.")
        before = {"kind": value.recorded.kind, "program": value.recorded.program}
        if before == {"kind": kind, "program": program}:
            return run
        if RunStatus(run.status).is_working:
            runs.fail(run, "What was recorded was corrected; a new analysis has been started.", actor="user")
        data = {"kind": kind, "program": program, "before": before}
        events.append(run.experiment_id, "recording", "user", run=run, user=user, data=data)
        value = replace(value, recorded=replace(value.recorded, kind=kind, program=program))
        again = runs.start(run.experiment, run.profile, user=user, status=RunStatus.DIAGNOSING)
        profiles.store(again.profile, value, profiles.write(again, value))
        return again


def newest(experiment: Experiment, without: Sequence[str] = ()) -> DiagnosisRecord | None:
    """The diagnosis of the newest run that has one.  without: large fields that the caller does not read."""
    return (
        DiagnosisRecord.objects.select_related("run", "run__profile")
        .defer(*without)
        .filter(run__experiment=experiment)
        .order_by("-run_id")
        .first()
    )


def ops(
    diagnosis: DiagnosisRecord,
    query: Mapping[str, str] | None = None,
    page: int | str | None = 1,
    size: int = PAGE_SIZE,
) -> Page[OpRow]:
    """One page of the ops that match, by rank unless sorted.

    query: of OpFilters; what is invalid is left out.  page: from 1; beyond the last it is the last.
    """
    rows = OpFilters(query, diagnosis.ops.all()).qs
    return Paginator(rows, min(size, MAX_PAGE_SIZE)).get_page(page)


GROUP_SORTS = {"value": "value", "ops": "count", "time": "time_s", "time_share": "share", "occurrences": "occurrences"}


def groups(
    diagnosis: DiagnosisRecord,
    column: str,
    query: Mapping[str, str] | None = None,
    sort: str = "-time_share",
    page: int | str | None = 1,
    size: int = PAGE_SIZE,
) -> Page[dict[str, Any]]:
    """The ops that match, summed by one of GROUPS: {value, count, time_s, share, occurrences}.

    sort: one of GROUP_SORTS, with `-` before it for descending.  Raises ValueError on another column or sort.
    """
    name = sort.removeprefix("-")
    if column not in GROUPS or name not in GROUP_SORTS:
        raise ValueError(f"{column!r} is not a group, or {sort!r} not its order")
    key = {"value": lambda row: row["value"]}.get(name, lambda row: row[GROUP_SORTS[name]] or 0.0)
    rows = OpFilters(query, diagnosis.ops.all()).qs.order_by().values(value=GROUPS[column])
    sums = {"share": Sum("time_share"), "occurrences": Sum("occurrences"), "time_s": Sum("time_s")}
    sorted_groups = sorted(rows.annotate(count=Count("pk"), **sums), key=key, reverse=sort.startswith("-"))
    return Paginator(sorted_groups, size).get_page(page)


def choices(diagnosis: DiagnosisRecord, *columns: str) -> list[list[str]]:
    """For each column the values it has in this diagnosis, sorted; blanks left out."""
    rows = list(OpRow.objects.filter(diagnosis=diagnosis).order_by().values_list(*columns).distinct())
    return [sorted({row[place] for row in rows} - {""}) for place in range(len(columns))]


def contract(record: DiagnosisRecord, top: int = 20) -> dict[str, Any]:
    """The object of `asap diagnose`: what is stored, and the `top` largest ops."""
    return load(record, top).to_json(top)


def load(record: DiagnosisRecord, top: int | None = None) -> Diagnosis:
    """The diagnosis as it was made, with its ops, or the `top` largest of them; without their HLO text, megabytes."""
    rows = OpRow.objects.filter(diagnosis=record).order_by("rank").values_list("data", flat=True)[:top]
    return replace(record.value, ops=tuple(OP.read({**row, "hlo": ""}) for row in rows))


def neighbours(op: OpRow, count: int) -> tuple[list[OpRow], dict[str, str]]:
    """(the largest ops of the same module, the filter that finds them all): its scope, else its module."""
    parent = op.scope.rpartition("/")[0]
    if parent:
        where = {"scope": parent}
    elif op.module:
        where = {"module": op.module}
    else:
        return [], {}
    others = OpFilters(where, OpRow.objects.filter(diagnosis=op.diagnosis_id)).qs.exclude(pk=op.pk)
    return list(others.defer("data")[:count]), where


def ranks_beside(op: OpRow) -> tuple[int | None, int | None]:
    """Ranks of the op before and after it in the list."""
    after = OpRow.objects.filter(diagnosis_id=op.diagnosis_id, rank=op.rank + 1).exists()
    return (op.rank - 1 if op.rank > 1 else None), (op.rank + 1 if after else None)


def crossed(op: OpRow) -> dict[str, float]:
    """What follows from an op's facts: exposed share of its time in flight, spread over cores, bandwidth reached."""
    facts = op.data
    ratios = {}
    if facts.get("in_flight_s") and facts.get("exposed_s") is not None:
        ratios["exposed_share"] = min(1.0, facts["exposed_s"] / facts["in_flight_s"])
    if facts.get("core_max_s") and facts.get("core_min_s"):
        ratios["core_ratio"] = facts["core_max_s"] / facts["core_min_s"]
    if facts.get("achieved_bytes_per_s") and facts.get("possible_bytes_per_s"):
        ratios["wire_share"] = facts["achieved_bytes_per_s"] / facts["possible_bytes_per_s"]
    return ratios
