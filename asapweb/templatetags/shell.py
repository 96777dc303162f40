"""The frame around every page: who is signed in, where one can go, what waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import template
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from accounts.models import Role
from accounts.services import current_membership
from asapweb.waiting import waiting_count

register = template.Library()


@dataclass(frozen=True)
class Place:
    """An entry of the navigation.  `url` is a URL name: an entry whose name does not resolve is not shown."""

    key: str
    label: str
    icon: str
    url: str
    role: str = Role.VIEWER
    small: bool = True  # also in the bar at the bottom of a narrow screen


PLACES = (
    Place("home", "Home", "home", "home"),
    Place("experiments", "Experiments", "list", "experiments"),
    Place("upload", "Upload", "upload", "upload", role=Role.ENGINEER),
    Place("explore", "Explore", "sliders", "explore"),
    Place("history", "History", "db", "history"),
    Place("knowledge", "Knowledge", "book", "knowledge", small=False),
    Place("accuracy", "Accuracy", "target", "accuracy", small=False),
)


@register.simple_tag(takes_context=True)
def shell(context: Mapping[str, Any]) -> dict[str, Any]:
    """`{% shell as frame %}`: the membership (None for strangers), the places it may go to, and what waits for it."""
    request: HttpRequest | None = context.get("request")
    membership = current_membership(request) if request is not None and hasattr(request, "user") else None
    if membership is None:
        return {"membership": None, "places": [], "waiting": 0}
    places = []
    for place in PLACES:
        if not membership.may(place.role):
            continue
        try:
            places.append((place, reverse(place.url)))
        except NoReverseMatch:
            continue
    return {
        "membership": membership,
        "places": places,
        "waiting": waiting_count(membership),
        "initials": initials(membership.user),
    }


def initials(user: Any) -> str:
    """Two letters for the account mark."""
    full = user.get_full_name() or user.get_username()
    words = [word for word in full.replace(".", " ").replace("_", " ").replace("-", " ").split() if word]
    letters = words[0][0] + words[-1][0] if len(words) > 1 else full[:2]
    return letters.upper()


@register.filter
def may(membership: Any, role: str) -> bool:
    return membership is not None and membership.may(role)
