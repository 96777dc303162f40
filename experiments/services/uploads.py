"""Receive uploaded profiles: stream them to generated names, hash them on the way, and start the analysis."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files import File
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.db import transaction
from django.utils import timezone

from accounts.models import Role, Team, User
from accounts.permissions import check
from accounts.refusals import Refused
from accounts.text import display_name, one_line
from audit import trail
from audit.models import Action
from disk import space
from experiments.ingest.json_documents import is_configuration, is_tool_export
from experiments.models import NAME_CHARACTERS, Experiment, Origin, Profile, ProfileFile, Run, RunStatus
from experiments.services import against_profile, configuration, deleting, events, runs, storage
from formatting import limit

DEFAULT_LIMIT_BYTES = 500_000_000
MAX_FILES = 512

#: Endings that tell the reader what a file is; any other is kept without one and refused by the reader with a reason.
_ENDINGS = (
    ".pt.trace.json.gz",
    ".pt.trace.json",
    ".sqlite.gz",
    ".sqlite",
    ".nsys-rep",
    ".xplane.pb.gz",
    ".xplane.pb",
    ".tar.gz",
    ".tgz",
    ".tar",
    ".zip",
    ".json.gz",
    ".json",
    ".pb.gz",
    ".pb",
)
_CONFIG_ENDINGS = (".yaml", ".yml")


class UploadError(Refused):
    """The upload cannot be received: 413 over the limit, 429 while too many of the team's analyses wait, 507 where the
    server's disk is too full for it."""

    status = 400


@dataclass(frozen=True)
class Stored:
    """One file on disk: the user's name for it, path below the data folder, size and SHA-256 as hex."""

    name: str
    path: str
    size_bytes: int
    sha256: str


def limit_bytes() -> int:
    return int(getattr(settings, "UPLOAD_LIMIT_BYTES", DEFAULT_LIMIT_BYTES))


def limit_sentence() -> str:
    return (
        f"An upload is limited to {limit(limit_bytes(), 'bytes')}; profile fewer steps, or upload the hosts' files "
        "compressed (.xplane.pb.gz or .zip)."
    )


def write(files: Iterable[File[bytes]]) -> list[Stored]:
    """Keep the files in a new folder; raises UploadError, and leaves nothing behind, if there is no room for them."""
    files = list(files)
    folder = ""
    left = limit_bytes()
    stored = []
    try:
        space.require(storage.root(), sum(file.size or 0 for file in files if _path_of(file) is None))
        folder = storage.new_folder(storage.UPLOADS)
        for index, file in enumerate(files):
            name = display_name(file.name or "")
            ending = next((e for e in _ENDINGS if name.lower().endswith(e)), "")
            path = f"{folder}/{index:04d}{ending}"
            size, digest = _keep(file, storage.absolute(path), left)
            left -= size
            stored.append(Stored(name, path, size, digest))
    except BaseException as error:
        storage.remove([folder])
        if isinstance(error, space.NoSpace) or space.is_full(error):
            raise UploadError(space.sentence(error), status=507) from error
        raise
    return stored


def _keep(file: File[bytes], target: Path, left: int) -> tuple[int, str]:
    """Size in bytes and SHA-256 of the file, now at `target`; raises UploadError over the limit."""
    received, digest, size = _path_of(file), hashlib.sha256(), 0
    moved = received is not None and _link(received, target)
    with nullcontext() if moved else target.open("xb") as copy:
        for chunk in file.chunks(1 << 20):
            size += len(chunk)
            if size > left:
                raise UploadError(limit_sentence(), status=413)
            digest.update(chunk)
            if copy is not None:
                copy.write(chunk)
    return size, digest.hexdigest()


def _path_of(file: File[bytes]) -> str | None:
    """Where the web server received the file, None where it is small and in memory."""
    return file.temporary_file_path() if isinstance(file, TemporaryUploadedFile) else None


def _link(received: str, target: Path) -> bool:
    """Store the received file instead of a copy, which would need the space once more; False on another disk."""
    try:
        os.link(received, target)
    except OSError:
        return False
    return True


