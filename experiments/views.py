"""Pages of experiments: upload, configuration and progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from accounts.models import Role, Team
from accounts.pages import refusals_as_messages
from accounts.permissions import MemberRequest, require
from experiments import config_form
from experiments.consistency import Contradiction, Mark, Prefilled, as_table
from experiments.models import Experiment, RunStatus
from experiments.pages import ExperimentPage, experiment_page
from experiments.progress import PROGRESS_EVENTS, steps_of
from experiments.services import against_profile, deleting, runs, uploads
from experiments.services import configuration as configurations
from formatting.numbers import whole_number
from perfmodel.catalogue import model_names
from perfmodel.chips import load_chips
from perfmodel.config import ROLES

#: As `use`: every field that the profile contradicts.
ALL = "*"


def form_context(
    data: Any,
    errors: dict[str, str] | None = None,
    prefilled: Mapping[str, Mark] | None = None,
    against: Iterable[Contradiction] = (),
    kept: Collection[str] = (),
) -> dict[str, Any]:
    """What the configuration form shows for a configuration, complete or not.

    prefilled: dotted fields that hold what the profile tells.  against: what it contradicts; kept: of these, the fields
    that the user keeps.
    """
    items = tuple(against)
    placed = config_form.errors_by_slot(errors or {})
    product = config_form.product_check(data or {})
    if product is not None and product["ok"] is False and "mesh-ici" in placed:
        placed["mesh-ici"], product["hint"] = product["hint"], ""  # the product is shown next to it already
    return {
        "fields": config_form.fields_from(data),
        "errors": placed,
        "preview": config_form.pretty(data or {}),
        "product": product,
        "chips": list(load_chips()),
        "models": model_names(),
        "roles": ROLES,
        "form": config_form,
        "frameworks": config_form.frameworks(),
        "framework_offered": config_form.is_offered(str(config_form.fields_from(data)["framework"])),
        "priced_as": config_form.priced_as(data or {}),
        "prefilled": {config_form.slot_of(field): mark for field, mark in (prefilled or {}).items()},
        "against": config_form.by_slot(items, config_form.fields_from(data)["model"] != config_form.CUSTOM),
        "against_kept": {item.field for item in items if item.field in kept},
        "against_open": [item for item in items if item.field not in kept],
    }


@require(Role.ENGINEER, "GET", "POST")
def upload(request: MemberRequest) -> HttpResponse:
    """The upload page; a POST stores the files and leads to the experiment."""
    team = request.membership.team
    if request.method == "POST":
        return receive(request, team)
    return upload_page(request, samples=Experiment.objects.filter(team=team).exclude(sample="").order_by("pk"))


def upload_page(request: MemberRequest, status: int = 200, **context: Any) -> HttpResponse:
    context = {"here": "upload", "limit_bytes": uploads.limit_bytes(), **form_context(None), **context}
    return render(request, "experiments/upload.html", context, status=status)


def receive(
    request: MemberRequest, team: Team, received: Callable[[Experiment], None] | None = None, **context: Any
) -> HttpResponse:
    """Store what was uploaded, call `received` with its experiment, and lead there: 303, or JSON for the page's script.

    Refused, the page says why, with what was typed.
    """
    wants_json = request.headers.get("Accept") == "application/json"
    text = config_text(request)
    try:
        experiment = uploads.receive(
            team, request.user, request.FILES.getlist("files"), config_text=text, name=request.POST.get("name", "")
        )
    except uploads.UploadError as error:
        status = 422 if error.status == 400 else error.status
        if wants_json:
            return JsonResponse({"error": str(error)}, status=status)
        context |= {"upload_error": str(error), "config_text": text or "", "way": request.POST.get("config_way", "")}
        return upload_page(request, status, **form_context(config_form.data_from(request.POST)), **context)
    if received is not None:
        received(experiment)
    address = reverse("experiment", args=[experiment.pk])
    return JsonResponse({"location": address}) if wants_json else HttpResponseRedirect(address)


def config_text(request: MemberRequest) -> str | None:
    """The configuration in the way the user chose to give it; None to fill it in after the profile was read."""
    way = request.POST.get("config_way", "later")
    if way == "form":
        return json.dumps(config_form.data_from(request.POST))
    if way == "file":
        file = request.FILES.get("config_file")
        if file is not None:
            return file.read(configurations.MAX_TEXT_BYTES + 1).decode("utf-8", "replace")
        return request.POST.get("config_text", "") or None
    return None


def posted(request: MemberRequest, base: Mapping[str, Any] | None) -> configurations.Checked:
    """The configuration of a file, its text or the form.  base: gives the keys that the form does not show."""
    if request.POST.get("config_way") == "file":
        return configurations.read_text(config_text(request) or "")
    return configurations.check(config_form.data_from(request.POST, base))


@require(Role.VIEWER, "POST")
def check_configuration(request: MemberRequest) -> HttpResponse:
    """Errors of the form, field by field; stores nothing."""
    base, experiment = None, None
    if (pk := whole_number(request.POST.get("experiment", ""))) is not None:
        experiment = experiment_page(request, pk).experiment
        base = experiment.config or experiment.config_draft
    data = config_form.data_from(request.POST, base)
    no_profile = bool(request.POST.get("without_profile"))
    checked = configurations.check_without_profile(data) if no_profile else configurations.check(data)
    if experiment is not None and not no_profile:
        checked = configurations.against(experiment, checked, request.POST.getlist("keep"))
    touched = set(request.POST.getlist("touched"))
    context = form_context(data, checked.errors, None, checked.against, _kept(checked))
    context["against_slots"] = sorted(config_form.SLOTS)
    context["warnings"] = checked.warnings
    context["slots"] = sorted(config_form.SLOTS | {"form"})
    context["quiet"] = not touched and not request.POST.get("all")
    return render(request, "experiments/_check.html", context)


@require(Role.VIEWER, "GET", "POST")
def configuration(request: MemberRequest, pk: int) -> HttpResponse:
    """The experiment's configuration; a POST saves it and starts or restarts the analysis."""
    page = experiment_page(request, pk, Role.ENGINEER if request.method == "POST" else Role.VIEWER)
    if request.method == "POST":
        return _configure(request, page)
    return render(request, "experiments/configuration.html", page.context("configuration", **waiting_form(page)))


