"""Launch files of a stored proposal: of the configuration that it was priced with, with the proposal's changes.

What a reviewer approved is what is launched: a configuration that is saved afterwards changes no file.
"""

from __future__ import annotations

from dataclasses import replace

from accounts.refusals import Refused
from perfmodel.config import ConfigError, ExperimentConfig
from proposals import launch
from proposals.compiling.wording import sentence
from proposals.models import Proposal
from proposals.services import compiling, unmeasured


class LaunchError(Refused):
    """No launch files can be written."""


def files(proposal: Proposal) -> tuple[launch.LaunchFile, ...]:
    """Raises LaunchError where the configuration is gone or does not pass its checks any more."""
    title = f"{proposal.rank}. {proposal.title}, {proposal.get_status_display().lower()}"
    check = compiling.of_proposal(proposal)
    return _written(proposal, _priced_with(proposal), title, sentence(check) if check else "")


def configuration_text(proposal: Proposal) -> str:
    """The YAML of the proposal's configuration, named after its experiment and rank, to upload with its profile.

    Raises LaunchError as `files` does.
    """
    name = f"{proposal.experiment.name[:170]}, proposal {proposal.rank}"
    files = _written(proposal, replace(_priced_with(proposal), name=name))
    return next(item.text for item in files if item.kind == "yaml")


def _priced_with(proposal: Proposal) -> ExperimentConfig:
    config = unmeasured.before_config(proposal)
    if config is None:
        raise LaunchError(
            "The configuration that this proposal was priced with is no longer valid; open Configuration, save it "
            "again, and run the analysis again."
        )
    return config


def _written(
    proposal: Proposal, config: ExperimentConfig, title: str = "", checked: str = ""
) -> tuple[launch.LaunchFile, ...]:
    try:
        return launch.files(config, proposal.value, title, checked)
    except ConfigError as error:
        raise LaunchError(
            f"The proposal does not match the configuration it was priced with: {error.message}. "
            "Run the analysis again."
        ) from error


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
    proposals = Proposal.objects.filter(experiment_id=experiment_id).select_related("experiment", "plan")
    newest = proposals.order_by("-plan_id").values_list("plan_id", flat=True).first()
    return chosen(list(proposals.filter(plan_id=newest).order_by("rank")))


def archive(files: tuple[launch.LaunchFile, ...]) -> bytes:
    """Return a zip of the files that could be written."""
    return launch.archive({item.name: item.text for item in files if item.produced})
