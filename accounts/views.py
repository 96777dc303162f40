"""Signing in and out, the account and its team."""

from __future__ import annotations

import shlex
from typing import Any

from django.contrib import messages
from django.contrib.auth import logout, update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm
from django.contrib.auth.views import redirect_to_login
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render, resolve_url
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from accounts import members, services, tokens
from accounts.attempts import WINDOW, Attempt
from accounts.confinement import login
from accounts.models import Membership, Role
from accounts.pages import refusals_as_messages
from accounts.permissions import MemberRequest, require
from audit.models import Action
from formatting.numbers import whole_number


def _next(request: HttpRequest) -> str:
    """Where to go after signing in; only addresses of this site."""
    target = request.POST.get("next") or request.GET.get("next") or ""
    if url_has_allowed_host_and_scheme(target, {request.get_host()}, require_https=request.is_secure()):
        return target
    return resolve_url("home")


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in with a name and password; who has none uses a one-time link."""
    if request.user.is_authenticated:
        return HttpResponseRedirect(_next(request))
    context: dict[str, Any] = {"form": AuthenticationForm(request), "next": _next(request)}
    if request.method != "POST":
        return render(request, "accounts/sign_in.html", context)
    attempt = Attempt(request, request.POST.get("username", ""))
    if not attempt.allowed:
        response = render(request, "accounts/sign_in.html", context | {"limited": True}, status=429)
        response["Retry-After"] = str(int(WINDOW.total_seconds()))
        return response
    form = AuthenticationForm(request, request.POST)
    if not form.is_valid():
        return render(request, "accounts/sign_in.html", context | {"form": form}, status=422)
    attempt.succeeded()
    login(request, form.get_user())
    return HttpResponseRedirect(_next(request))


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """Ask, then sign in by a one-time link: opening the address alone (a preview, a scanner) uses nothing up."""
    if request.method == "POST":
        link = services.redeem_sign_in_link(token)
        if link is not None:
            login(request, link.user, link.membership)
            return HttpResponseRedirect(_next(request))
    link = services.open_sign_in_link(token)
    return render(request, "accounts/sign_in_link.html", {"link": link}, status=200 if link is not None else 410)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest, token: str) -> HttpResponse:
    """Ask whom a team has invited; they join it with the account that they have."""
    if not request.user.is_authenticated:
        return redirect_to_login(request.get_full_path())
    invitation = members.open_invitation(token)
    if invitation is None:
        return render(request, "accounts/join.html", {"refused": "It has been accepted or replaced."}, status=410)
    if request.method == "POST":
        try:
            joined = members.accept(invitation, request.user)
        except members.MemberError as error:
            return render(request, "accounts/join.html", {"refused": str(error)}, status=403)
        services.choose_team(request, joined.team_id)
        messages.success(request, f"You are now a member of {joined.team}.")
        return redirect("home")
    return render(request, "accounts/join.html", {"invitation": invitation, "role": Role(invitation.role).label})


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """Sign out; who has no password, and so no way back of their own, sees the ways first."""
    user = request.user
    if user.is_authenticated and not user.has_usable_password() and "anyway" not in request.POST:
        command = f".venv/bin/python manage.py sign_in_link {shlex.quote(user.get_username())}"
        return render(request, "accounts/sign_out.html", {"here": "settings", "command": command})
    logout(request)
    return redirect("sign-in")


def _settings(request: MemberRequest, status: int = 200, **more: Any) -> HttpResponse:
    membership = request.membership
    context = {
        "here": "settings",
        "membership": membership,
        "memberships": services.memberships(request.user).select_related("team").order_by("team__name"),
        "people": membership.team.memberships.select_related("user").order_by("user__username"),
        "invitations": members.open_invitations(membership.team) if membership.may(Role.ADMINISTRATOR) else [],
        "roles": Role,
        "tokens": tokens.visible(request.user).select_related("scoped").order_by("-created"),
        **more,
    }
    return render(request, "accounts/settings.html", context, status=status)


@never_cache
@require(Role.VIEWER, "GET")
def settings(request: MemberRequest) -> HttpResponse:
    """The account: who one is, the team, its members, one's API tokens."""
    return _settings(request)


@require(Role.VIEWER, "POST")
def choose_team(request: MemberRequest) -> HttpResponse:
    team = whole_number(request.POST.get("team", ""))
    if team is None or not services.choose_team(request, team):
        messages.error(request, "You are not in that team.")
    return redirect("home")