def _configure(request: MemberRequest, page: ExperimentPage) -> HttpResponse:
    """Save, or say what is wrong; `use` puts into the form what the profile says of a field, and saves nothing."""
    experiment = page.experiment
    accept = request.POST.getlist("keep")
    by_file = request.POST.get("config_way") == "file"
    checked = posted(request, experiment.config or experiment.config_draft)
    if not by_file and (field := request.POST.get("use", "")):
        return _use(request, page, checked.data, field)
    if not checked.errors:
        checked = configurations.save(experiment, request.user, checked.data, accept)
    if checked.ok:
        return redirect("experiment", experiment.pk)
    context = page.context(
        "configuration",
        file_error=checked.errors.get("", "") if by_file else "",
        config_text=request.POST.get("config_text", ""),
        # What contradicts is decided field by field, so a file that was read without errors is shown as a form.
        way="form" if checked.undecided else request.POST.get("config_way", "form"),
        **form_context(checked.data, checked.errors, _prefilled(page), checked.against, _kept(checked)),
        **_said_of_form(page),
    )
    return render(request, "experiments/configuration.html", context, status=422)


def _use(request: MemberRequest, page: ExperimentPage, data: dict[str, Any], field: str) -> HttpResponse:
    """The form as it was sent, with what the profile says of one field, or of ALL, in it."""
    checked = configurations.against(page.experiment, configurations.check(data))
    for item in checked.against:
        if field in (item.field, ALL):
            data = against_profile.applied(data, item.use)
    checked = configurations.against(page.experiment, configurations.check(data), request.POST.getlist("keep"))
    context = page.context(
        "configuration",
        **form_context(checked.data, checked.errors, _prefilled(page), checked.against, _kept(checked)),
        **_said_of_form(page),
    )
    return render(request, "experiments/configuration.html", context)


def _kept(checked: configurations.Checked) -> set[str]:
    return {item.field for item in checked.against} - {item.field for item in checked.undecided}


def _prefill(page: ExperimentPage) -> Prefilled:
    if page.run is None:
        return Prefilled({"name": page.experiment.name})
    return configurations.prefill(page.run.profile)


def _prefilled(page: ExperimentPage) -> Mapping[str, Mark]:
    """Fields that were filled automatically, and their evidence."""
    if page.run is None or page.experiment.config or page.experiment.config_draft:
        return {}
    return _prefill(page).marks


def waiting_form(page: ExperimentPage) -> dict[str, Any]:
    """The form: the configuration with what its profile contradicts, the draft with its errors, or what the profile
    tells."""
    experiment = page.experiment
    data = experiment.config or experiment.config_draft or _prefill(page).data
    checked = configurations.against(experiment, configurations.check(data))
    context = form_context(data, experiment.config_errors, _prefilled(page), checked.against, _kept(checked))
    return context | _said_of_form(page)


