"""The workbench of a stored run, and what its team may see around it.  Everything here reads; nothing writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser

from accounts.models import Role
from accounts.permissions import check
from diagnosis import comparing
from diagnosis import services as diagnosis_services
from diagnosis.compare.comparison import Comparison
from diagnosis.models import DiagnosisRecord
from experiments.models import Experiment, RunStatus
from experiments.services import profiles
from formatting.text import clean
from history.case import Case
from history.models import HistoryRecord
from history.record import Record
from history.services import search, similar
from history.services.store import to_record
from knowledge.services import search as knowledge
from perfmodel.config import ConfigError
from proposals.agents.retrieval import RecordFound, Unavailable, passage_row
from proposals.agents.tool_result import Result, about, taken
from proposals.agents.workbench import ProposalState, Workbench
from proposals.models import PlanRecord
from proposals.services import compiling, context, plans

#: What reads the launches of an experiment's proposals; `launches.services.found`, a layer above, adds it.
LAUNCHES: list[Callable[[Experiment], Sequence[Result]]] = []


def workbench(experiment: Experiment, user: AbstractBaseUser | None, plan: PlanRecord | None = None) -> Workbench:
    """The workbench of an experiment for a member of its team.  user: None for the system's own work.

    plan: default the newest; without one, the newest run that has a diagnosis.  What is large is read once per process;
    what stands is read each time.  Raises Unavailable where nothing was diagnosed yet or its data is gone,
    Http404 for an outsider.
    """
    if user is not None:
        check(user, experiment, Role.VIEWER)
    plan = plan or plans.newest(experiment)
    diagnosed = diagnosis_services.newest(experiment) if plan is None else None
    if plan is None and diagnosed is None:
        missing = "confirm its configuration" if experiment.state == RunStatus.CONFIGURING else "wait for its analysis"
        raise Unavailable(f"This experiment has no diagnosis yet; {missing}, or upload a profile.")
    retrieval = StoredRetrieval(experiment)
    try:
        if plan is None:
            assert diagnosed is not None
            bare = context.of_run(diagnosed.run, experiment.config)
            return Workbench(bare.profile, bare.config, bare.diagnosis, retrieval)
        read = context.of_plan(plan)
        pricer = context.pricer(plan) if not read.diagnosis.not_modelled else None
    except (ConfigError, profiles.NotIngested) as error:
        raise Unavailable(str(error)) from error
    compiled = {key: made.value for key, made in compiling.of_plan(plan).items()}
    standing = tuple(
        ProposalState(row.value, row.status, row.pk, compiled.get(row.pk)) for row in plan.proposals.order_by("rank")
    )
    return Workbench(
        read.profile,
        read.config,
        read.diagnosis,
        retrieval,
        plan.asked,
        stored=replace(plan.value, proposals=tuple(item.proposal for item in standing)),
        rows=standing,
        precedents=pricer.precedents if pricer else None,
        confidence=pricer.confidence if pricer else None,
        shared_pricer=pricer,
        compiled=compiled.get(None),
    )


class StoredRetrieval:
    """`Retrieval` of an experiment, within its team."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment, self._team = experiment, experiment.team

    def search_history(
        self, query: str, k: int, bottleneck: str = "", chip: str = "", outcome: str = ""
    ) -> tuple[Sequence[RecordFound], Sequence[str]]:
        query = clean(query).strip()
        asked = {"q": query, "bottleneck": bottleneck, "chip": chip, "outcome": outcome, "size": k}
        page = search.page(search.filtered(self._team, asked))
        whole = self._records([item.record.pk for item in page.rows])
        records = []
        for item in page.rows:
            why = () if item.hit is None or not item.hit.matched else (f"words: {', '.join(item.hit.matched)}",)
            records.append(RecordFound(whole[item.record.pk], why))
        return records, page.notes

    def similar_records(self, case: Case, k: int) -> Sequence[RecordFound]:
        return [
            RecordFound(to_record(item.record), (item.reason,), item.expected)
            for item in similar.similar(self._team, case, k)
        ]

    def record(self, id: str) -> Record | None:
        row = search.of_key(self._team, clean(id))
        return self._records([row.pk])[row.pk] if row is not None else None

    def _records(self, pks: Sequence[int]) -> dict[int, Record]:
        rows = HistoryRecord.objects.filter(pk__in=pks).defer("embedding", "search")
        return {row.pk: to_record(row) for row in rows}

    def search_knowledge(
        self, query: str, hardware: str, bottleneck: str, k: int
    ) -> tuple[Sequence[Result], Sequence[str]]:
        answer = knowledge.search(self._team, clean(query), k, hardware=hardware, bottleneck=clean(bottleneck))
        return [_passage(item.passage) for item in answer.found], answer.notes

    def passage(self, key: str) -> Result | None:
        stored_passage = knowledge.passage([self._team.pk], clean(key))
        return _passage(stored_passage) if stored_passage is not None else None

    def experiments(self, text: str, k: int) -> Sequence[Result]:
        diagnosed = DiagnosisRecord.objects.filter(team=self._team).values("run__experiment_id")
        peers = Experiment.objects.filter(team=self._team, pk__in=diagnosed).exclude(pk=self._experiment.pk)
        if text := clean(text).strip():
            peers = peers.filter(name__icontains=text)
        return [
            taken(item, "name chip bottleneck step_time_s", id=item.pk,
                  _about=about("measured", item.name, f"experiment:{item.pk}"))
            for item in peers.order_by("-pk")[:k]
        ]  # fmt: skip

    def compare(self, other: int) -> Comparison:
        experiment = Experiment.objects.filter(team=self._team, pk=other).first() if 0 < other < 2**63 else None
        before = diagnosis_services.newest(experiment) if experiment is not None else None
        if before is None:
            raise Unavailable(f"There is no diagnosed experiment {other} in this team; `compare` lists what there is.")
        after = diagnosis_services.newest(self._experiment)
        if after is None:
            raise Unavailable("This experiment has no diagnosis yet.")
        return comparing.full(before, after)

    def launches(self) -> Sequence[Result]:
        return [item for read in LAUNCHES for item in read(self._experiment)]


def _passage(row: Any) -> Result:
    source = row.source or row.document.source or row.document.title
    return passage_row(row, row.key, source, own=row.team_id is not None)