def receive(
    team: Team,
    user: User | None,
    files: Sequence[File[bytes]],
    config_text: str | None = None,
    name: str | None = None,
    *,
    accept: Sequence[str] = (),
    origin: Origin = Origin.UPLOADED,
    label: str = "",
    sample: str = "",
) -> Experiment:
    """Store the files, create the experiment with its profile and run, and queue it.

    A YAML file among `files` is the configuration where no `config_text` is given.  A configuration with errors does
    not lose the upload: it is kept as a draft with its errors, and the run will wait for it to be corrected.  It will
    also wait where the profile contradicts the configuration in a field that is not in `accept`.
    Raises UploadError with one sentence.
    """
    files = list(files)
    if not (config_text or "").strip():
        config_text, files = _config_among(files)
    _require_files(files)
    if not runs.can_wait(team):
        raise UploadError(
            f"{settings.TEAM_WAITING:,} analyses of this team are waiting, the maximum; upload again once some are "
            "done.",
            status=429,
        )
    checked = configuration.read_text(config_text) if (config_text or "").strip() and config_text else None
    stored = write(files)
    try:
        with transaction.atomic():
            experiment = Experiment(
                team=team, created_by=user, origin=origin, label=label, sample=sample, name=_name(name, checked, stored)
            )
            if checked is not None:
                configuration.keep(experiment, checked)
                experiment.config_kept = against_profile.accepted_unseen(accept)
            experiment.save()
            profile = Profile.objects.create(team=team, experiment=experiment)
            _add_rows(profile, stored)
            events.append(experiment, "upload", "user", user=user, data={"files": _facts(stored)})
            if checked is not None:
                events.append(experiment, "config", "user", user=user, data=configuration.facts(checked))
            runs.start(experiment, profile, user=user)
    except BaseException:
        storage.remove([file.path for file in stored])
        raise
    return experiment


def add_files(run: Run, user: User | None, files: Sequence[File[bytes]]) -> Run:
    """Add files (a host that was missing, a repaired one) to the run's profile and read it all again in a new run.

    A file with the name of an earlier one takes its place.  Raises UploadError or RunError.
    """
    files = list(files)
    _require_files(files)
    stored = write(files)
    try:
        with transaction.atomic():
            _only_when_idle(run)
            names = {file.name for file in stored}
            run.profile.files.filter(name__in=names, included=True).update(included=False)
            _add_rows(run.profile, stored)
            events.append(run.experiment, "upload", "user", run=run, user=user, data={"files": _facts(stored)})
            return _restart_analysis(run, user)
    except BaseException:
        storage.remove([file.path for file in stored])
        raise


def exclude(run: Run, name: str, user: User | None = None, sha256: str = "") -> Run:
    """Continue without a broken host, an uploaded file or what `Run.failure` names as `file` inside an archive: read
    the others again in a new run.  sha256: of the file, where two have the name.  Raises UploadError or RunError."""
    with transaction.atomic():
        _only_when_idle(run)
        files = run.profile.files.filter(included=True)
        if file := files.filter(name=name, sha256__startswith=sha256).first():
            if not files.exclude(pk=file.pk).exists():
                raise UploadError("This is the only file of the profile; upload another one before excluding it.")
            files.filter(pk=file.pk).update(included=False)
        elif run.failure.get("excludable") and run.failure.get("file") == name:
            profile = Profile.objects.get(pk=run.profile_id)
            profile.excluded = [*profile.excluded, name]
            profile.save(update_fields=["excluded"])
        else:
            raise UploadError("Only a file of the profile, or a host named by the failed analysis, can be excluded.")
        events.append(run.experiment, "upload", "user", run=run, user=user, data={"excluded": name})
        return _restart_analysis(run, user)