@require(Role.ADMINISTRATOR, "POST")
def add_member(request: MemberRequest) -> HttpResponse:
    """Add a person: who has no account yet gets one and a link to sign in, who has one is asked by a link to join."""
    team = request.membership.team
    username, role = request.POST.get("username", ""), request.POST.get("role", "")
    try:
        added = members.add(team, username, role, request.POST.get("full_name", ""), by=request.user)
        invitation = members.invite(team, username, role, by=request.user) if added is None else ""
    except members.MemberError as error:
        return _settings(request, 422, member_error=str(error))
    if added is not None:
        return _with_link(request, added)
    address = request.build_absolute_uri(reverse("join", args=[invitation]))
    return _settings(request, invitation=address, invitation_for=members.account_name(username))


@require(Role.ADMINISTRATOR, "POST")
def change_member(request: MemberRequest, pk: int) -> HttpResponse:
    """Another role, or none."""
    changed = get_object_or_404(Membership, pk=pk, team=request.membership.team)
    with refusals_as_messages(request):
        if request.POST.get("remove"):
            members.remove(changed, by=request.user)
            messages.success(request, f"{changed.user} is no longer in the team.")
        else:
            members.change_role(changed, request.POST.get("role", ""), by=request.user)
            messages.success(request, f"{changed.user} now has the role {Role(request.POST['role']).label.lower()}.")
    return redirect("settings")


@never_cache
@require(Role.ADMINISTRATOR, "POST")
def member_link(request: MemberRequest, pk: int) -> HttpResponse:
    """A new one-time link for a member, shown once."""
    of_member = get_object_or_404(Membership, pk=pk, team=request.membership.team)
    return _with_link(request, of_member)


def _with_link(request: MemberRequest, member: Membership) -> HttpResponse:
    try:
        token = members.link_for(member, by=request.user)
    except members.MemberError as error:
        return _settings(request, 422, member_error=str(error))
    address = request.build_absolute_uri(reverse("sign-in-link", args=[token]))
    return _settings(request, new_link=address, new_link_for=member.user)


@require(Role.ADMINISTRATOR, "POST")
def withdraw_invitation(request: MemberRequest, pk: int) -> HttpResponse:
    """End an invitation that nobody has accepted yet."""
    withdrawn = members.withdraw(request.membership.team, pk, by=request.user)
    if withdrawn is not None:
        messages.success(request, f"The invitation of {withdrawn.user} was withdrawn; its link no longer works.")
    else:
        messages.error(request, "This invitation was accepted or withdrawn before.")
    return redirect("settings")


@never_cache
@sensitive_post_parameters()
@require(Role.VIEWER, "GET", "HEAD", "POST")
def password(request: MemberRequest) -> HttpResponse:
    """Set or change one's password; every other session of the account ends."""
    user = request.user
    known = user.has_usable_password()
    # Who holds a link of the team's administrator need not be the user, whose password opens all teams.
    if not known and user.confined_to is not None:
        return render(request, "accounts/password.html", {"here": "settings", "confined": True}, status=403)
    kind = PasswordChangeForm if known else SetPasswordForm
    context: dict[str, Any] = {"here": "settings", "known": known, "form": kind(user)}
    if request.method != "POST":
        return render(request, "accounts/password.html", context)
    attempt = Attempt(request, user.get_username())
    if not attempt.allowed:
        response = render(request, "accounts/password.html", context | {"limited": True}, status=429)
        response["Retry-After"] = str(int(WINDOW.total_seconds()))
        return response
    form = kind(user, request.POST)
    if "old_password" not in form.errors:
        attempt.succeeded()
    if not form.is_valid():
        return render(request, "accounts/password.html", context | {"form": form}, status=422)
    with transaction.atomic():
        form.save()
        services.record_for(services.teams_of(user), Action.PASSWORD_SET, user, user.pk, user.get_username())
    update_session_auth_hash(request, user)
    messages.success(request, "Your password is set. Other sessions were signed out; API tokens remain valid.")
    return redirect("settings")


@never_cache
@require(Role.VIEWER, "POST")
def create_token(request: MemberRequest) -> HttpResponse:
    """A new API token, shown once."""
    try:
        _, token = tokens.create(request.user)
    except tokens.TokenError as error:
        return _settings(request, 422, token_error=str(error))
    return _settings(request, new_token=token)


@require(Role.VIEWER, "POST")
def revoke_token(request: MemberRequest, key: str) -> HttpResponse:
    if tokens.revoke(request.user, key):
        messages.success(request, "The token was revoked.")
    return redirect("settings")
