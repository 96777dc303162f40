"""What one arm is run with: configuration, script and flags of its tool, profiling switched on, and how it reports.

The control arm is the configuration that the proposal was priced with, as it is.  Everything that differs between the
repeats of an arm comes from the environment, so that one bundle serves them all.
"""

from __future__ import annotations

import io
import shlex
import zipfile
from pathlib import Path

from accounts.refusals import Refused
from launches.models import ArmRun, Launch
from launches.services import arms, choices
from perfmodel.chips import get_chip
from perfmodel.config import ConfigError, ExperimentConfig
from proposals import launch as tool_files
from proposals.candidate import Candidate, MeshAndChanges
from proposals.launch.file import comment

REPORT = Path(__file__).resolve().parents[1] / "asap_report.py"
_DATE = (1980, 1, 1, 0, 0, 0)
_KINDS = {"maxtext": "maxtext", "megatron": "megatron"}
#: Of a script whose arm is compared.
_PROFILED = """if [ "$ASAP_REPEAT" = 1 ]; then PROFILE="${PROFILE-1}"; fi  # the other repeats are timed undisturbed
"""
#: Steps that the profiler records, after so many.
PROFILED, PROFILE_AFTER = 3, 10


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
    if (kind := _KINDS.get(launch.tool)) is not None:
        script = by_kind[kind]
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
    files["run.sh"] = _script(launch, arm, command)
    files["README.txt"] = _readme(launch, arm)
    return files


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


def archive(files: dict[str, str]) -> bytes:
    """The same files give the same bytes; scripts may be executed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in sorted(files.items()):
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if name.endswith((".sh", ".py")) else 0o100644) << 16
            packed.writestr(info, text)
    return buffer.getvalue()


def _script(launch: Launch, arm: str, command: str) -> str:
    about = [
        f"Launch {launch.pk} of ASAP Web, {arm} arm, by {choices.TOOLS[launch.tool]}.",
        "Run it once on each host.  It takes ASAP_TOKEN and ASAP_REPEAT from the environment or from secret.env.",
    ]
    setup = launch.values.get("setup") or ""
    profiled = "" if arm == ArmRun.Arm.TRIAL else _PROFILED
    return f"""#!/usr/bin/env bash
{comment(about)}
set -uo pipefail
bundle="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
secret="${{ASAP_SECRET:-$bundle/secret.env}}"
if [ -r "$secret" ]; then . "$secret"; fi
export ASAP_URL=${{ASAP_URL:-{shlex.quote(launch.server)}}} ASAP_LAUNCH={launch.pk} ASAP_ARM={arm}
export ASAP_REPEAT="${{ASAP_REPEAT:?say which repeat this is: 1 to {launch.repeats}}}"
{profiled}export STEPS="${{STEPS:-{launch.steps}}}" PROFILE="${{PROFILE-}}"
export RUN_NAME="${{ASAP_RUN_NAME:-asap-{launch.pk}-{arm}}}"
work="${{ASAP_WORK:-$(mktemp -d)}}"
export OUTPUT="${{OUTPUT:-$work/output}}"
mkdir -p "$OUTPUT" && cp "$bundle"/* "$work"/ 2>/dev/null
cd "$work" || exit 1
rm -f secret.env
{setup + chr(10) if setup else ""}python3 asap_report.py run --profile "$OUTPUT" -- bash -c {shlex.quote(command)}
code=$?
rank="${{SLURM_PROCID:-${{JOB_COMPLETION_INDEX:-0}}}}"
if [ -w "$bundle" ]; then echo "$code" > "$bundle/ended$([ "$rank" = 0 ] || echo ".$rank")"; fi
exit "$code"
"""


def _readme(launch: Launch, arm: str) -> str:
    if arm == ArmRun.Arm.TRIAL:
        return f"""Launch {launch.pk}: a trial of a campaign, {launch.steps} steps, submitted by ASAP Web.

Step times, log, memory and failure are reported automatically; what cannot be sent stays in ~/.cache/asap-report until
`python3 asap_report.py flush`.
"""
    return f"""Launch {launch.pk}, {arm} arm: {launch.repeats} repeats of {launch.steps} steps.

By hand: make a token on the page of the launch, then on each host, for each repeat from 1 to {launch.repeats}:

    ASAP_TOKEN=... ASAP_REPEAT=1 bash run.sh

Run the repeats of both arms in turn (proposal 1, control 1, proposal 2, ...), so that whatever changes on the cluster
meanwhile changes for both.  Step times, log, memory, failure and the profile of repeat 1 are reported by themselves;
what cannot be sent waits in ~/.cache/asap-report until `python3 asap_report.py flush`.
"""