def delete(experiment: Experiment, user: User) -> None:
    """Delete the experiment with everything that hangs on it, files included.

    Raises Http404 for outsiders, PermissionDenied below engineer, and below administrator once a decision was taken on
    one of its proposals: reviews are kept unless somebody who may answers for it.  Raises DeletionError while jobs of
    it run elsewhere.
    """
    team = check(user, experiment, Role.ENGINEER).team
    with transaction.atomic():
        events.lock(experiment.pk)
        if experiment.events.filter(kind="review").exists():
            check(user, experiment, Role.ADMINISTRATOR)
        deleting.refuse_while_held(experiment)
        paths = [path for profile in experiment.profiles.all() for path in (profile.data, profile.trace or "")]
        paths += ProfileFile.objects.filter(profile__experiment=experiment).values_list("path", flat=True)
        facts = deleting.facts(experiment)
        deleted, _ = Experiment.objects.filter(pk=experiment.pk).delete()
        if deleted:
            trail.record(Action.EXPERIMENT_DELETED, team, user, about=experiment.pk, name=experiment.name, **facts)
        transaction.on_commit(lambda: storage.remove(paths))


def _require_files(files: Sequence[File[bytes]]) -> None:
    if not files:
        raise UploadError(
            "Choose at least one profile file (.xplane.pb, a PyTorch trace, an Nsight export, a zip or tar.gz)."
        )
    if len(files) > MAX_FILES:
        raise UploadError(f"An upload is limited to {MAX_FILES} files; put them into one zip.")
    if sum(file.size or 0 for file in files) > limit_bytes():
        raise UploadError(limit_sentence(), status=413)


def _config_among(files: list[File[bytes]]) -> tuple[str | None, list[File[bytes]]]:
    """Text of the one configuration among the uploaded files, and the other files."""
    texts = {number: text for number, file in enumerate(files) if (text := _config_text(file)) is not None}
    if len(texts) != 1:
        return None, files
    ((number, text),) = texts.items()
    return text, [*files[:number], *files[number + 1 :]]


def _config_text(file: File[bytes]) -> str | None:
    """Text of a YAML file, or of a JSON file that holds what only a configuration does."""
    name = (file.name or "").lower()
    if not name.endswith((*_CONFIG_ENDINGS, ".json")) or (file.size or 0) > configuration.MAX_TEXT_BYTES:
        return None
    text = file.read().decode("utf-8", "replace")
    file.seek(0)
    return text if name.endswith(_CONFIG_ENDINGS) or is_configuration(text) else None


def _name(name: str | None, checked: configuration.Checked | None, stored: Sequence[Stored]) -> str:
    given = (name or "").strip()
    if not given and checked is not None:
        given = str(checked.data.get("name") or "").strip()
    if not given and all(is_tool_export(file.name) for file in stored):
        # such files are named after the tool, and so would be every experiment
        given = configuration.default_name(checked) if checked is not None else ""
        given = given or f"XProf tables of {timezone.localtime():%-d %B %Y, %H:%M}"
    if not given:
        first = stored[0].name
        ending = next((e for e in _ENDINGS if first.lower().endswith(e)), "")
        given = first[: len(first) - len(ending)] or first
    return one_line(given, NAME_CHARACTERS) or "Unnamed experiment"


def _add_rows(profile: Profile, stored: Sequence[Stored]) -> None:
    ProfileFile.objects.bulk_create(
        ProfileFile(profile=profile, name=f.name, path=f.path, size_bytes=f.size_bytes, sha256=f.sha256) for f in stored
    )


def _facts(stored: Sequence[Stored]) -> list[dict[str, Any]]:
    return [{"name": f.name, "size_bytes": f.size_bytes, "sha256": f.sha256} for f in stored]


def _only_when_idle(run: Run) -> None:
    events.lock(run.experiment_id)
    run.refresh_from_db()
    if RunStatus(run.status).is_working:
        raise runs.RunError("The profile is being analysed; wait until it is done, then change its files.")
    if Run.objects.filter(experiment_id=run.experiment_id, pk__gt=run.pk).exists():
        raise runs.RunError("A newer analysis of this experiment has already been started; open that one.")


def _restart_analysis(run: Run, user: User | None) -> Run:
    if run.status == RunStatus.CONFIGURING:
        runs.fail(run, "The profile's files changed; a new analysis has been started.", actor="user")
    return runs.start(run.experiment, run.profile, user=user)
