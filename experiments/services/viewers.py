"""XProf's own pages for a profile: one process per profile, links to it that one session holds, files to take away."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import secrets
import socket
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.contrib.sessions.models import Session
from django.utils import timezone

from accounts.confinement import SESSION_MEMBERSHIP
from accounts.models import Role, User
from accounts.permissions import membership_in
from experiments.models import Profile, ViewerLink
from experiments.services import storage
from experiments.viewer import Viewer, ViewerError, start

FOLDER = "viewers"
#: Processes on this machine; each may take what the converter may.
MOST_RUNNING = 3
LINK_FOR = timedelta(hours=12)

_ours: dict[int, Viewer] = {}
_lock = threading.Lock()


def can_open(profile: Profile) -> bool:
    """Whether the profile holds what XProf reads: XSpace files, not tables or another profiler's trace."""
    return (profile.summary or {}).get("source_kind") == "xplane" and profile.files.filter(included=True).exists()


def open_for(profile: Profile, user: User, session_key: str) -> str:
    """Start XProf for the profile where it is not running, and return a new link's token.  Raises ViewerError.

    The token opens this profile for this user while this session lasts.
    """
    with _lock:
        if socket_of(profile.pk) is None:
            _start(profile)
    now = timezone.now()
    ViewerLink.objects.filter(created_at__lt=now - LINK_FOR).delete()
    token = secrets.token_urlsafe(32)
    ViewerLink.objects.create(profile=profile, user=user, session_key=session_key, token_sha256=_hash(token))
    return token


def _start(profile: Profile) -> None:
    files = [(storage.absolute(file.path), file.name) for file in profile.files.filter(included=True)]
    others = [pk for path in storage.absolute(FOLDER).glob("*.json") if (pk := int(path.stem)) and socket_of(pk)]
    if len(others) >= MOST_RUNNING:
        if not _ours:
            raise ViewerError(
                f"XProf is already open for {len(others)} profiles, the maximum. Close one, or wait until one has "
                "been idle for ten minutes."
            )
        stop(next(iter(_ours)))  # the one that was opened first
    viewer = start(files)
    _ours[profile.pk] = viewer
    pointer = _pointer(profile.pk)
    pointer.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = pointer.with_suffix(".part")
    partial.write_text(json.dumps({"socket": str(viewer.socket)}))
    partial.rename(pointer)


def _pointer(pk: int) -> Path:
    """Where the other processes of the web server find the socket."""
    return storage.absolute(f"{FOLDER}/{pk}.json")


def socket_of(pk: int) -> Path | None:
    """The socket of the profile's viewer, None where none is running."""
    try:
        path = Path(json.loads(_pointer(pk).read_text())["socket"])
    except (OSError, ValueError, KeyError):
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(str(path))
        except OSError:
            _forget(pk)
            return None
    return path


def _forget(pk: int) -> None:
    """Clear away after a process that ended by itself."""
    _pointer(pk).unlink(missing_ok=True)
    viewer = _ours.pop(pk, None)
    if viewer is not None:
        viewer.stop()


def stop(pk: int) -> None:
    """End the profile's viewer; what belongs to another process of the server ends when it is not used."""
    if pk in _ours:
        _forget(pk)


def stop_all() -> None:
    for pk in list(_ours):
        _forget(pk)


atexit.register(stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ours.clear)  # a child's end is not the server's


def allowed(token: str, experiment_pk: int) -> ViewerLink | None:
    """The link, if its session still lasts and its user is still in the profile's team; None otherwise."""
    link = (
        ViewerLink.objects.select_related("profile", "user")
        .filter(
            token_sha256=_hash(token),
            profile__experiment_id=experiment_pk,
            created_at__gt=timezone.now() - LINK_FOR,
            user__is_active=True,
        )
        .first()
    )
    if link is None:
        return None
    session = Session.objects.filter(session_key=link.session_key, expire_date__gt=timezone.now()).first()
    data: dict[str, Any] = session.get_decoded() if session is not None else {}
    if str(data.get("_auth_user_id")) != str(link.user_id):
        return None
    link.user.confined_to = data.get(SESSION_MEMBERSHIP)
    membership = membership_in(link.user, link.profile.team_id)
    return link if membership is not None and membership.may(Role.VIEWER) else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
