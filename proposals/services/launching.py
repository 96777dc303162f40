"""Launch files of a stored proposal: of the experiment's configuration as it stands, with the proposal's changes."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

from experiments.services import configuration
from perfmodel.config import ConfigError
from proposals import launch
from proposals.models import Proposal

#: A zip has no earlier date than this, and files that are equal shall be equal byte for byte.
_DATE = (1980, 1, 1, 0, 0, 0)


class LaunchError(Exception):
    """No launch files can be written.  The text is a sentence for the user."""


def files(proposal: Proposal) -> tuple[launch.LaunchFile, ...]:
    """Raises LaunchError where the configuration is gone or no longer has the proposal's chips."""
    config = configuration.load(proposal.experiment)
    if config is None:
        raise LaunchError("The experiment has no valid configuration; open Configuration and save it again.")
    title = f"{proposal.rank}. {proposal.title}, {proposal.get_status_display().lower()}"
    try:
        return launch.files(config, proposal.data["mesh"], proposal.data.get("changes") or {}, title)
    except ConfigError as error:
        raise LaunchError(
            f"The configuration has changed since this proposal was made: {error.message}. Run the analysis again."
        ) from error


def configuration_text(proposal: Proposal) -> str:
    """The YAML of the proposal's configuration, named after its experiment and rank, to upload with its profile.

    Raises LaunchError as `files` does.
    """
    config = configuration.load(proposal.experiment)
    if config is None:
        raise LaunchError("The experiment has no valid configuration; open Configuration and save it again.")
    name = f"{proposal.experiment.name[:170]}, proposal {proposal.rank}"
    found = launch.files(replace(config, name=name), proposal.data["mesh"], proposal.data.get("changes") or {})
    return next(item.text for item in found if item.kind == "yaml")


def is_outdated(proposal: Proposal) -> bool:
    """Whether the experiment was analysed or configured again after this proposal."""
    newest = proposal.experiment.runs.order_by("-pk").values_list("pk", flat=True).first()
    return newest != proposal.plan.run_id


def chosen(proposals: list[Proposal]) -> Proposal | None:
    """The one to launch unless the user says otherwise: what was approved, else the first."""
    approved = [item for item in proposals if item.status == Proposal.Status.APPROVED]
    return next(iter(approved or proposals), None)


def siblings(proposal: Proposal) -> list[Proposal]:
    """All proposals of the same plan by rank."""
    return list(proposal.plan.proposals.order_by("rank"))


def default(experiment_id: int) -> Proposal | None:
    """The proposal to launch of an experiment's newest plan."""
    found = Proposal.objects.filter(experiment_id=experiment_id).select_related("experiment", "plan")
    newest = found.order_by("-plan_id").values_list("plan_id", flat=True).first()
    return chosen(list(found.filter(plan_id=newest).order_by("rank")))


def archive(found: tuple[launch.LaunchFile, ...]) -> bytes:
    """The files that could be written, as a zip; scripts may be executed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for item in found:
            if item.produced:
                info = zipfile.ZipInfo(item.name, _DATE)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = (0o100755 if item.name.endswith(".sh") else 0o100644) << 16
                packed.writestr(info, item.text)
    return buffer.getvalue()
