"""Every page and list of the site as addresses to open, by the name of its route.

`addresses` fills in the rows of one site.  A route without addresses is in `NOT_OPENED`, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, get_resolver

_STREAM, _DOWNLOAD = "a stream", "a download"
_EVENTS = "reads one profile's event file, whatever the site holds: bench/timeline.py"
#: Routes that are no page and no list.
NOT_OPENED = {
    "event_stream": _STREAM, "answer-stream": _STREAM,
    "memory_export": _DOWNLOAD, "experiment-events-jsonl": _DOWNLOAD, "history-export": _DOWNLOAD,
    "history-record-export": _DOWNLOAD, "knowledge-document-file": _DOWNLOAD, "profile-data": _DOWNLOAD,
    "launch-file": _DOWNLOAD,
    "experiments_picked": "leads to the list or to a comparison", "dialogue-panel": "a part of the dialogue",
    "sign-in": "leads home, who is signed in",
    "sign-in-link": "needs a link", "join": "needs an invitation",
    "memory-event": "leads to a page of the memory",
    "history-cited": "leads to a record",
    "progress": "a part of the diagnosis",
    "palette-row": "a part of the palette", "number": "a part of an answer",
    "answer": "a part of the dialogue",
    "plan-request": "a part of the proposals", "consultation": "a part of the proposals",
    "compile-state": "a part of the proposals",
    "asap-report": "a file", "report-file": "for the token of a launch", "launch-bundle": _DOWNLOAD,
    **dict.fromkeys(("launch-detail", "launch-state"), "needs a launch"),
    **dict.fromkeys(
        ("campaign", "campaign-csv", "campaign-difference", "api-campaign-detail",
         "api-campaign-trials"), "needs a campaign",
    ),
    "history-file": "needs an import", "history-import-detail": "needs an import",
    "planrequest-detail": "needs a request", "held-detail": "needs something held",
    "timeline_tile": _EVENTS, "timeline_sums": _EVENTS, "timeline_event": _EVENTS, "timeline_spans": _EVENTS,
    "timeline_export": _DOWNLOAD, "log_archive": _DOWNLOAD,
    "xprof": "starts XProf's server", "xprof_pages": "XProf's own pages",
    "replay-work": "needs the work of a model", "compare_evidence": "a part of the comparison",
}  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """What the addresses name.  experiment: one with approved proposals; long: one with a long history of events."""

    experiment: int
    long: int
    other: int
    profile: int
    other_profile: int
    run: int
    diagnosis: int
    plan: int
    proposal: int
    waiting: int
    measurement: int
    thread: int
    answer: int
    event: int
    record: int
    document: int
    passage: str
    team: int


def rows_of(team: Any) -> Rows:
    """Rows of a team with many experiments."""
    from django.db.models import Count

    from diagnosis.models import DiagnosisRecord
    from dialogue.models import Message, Thread
    from experiments.models import Event, Experiment, Run
    from history.models import HistoryRecord
    from knowledge.models import Document
    from proposals.models import Measurement, Proposal

    ready = Experiment.objects.filter(team=team, state="ready")
    measured = Measurement.objects.filter(team=team).select_related("proposal").order_by("pk")
    measurement = measured[len(measured) // 2]
    one = measurement.proposal
    long = ready.annotate(n=Count("events")).order_by("-n", "pk")[0]
    other = ready.exclude(pk__in=[one.experiment_id, long.pk]).order_by("-pk")[0]
    run = Run.objects.filter(experiment=one.experiment_id, status="ready")[0]
    other_run = Run.objects.filter(experiment=other, status="ready")[0]
    waiting = Proposal.objects.filter(experiment__in=ready, status="approved", measurement=None).order_by("-pk")[0]
    thread = Thread.objects.filter(experiment=one.experiment_id).exclude(messages=None)[0]
    answers = Message.objects.filter(thread=thread, role="assistant")
    document = Document.objects.filter(team=team)[0]
    return Rows(
        one.experiment_id, long.pk, other.pk, run.profile_id, other_run.profile_id, run.pk,
        DiagnosisRecord.objects.get(run=run).pk, one.plan_id, one.pk, waiting.pk, measurement.pk, thread.pk,
        answers[0].pk, Event.objects.filter(experiment=long)[50].pk,
        HistoryRecord.objects.filter(team=team).order_by("pk")[100].pk, document.pk, document.passages.all()[0].key,
        team.pk,
    )  # fmt: skip


def addresses(rows: Rows) -> dict[str, list[str]]:
    """By the name of a route: the page, and the same narrowed, sorted and far into its pages."""
    at, api = f"/experiments/{rows.experiment}", "/api"
    long, one = f"/experiments/{rows.long}", f"experiment={rows.experiment}"
    pair = f"a={rows.profile}&b={rows.other_profile}"
    return {
        "home": ["/"],
        "experiments": [
            "/experiments/", "/experiments/?page=200", "/experiments/?q=sweep+communication", "/experiments/?q=99",
            "/experiments/?sort=name", "/experiments/?sort=-gain&state=review", "/experiments/?sort=step&chip=v5e",
            "/experiments/?state=approved&bottleneck=communication", "/experiments/?col=step&col=measured&col=mfu",
        ],
        "experiments_table": ["/experiments/table.csv?q=99"],
        "jump": ["/jump/?q=sweep", "/jump/?q=nothing+of+that+name"],
        "explore": ["/explore/"],
        "explore_experiment": [f"{at}/explore/"],
        "model_settings": ["/settings/model/"],
        "audit": ["/settings/audit/"],
        "api-audit-list": ["/api/audit/"],
        "audit-export": ["/settings/audit/csv/"],
        "accuracy": ["/accuracy/"],
        "settings": ["/settings/"],
        "password": ["/settings/password/"],
        "knowledge": ["/knowledge/", "/knowledge/?q=all-gather+overlap", "/knowledge/?page=20"],
        "knowledge-passage": [f"/knowledge/passages/{rows.passage}/"],
        "knowledge-documents": ["/knowledge/documents/"],
        "knowledge-document": [f"/knowledge/documents/{rows.document}/"],
        "knowledge-document-delete": [f"/knowledge/documents/{rows.document}/delete/"],
        "upload": ["/experiments/new/"],
        "start_from_step_time": ["/experiments/new/step-time/"],
        "configuration": [f"{at}/configuration/"],
        "delete_experiment": [f"{at}/delete/"],
        "memory": [
            f"{at}/memory/", f"{long}/memory/", f"{long}/memory/?end=1", f"{long}/memory/?kind=tool",
            f"{long}/memory/?q=fusion", f"{long}/memory/?q=nothing", f"{long}/memory/?at={rows.event}",
            f"{long}/memory/?q=all+gather+hbm&end=1",
        ],
        "memory-event-data": [f"{long}/memory/{rows.event}/data/"],
        "compare": ["/compare/", f"/compare/?{pair}"],
        "compare_ops": [f"/compare/ops/?{pair}"],
        "experiment": [f"{at}/", f"{long}/"],
        "ops": [f"{at}/ops/", f"{at}/ops/?q=fusion&sort=name", f"{at}/ops/?group=module"],
        "op": [f"{at}/ops/3/"],
        "timeline": [f"{at}/timeline/"],
        "hbm": [f"{at}/hbm/"],
        "report": [f"{at}/report/"],
        "report_markdown": [f"{at}/report.md"],
        "report_json": [f"{at}/report.json"],
        "evidence": [f"{at}/evidence/kpi-communication/"],
        "history": [
            "/history/", "/history/?q=communication-bound+llama+on+v5e", "/history/?chip=v5e&outcome=failed",
            "/history/?model=llama3.1-70b", "/history/?q=remat&chip=h100",
        ],
        "history-record": [f"/history/{rows.record}/"],
        "history-delete": [f"/history/{rows.record}/delete/"],
        "history-import": ["/history/import/"],
        "history-waiting": ["/history/waiting/"],
        "proposals": [f"{at}/proposals/", f"{long}/proposals/"],
        "rejected": [f"{at}/proposals/rejected/"],
        "own-mesh": [f"/plans/{rows.plan}/own/"],
        "launch": [f"{at}/launch/"],
        "launch-proposal": [f"/proposals/{rows.proposal}/launch/"],
        "launches": [f"/proposals/{rows.waiting}/launches/"],
        "launch-list": [f"{api}/launches/"],
        "launch-settings": ["/settings/launching/"],
        "campaigns": [f"{at}/campaigns/"],
        "api-campaign-list": [f"{api}/campaigns/"],
        "upload-measured": [f"/proposals/{rows.waiting}/upload/"],
        "step-time-measured": [f"/proposals/{rows.waiting}/step-time/"],
        "measurements": ["/measurements/", "/measurements/?page=20"],
        "dialogue": [f"{at}/dialogue/", f"{long}/dialogue/"],
        "palette": [f"{at}/compute/", f"{at}/compute/?q=memory"],
        "computation": [f"{at}/compute/verdict/"],
        "api-tools": [f"{api}/tools/"],
        "dialogue-thread": [f"{at}/dialogue/{rows.thread}/"],
        "replay": [f"{at}/replay/{rows.answer}/"],
        "thread-list": [f"{api}/threads/?{one}", f"{api}/threads/"],
        "thread-detail": [f"{api}/threads/{rows.thread}/"],
        "thread-messages": [f"{api}/threads/{rows.thread}/messages/"],
        "message-detail": [f"{api}/answers/{rows.answer}/"],
        "held-list": [f"{api}/held/"],
        "api-me": [f"{api}/me/"],
        "api-tokens": [f"{api}/tokens/"],
        "api-reviews": [f"{api}/reviews/", f"{api}/reviews/?offset=1000", f"{api}/reviews/?{one}"],
        "history-record-list": [
            f"{api}/history/records/", f"{api}/history/records/?q=remat", f"{api}/history/records/?offset=5000",
        ],
        "history-record-detail": [f"{api}/history/records/{rows.record}/"],
        "history-record-similar": [f"{api}/history/records/{rows.record}/similar/"],
        "history-import-list": [f"{api}/history/imports/"],
        "api-knowledge-search": [f"{api}/knowledge/search/?q=all-gather+overlap"],
        "knowledge-passages-list": [f"{api}/knowledge/passages/", f"{api}/knowledge/passages/?offset=1000"],
        "knowledge-passages-detail": [f"{api}/knowledge/passages/{rows.passage}/"],
        "knowledge-documents-list": [f"{api}/knowledge/documents/"],
        "knowledge-documents-detail": [f"{api}/knowledge/documents/{rows.document}/"],
        "api-compare": [f"{api}/compare/?{pair}"],
        "api-schema": [f"{api}/schema/"],
        "api-docs": [f"{api}/docs/"],
        "api-root": [f"{api}/"],
        "experiment-list": [
            f"{api}/experiments/", f"{api}/experiments/?offset=5000",
            f"{api}/experiments/?q=sweep&ordering=-best_speedup", f"{api}/experiments/?state=failed&chip=v5e",
        ],
        "experiment-detail": [f"{api}/experiments/{rows.experiment}/"],
        "experiment-configuration": [f"{api}/experiments/{rows.experiment}/configuration/"],
        "experiment-events": [
            f"{api}/experiments/{rows.experiment}/events/",
            f"{api}/experiments/{rows.long}/events/?after={rows.event}&limit=100",
        ],
        "profile-list": [f"{api}/profiles/", f"{api}/profiles/?{one}", f"{api}/profiles/?offset=5000"],
        "profile-detail": [f"{api}/profiles/{rows.profile}/"],
        "run-list": [f"{api}/runs/", f"{api}/runs/?{one}", f"{api}/runs/?offset=5000"],
        "run-detail": [f"{api}/runs/{rows.run}/"],
        "diagnosisrecord-list": [f"{api}/diagnoses/", f"{api}/diagnoses/?{one}", f"{api}/diagnoses/?offset=5000"],
        "diagnosisrecord-detail": [f"{api}/diagnoses/{rows.diagnosis}/"],
        "diagnosisrecord-ops": [f"{api}/diagnoses/{rows.diagnosis}/ops/?sort=-time_share&q=fusion"],
        "planrecord-list": [f"{api}/plans/", f"{api}/plans/?{one}", f"{api}/plans/?offset=5000"],
        "planrecord-detail": [f"{api}/plans/{rows.plan}/"],
        "api-plan-compilations": [f"{api}/plans/{rows.plan}/compilations/"],
        "planrequest-list": [f"{api}/plan-requests/"],
        "proposal-list": [
            f"{api}/proposals/", f"{api}/proposals/?{one}", f"{api}/proposals/?status=approved",
            f"{api}/proposals/?offset=10000",
        ],
        "proposal-detail": [f"{api}/proposals/{rows.proposal}/"],
        "proposal-launch": [f"{api}/proposals/{rows.proposal}/launch/"],
        "measurement-list": [f"{api}/measurements/", f"{api}/measurements/?offset=1000"],
        "measurement-summary": [f"{api}/measurements/summary/"],
        "measurement-detail": [f"{api}/measurements/{rows.measurement}/"],
    }  # fmt: skip


def opened_by_get() -> list[str]:
    """The names of all routes of the resolver that answer a GET, as their views say."""
    names = []

    def walk(patterns: Any) -> None:
        for pattern in patterns:
            if not isinstance(pattern, URLPattern):
                walk(pattern.url_patterns)
            elif _reads(pattern.callback):
                names.append(str(pattern.name))

    walk(get_resolver().url_patterns)
    return names


def _reads(view: Any) -> bool:
    actions = getattr(view, "actions", None)
    if actions is not None:
        return "get" in actions
    if (cls := getattr(view, "cls", None)) is not None:
        return hasattr(cls, "get")
    return _takes_get(view)


def _takes_get(view: Any) -> bool:
    """Whether a function view answers GET: Django's decorators hold the methods that they let through."""
    while view is not None:
        closure = getattr(view, "__closure__", None) or ()
        for cell in closure:
            value = cell.cell_contents
            if isinstance(value, list) and value and all(isinstance(item, str) and item.isupper() for item in value):
                return "GET" in value
        view = getattr(view, "__wrapped__", None)
    return True
