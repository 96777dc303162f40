"""The page of launch files: one section per tool, to copy or to download."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import Http404, HttpResponse
from django.shortcuts import render

from accounts.models import Role
from accounts.permissions import MemberRequest, get_for, require
from experiments.pages import experiment_page
from proposals.launch import LaunchFile
from proposals.models import Proposal
from proposals.services import launching

#: Title of a kind of file, and what it is for.
TITLES = {
    "maxtext": ("MaxText", "A script with the flags of the run."),
    "jax": ("Plain JAX", "Mesh, shardings and flags to import; runs its own check on CPU devices with --check."),
    "axlearn": ("AXLearn", "Mesh shape, rematerialisation and accumulation for an SpmdTrainer."),
    "megatron": ("Megatron-LM", "Arguments of pretrain_gpt.py under torchrun."),
    "yaml": ("ASAP Web", "The configuration of this proposal: upload it with the new profile."),
}  # fmt: skip
_FOUND = Proposal.objects.select_related("experiment", "plan")


@dataclass(frozen=True)
class Section:
    """One tool on the page."""

    file: LaunchFile
    title: str
    purpose: str


@require(Role.VIEWER, "GET")
def of_experiment(request: MemberRequest, pk: int) -> HttpResponse:
    """The files of the approved proposal, else of the first."""
    experiment_page(request, pk)
    return _page(request, pk, launching.default(pk))


@require(Role.VIEWER, "GET")
def of_proposal(request: MemberRequest, pk: int) -> HttpResponse:
    proposal = get_for(request.user, _FOUND, Role.VIEWER, pk=pk)
    return _page(request, proposal.experiment_id, proposal)


def _page(request: MemberRequest, experiment_id: int, proposal: Proposal | None) -> HttpResponse:
    page = experiment_page(request, experiment_id)
    context = page.context("launch", proposal=proposal)
    if proposal is not None:
        context |= {"siblings": launching.siblings(proposal), "outdated": launching.is_outdated(proposal)}
        try:
            files = launching.files(proposal)
        except launching.LaunchError as error:
            context["problem"] = str(error)
        else:
            context["sections"] = [Section(item, *TITLES[item.kind]) for item in files]
    return render(request, "proposals/launch.html", context)


@require(Role.VIEWER, "GET")
def download(request: MemberRequest, pk: int, name: str) -> HttpResponse:
    """One file, or all of them as `launch.zip`."""
    proposal = get_for(request.user, _FOUND, Role.VIEWER, pk=pk)
    try:
        files = launching.files(proposal)
    except launching.LaunchError as error:
        raise Http404(str(error)) from error
    if name == "launch.zip":
        return _attachment(launching.archive(files), "application/zip", f"launch-{proposal.pk}.zip")
    chosen = next((item for item in files if item.name == name and item.produced), None)
    if chosen is None:
        raise Http404("This proposal has no such file.")
    return _attachment(chosen.text.encode(), "text/plain; charset=utf-8", chosen.name)


def _attachment(content: bytes, content_type: str, name: str) -> HttpResponse:
    return HttpResponse(
        content, content_type=content_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