def _said_of_form(page: ExperimentPage) -> dict[str, Any]:
    """Above the form: what was wrong with text that is no configuration at all, a chip that is none of ours, and what
    the profile tells."""
    experiment = page.experiment
    sentences = [f"{field} {message}".strip() for field, message in experiment.config_errors.items()]
    unread = "" if experiment.config or experiment.config_draft else ". ".join(sentences)
    facts = against_profile.facts(page.run.profile) if page.run is not None else None
    return {
        "given_error": unread,
        "stand_in": facts is not None and facts.on_cpu and not experiment.config,
        "from_profile": as_table(facts) if facts is not None else [],
        "recorded": facts.known.get("recorded") if facts is not None else None,
    }


def progress_context(page: ExperimentPage) -> dict[str, Any]:
    """The newest run's steps, and after which event the live stream goes on."""
    if page.run is None:
        return {"steps": [], "last_event": 0, "failed": False, "working": False, "files": []}
    # The newest first: what is appended meanwhile is streamed again, and nothing is missed.
    last_event = page.experiment.events.order_by("-pk").values_list("pk", flat=True).first() or 0
    shown_events = page.experiment.events.filter(run=page.run, kind__in=PROGRESS_EVENTS)
    trail = list(shown_events.only("experiment", "kind", "data", "created_at").order_by("pk"))
    status = RunStatus(page.run.status)
    given = list(page.run.profile.files.all())
    files = [file for file in given if file.included]
    # Where the run went on since it was read, the stream tells that again.
    is_current = page.experiment.runs.filter(pk=page.run.pk, status=status).exists()
    return {
        "steps": steps_of(page.run, trail),
        "last_event": last_event if is_current else 0,
        "failed": status == RunStatus.FAILED,
        "working": status.is_working,
        "jobs_before": runs.jobs_before(page.run),
        "files": files,
        "files_bytes": sum(file.size_bytes for file in files),
        "left_out": [file for file in given if not file.included],
    }


@require(Role.VIEWER, "GET", htmx=True)
def progress(request: MemberRequest, pk: int) -> HttpResponse:
    """The steps alone, for the live page; once the run has moved on so far that the page changes, reload it."""
    page = experiment_page(request, pk)
    if not request.htmx:
        return redirect("experiment", pk)
    shown = request.GET.get("shown", "")
    stage = "" if page.run is None else page.run.status
    response = render(request, "experiments/_steps.html", page.context("diagnosis", **progress_context(page)))
    changes = {RunStatus.READY, RunStatus.FAILED, RunStatus.CONFIGURING}
    has_diagnosis = stage in (RunStatus.PROPOSING, RunStatus.CHECKING)
    if stage in changes or (has_diagnosis and shown != "diagnosis"):
        response["HX-Refresh"] = "true"
    return response


@require(Role.VIEWER, "POST")
def retry(request: MemberRequest, pk: int) -> HttpResponse:
    page = experiment_page(request, pk, Role.ENGINEER)
    with refusals_as_messages(request):
        if page.run is not None:
            runs.retry(page.run, request.user)
    return redirect("experiment", pk)


@require(Role.VIEWER, "POST")
def add_files(request: MemberRequest, pk: int) -> HttpResponse:
    """Replace a broken file or add a missing host, then read everything again."""
    page = experiment_page(request, pk, Role.ENGINEER)
    with refusals_as_messages(request):
        if page.run is not None:
            uploads.add_files(page.run, request.user, request.FILES.getlist("files"))
    return redirect("experiment", pk)


@require(Role.VIEWER, "POST")
def exclude(request: MemberRequest, pk: int) -> HttpResponse:
    """Continue without a host: a file, or the one inside an archive that the failed analysis named."""
    page = experiment_page(request, pk, Role.ENGINEER)
    with refusals_as_messages(request):
        if page.run is not None:
            uploads.exclude(page.run, request.POST.get("host", ""), request.user, request.POST.get("sha256", ""))
    return redirect("experiment", pk)


@require(Role.VIEWER, "GET", "POST")
def delete(request: MemberRequest, pk: int) -> HttpResponse:
    """Ask, then delete the experiment with its files, diagnosis and proposals."""
    page = experiment_page(request, pk, Role.ENGINEER)
    if request.method == "POST":
        name = page.experiment.name
        try:
            uploads.delete(page.experiment, request.user)
        except deleting.DeletionError:  # the page says what stands against it
            return redirect("delete_experiment", page.experiment.pk)
        messages.success(request, f"Deleted {name}.")
        return redirect("experiments")
    held = deleting.holds(page.experiment)
    blocked = any(hold.blocks for hold in held)
    return render(request, "experiments/delete.html", page.context("diagnosis", holds=held, blocked=blocked))
