"""Whether everything that was accepted is done once or failed with a reason.  Reads the database; knows no request."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

from django.db.models import Count, QuerySet

from bench.faults.work import Ledger
from diagnosis.models import DiagnosisRecord
from dialogue.models import Message
from experiments.models import Event, Experiment, ProfileFile, Run, RunStatus
from experiments.services import leftovers, storage
from history.models import HistoryRecord, RecordImport
from knowledge.models import Document, Passage, State
from proposals.models import PlanRecord, PlanRequest, Proposal

#: Statuses in which a row is done, by kind.
WORKING_RUN = [status for status in RunStatus if status.is_working]


def still_open() -> dict[str, int]:
    """What is not done yet, by kind."""
    counts = {
        "runs": Run.objects.filter(status__in=WORKING_RUN).count(),
        "answers": Message.objects.filter(status__in=["queued", "answering"]).count(),
        "plan requests": PlanRequest.objects.filter(status__in=["queued", "working"]).count(),
        "documents": Document.objects.filter(state=State.READING).count(),
    }
    return {kind: count for kind, count in counts.items() if count}


def results(ledger: Ledger) -> dict[str, Counter[str]]:
    """How what was accepted ended, by kind."""
    return {
        "uploads": Counter(Experiment.objects.filter(pk__in=ledger.uploads).values_list("state", flat=True)),
        "answers": Counter(Message.objects.filter(pk__in=ledger.answers).values_list("status", flat=True)),
        "plan requests": Counter(PlanRequest.objects.filter(pk__in=ledger.requests).values_list("status", flat=True)),
        "documents": Counter(Document.objects.filter(pk__in=ledger.documents).values_list("state", flat=True)),
        "imports": Counter(imported=RecordImport.objects.filter(pk__in=ledger.imports).count()),
    }


def reasons() -> Counter[str]:
    """Why what failed did."""
    counts: Counter[str] = Counter(Run.objects.filter(status="failed").values_list("reason", flat=True))
    counts.update(Message.objects.filter(status="failed").values_list("note", flat=True))
    counts.update(PlanRequest.objects.filter(status="failed").values_list("reason", flat=True))
    counts.update(Document.objects.filter(state=State.FAILED).values_list("error", flat=True))
    return counts


def broken(ledger: Ledger) -> list[str]:
    """Everything that does not hold, one sentence each."""
    return [
        *_lost(ledger), *_without_reason(), *_runs(), *_answers(), *_requests(), *_documents(ledger), *_imports(ledger),
        *_events(ledger), *_files(),
    ]  # fmt: skip


def _lost(ledger: Ledger) -> Iterator[str]:
    kinds: dict[str, tuple[Any, QuerySet[Any]]] = {
        "upload": (ledger.uploads, Experiment.objects.all()),
        "answer": (ledger.answers, Message.objects.all()),
        "plan request": (ledger.requests, PlanRequest.objects.all()),
        "document": (ledger.documents, Document.objects.all()),
        "import": (ledger.imports, RecordImport.objects.all()),
    }
    for kind, (accepted, rows) in kinds.items():
        if missing := set(accepted) - set(rows.values_list("pk", flat=True)):
            yield f"{kind}s were accepted and are gone: {sorted(missing)}"
    for name, count in Counter(Experiment.objects.values_list("name", flat=True)).items():
        if count > 1 and name.startswith("upload "):
            yield f"{name} is there {count} times"


def _without_reason() -> Iterator[str]:
    if silent := [reason for reason in reasons() if len(reason) < 20]:
        yield f"failed without a reason: {silent}"


def _runs() -> Iterator[str]:
    for run in Run.objects.all():
        moves = [e.data for e in Event.objects.filter(run=run, kind="status").order_by("pk")]
        if any(move["from"] != before["to"] for before, move in pairwise(moves)):
            yield f"run {run.pk} moved {[move['to'] for move in moves]}: a step is missing or there twice"
        if not moves or moves[-1]["to"] != run.status:
            yield f"run {run.pk} is {run.status}, and its Events do not say so"
        if run.status != RunStatus.READY:
            continue
        if (count := DiagnosisRecord.objects.filter(run=run).count()) != 1:
            yield f"run {run.pk} has {count} diagnoses"
        made = PlanRequest.objects.filter(run=run, status="done").count()
        if (count := PlanRecord.objects.filter(run=run).count()) != 1 + made:
            yield f"run {run.pk} has {count} plans, and {made} were asked for beside the first"
    for plan in PlanRecord.objects.all():
        ranks = list(Proposal.objects.filter(plan=plan).order_by("rank").values_list("rank", flat=True))
        if ranks != list(range(1, len(ranks) + 1)) or not ranks:
            yield f"plan {plan.pk} has the proposals {ranks}"


def _answers() -> Iterator[str]:
    for row in Message.objects.filter(role=Message.Role.ASSISTANT).values("question").annotate(n=Count("pk")):
        if row["n"] != 1:
            yield f"question {row['question']} has {row['n']} answers"
    for answer in Message.objects.filter(role=Message.Role.ASSISTANT, status="done"):
        if not answer.text.strip():
            yield f"answer {answer.pk} is done and empty"
        if any(step.get("ok") is None for step in answer.steps):
            yield f"answer {answer.pk} is done with a step that is not"


def _requests() -> Iterator[str]:
    done = PlanRequest.objects.filter(status="done")
    plans = Counter(done.values_list("plan_id", flat=True))
    if None in plans or any(count > 1 for count in plans.values()):
        yield f"plan requests are done without a plan of their own: {plans}"


def _documents(ledger: Ledger) -> Iterator[str]:
    ready = Document.objects.filter(pk__in=ledger.documents, state=State.READY)
    counts = Counter(Passage.objects.filter(document__in=ready).values_list("document", flat=True))
    if len(set(counts.values())) > 1 or (ready and not counts):
        yield f"documents of one shape have different numbers of passages: {dict(counts)}"


def _imports(ledger: Ledger) -> Iterator[str]:
    titles = Counter(HistoryRecord.objects.filter(title__startswith="faults-").values_list("title", flat=True))
    if twice := [title for title, count in titles.items() if count > 1]:
        yield f"records are there twice: {twice}"
    imported = RecordImport.objects.filter(pk__in=ledger.imports).values_list("pk", flat=True)
    if missing := [key for pk in imported for key in ledger.imports[pk] if key not in titles]:
        yield f"records were imported and are not there: {missing}"


def _events(ledger: Ledger) -> Iterator[str]:
    for key, seen in ledger.seen.items():
        there = list(Event.objects.filter(experiment=key).order_by("pk").values_list("pk", flat=True))
        if seen != there:
            missed = sorted(set(there) - set(seen))
            yield f"a follower of experiment {key} got {len(seen)} of {len(there)} Events, without {missed[:5]}"


def _files() -> Iterator[str]:
    for file in ProfileFile.objects.all():
        path = storage.absolute(file.path)
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:
            yield f"the file {file.path} is not what was uploaded"
    if missing := [path for path in leftovers.named() if not storage.absolute(path).is_file()]:
        yield f"files are named and not there: {missing}"
    leftovers.remove(timedelta(0))
    if left := leftovers.find(timedelta(0)):
        yield f"files that nothing names stay: {left}"
    if left := list(storage.absolute("profiles").glob("*.part*")):
        yield f"part-written files stay: {left}"
