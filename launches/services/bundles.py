"""What one arm is run with: configuration, script and flags of its tool, profiling switched on, and how it reports.

The control arm is the configuration that the proposal was priced with, as it is.  Everything that differs between the
repeats of an arm comes from the environment, so that one bundle serves them all.
"""

from __future__ import annotations

from pathlib import Path

from accounts.refusals import Refused
from launches.models import ArmRun, Launch
from launches.services import arms, choices
from perfmodel.chips import get_chip
from perfmodel.config import ConfigError, ExperimentConfig
from proposals import launch as tool_files
from proposals.candidate import Candidate, MeshAndChanges
from proposals.launch.file import render

REPORT = Path(__file__).resolve().parents[1] / "asap_report.py"


class BundleError(Refused):
    """This arm cannot be written for this tool."""


def of_arm(launch: Launch, arm: str) -> dict[str, str]:
    """Text of every file by its name.  Raises BundleError."""
    config, of, title = _started_from(launch, arm)
    try:
        by_kind = {item.kind: item for item in tool_files.files(config, of, title)}
    except ConfigError as error:
        raise BundleError(f"Mesh and chips of the {arm} arm do not match: {error}") from error
    files = {"config.yaml": by_kind["yaml"].text, "asap_report.py": REPORT.read_text()}
    if launch.tool in by_kind:
        script = by_kind[launch.tool]
        if not script.produced:
            raise BundleError(f"{choices.TOOLS[launch.tool]} cannot run the {arm} arm: {' '.join(script.notes)}"[:300])
        files[script.name] = script.text
        command = f"bash {script.name}"
    elif launch.tool == "trial":
        command = 'asap trial config.yaml --steps "$STEPS" --json ${PROFILE:+--profile "$OUTPUT"}'
    else:
        command = launch.values.get("command") or ""
        if not command:
            raise BundleError("No custom command is set; set one under Settings, Launching.")
    return files | scripts(launch, arm, command)


def _started_from(launch: Launch, arm: str) -> tuple[ExperimentConfig, MeshAndChanges, str]:
    """What launch files are written from: a configuration, mesh and changes on top of it, and a title."""
    proposed = arm == ArmRun.Arm.PROPOSAL and launch.proposal is not None
    config = arms.config_of(launch, ArmRun.Arm.CONTROL if proposed else arm)
    if config is None:
        raise BundleError(f"The configuration of the {arm} arm is no longer valid; analyse the experiment again.")
    if proposed:
        proposal = arms.proposal_of(launch)
        return config, proposal.value, f"proposal {proposal.rank}"
    title = "control arm: unmodified baseline" if arm == ArmRun.Arm.CONTROL else "a trial of a campaign"
    return config, Candidate(config.mesh.to_json()), title


def environment(launch: Launch, run: ArmRun) -> dict[str, str]:
    """Variables of one run, its token not among them."""
    profile = {"PROFILE": "1"} if run.records_profile else {}
    return {
        "ASAP_URL": launch.server, "ASAP_LAUNCH": str(launch.pk), "ASAP_ARM": run.arm, "ASAP_REPEAT": str(run.repeat),
        "ASAP_RUN_NAME": run.name, "STEPS": str(launch.steps), **profile,
    }  # fmt: skip


def hosts(config: ExperimentConfig) -> tuple[int, int]:
    """Processes, one on each host, and chips of each."""
    per_host = min(get_chip(config.hardware.chip).chips_per_host, config.hardware.chips)
    return -(-config.hardware.chips // per_host), per_host


def scripts(launch: Launch, arm: str, command: str) -> dict[str, str]:
    """Return the script of an arm, and what to read before it is run by hand."""
    about = [
        f"Launch {launch.pk} of ASAP Web, {arm} arm, by {choices.TOOLS[launch.tool]}.",
        "Run it once on each host.  It takes ASAP_TOKEN and ASAP_REPEAT from the environment or from secret.env.",
    ]
    values = {
        "launch": launch, "arm": arm, "about": about, "command": command, "setup": launch.values.get("setup") or ""
    }  # fmt: skip
    return {name: render(name, **values) for name in ("run.sh", "README.txt")}
