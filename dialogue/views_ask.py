"""Take a member's actions in a dialogue: ask, stop, ask again, take back, add, propose, delete."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from accounts.models import Role
from accounts.permissions import MemberRequest, check, get_for, require
from dialogue.models import Held, Message, Thread
from dialogue.pages import address, answers, as_page, as_panel, chosen, is_full, threads
from dialogue.services import acting, asking, holding
from dialogue.services.asking import DialogueError
from experiments.pages import ExperimentPage, experiment_page


@require(Role.VIEWER, "POST")
def ask(request: MemberRequest, pk: int) -> HttpResponse:
    """Ask the model in a thread, or in a new one."""
    text = request.POST.get("text", "")
    return in_thread(request, pk, lambda thread: asking.ask(thread, request.user, text), draft=text)


@require(Role.VIEWER, "POST")
def stop(request: MemberRequest, pk: int) -> HttpResponse:
    """End an answer that is being written."""
    answer = get_for(request.user, answers(), Role.ENGINEER, pk=pk)
    return _done(request, answer.thread, lambda: asking.stop(answer))


@require(Role.VIEWER, "POST")
def retry(request: MemberRequest, pk: int) -> HttpResponse:
    """Ask the question of the last answer again."""
    answer = get_for(request.user, answers(), Role.ENGINEER, pk=pk)
    return _done(request, answer.thread, lambda: asking.retry(answer, request.user))


@require(Role.VIEWER, "POST")
def release(request: MemberRequest, pk: int) -> HttpResponse:
    """Take back something that the thread holds."""
    held = get_for(request.user, Held.objects.select_related("thread__experiment"), Role.ENGINEER, pk=pk)
    return _done(request, held.thread, lambda: holding.release(held, request.user))


@require(Role.VIEWER, "POST")
def card(request: MemberRequest, pk: int, index: int, decision: str) -> HttpResponse:
    """Hold what an answer asks to hold, or dismiss it."""
    answer = get_for(request.user, answers(), Role.ENGINEER, pk=pk)
    is_held = decision == "hold"
    return _done(request, answer.thread, lambda: holding.answer_card(answer, index, request.user, is_held))


@require(Role.VIEWER, "POST")
def add(request: MemberRequest, pk: int, index: int) -> HttpResponse:
    """Add a mesh that an answer offers as a proposal, and go to its card."""
    answer = get_for(request.user, answers(), Role.ENGINEER, pk=pk)
    try:
        made = acting.add_offered(answer, index, request.user)
    except DialogueError as error:
        return refused(request, _page(request, answer.thread), answer.thread, str(error))
    messages.success(request, f"Added as proposal {made.rank}. A reviewer can decide on it.")
    # Another query than the page's own, so that a browser that is there already loads it anew.
    place = f"{reverse('proposals', args=[made.experiment_id])}?plan={made.plan_id}&added={made.pk}"
    return go(request, f"{place}#proposal-{made.rank}")


@require(Role.VIEWER, "POST")
def propose(request: MemberRequest, pk: int) -> HttpResponse:
    """Propose again within what the thread holds."""
    thread = get_for(request.user, threads(), Role.ENGINEER, pk=pk)
    try:
        made = acting.propose_again(thread, request.user)
    except DialogueError as error:
        return refused(request, _page(request, thread), thread, str(error))
    return go(request, f"{reverse('proposals', args=[thread.experiment_id])}?asked={made.pk}")


@require(Role.VIEWER, "POST")
def delete(request: MemberRequest, pk: int) -> HttpResponse:
    """Delete a thread for everybody."""
    thread = get_for(request.user, threads(), Role.VIEWER, pk=pk)
    page = _page(request, thread)
    if not asking.may_delete(thread, page.membership):
        raise PermissionDenied(asking.NOT_YOURS)
    asking.delete(thread, request.user)
    return shown(request, page, asking.used(page.experiment).first())


def _page(request: MemberRequest, thread: Thread) -> ExperimentPage:
    check(request.user, thread, Role.VIEWER)
    return experiment_page(request, thread.experiment_id)


def _done(request: MemberRequest, thread: Thread, act: Callable[[], object]) -> HttpResponse:
    """Act in a thread; return it as it then is, or with the reason why not."""
    page = _page(request, thread)
    try:
        act()
    except DialogueError as error:
        return refused(request, page, thread, str(error))
    return shown(request, page, thread)


def in_thread(
    request: MemberRequest, pk: int, act: Callable[[Thread], Message | None], draft: str = "", follows: bool = False
) -> HttpResponse:  # fmt: skip
    """Act in the thread of the request, or in a new one; return it, or the reason why not.

    follows: a page other than the conversation goes to the message that `act` returns.
    """
    page = experiment_page(request, pk, Role.ENGINEER)
    chosen_thread = chosen(request, page.experiment, None)
    try:
        thread = chosen_thread or asking.open_thread(page.experiment, request.user)
        message = act(thread)
    except DialogueError as error:
        return refused(request, page, chosen_thread, str(error), draft=draft)
    if follows and request.headers.get("HX-Target") != "dialogue":
        return go(request, address(page.experiment, thread, message))
    return shown(request, page, thread, new_address=chosen_thread is None)


def go(request: MemberRequest, place: str) -> HttpResponse:
    if not request.htmx:
        return redirect(place)
    response = HttpResponse(status=204)
    response["HX-Redirect"] = place
    return response


def shown(
    request: MemberRequest, page: ExperimentPage, thread: Thread | None, new_address: bool = False
) -> HttpResponse:
    """The current thread; on a page of its own a new one gets its own URL."""
    if not request.htmx or (new_address and is_full(request)):
        return go(request, address(page.experiment, thread))
    return as_panel(request, page, thread)


def refused(
    request: MemberRequest, page: ExperimentPage, thread: Thread | None, problem: str, draft: str = ""
) -> HttpResponse:
    shown = as_panel if request.htmx else as_page
    return shown(request, page, thread, status=422, problem=problem, draft=draft)
