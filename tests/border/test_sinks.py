"""Text of users where it becomes arguments, file names, labels or shell: hostile values and what becomes of them.

Launch files of every tool are executed with hostile names and flags in tests/launch/test_tools.py, flags of the
compiler in test_compiler_flags.py, and file names of archives in tests/hostile/test_input.py.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from launches.backends import BackendError, JobSpec
from launches.backends.account import Account
from launches.backends.command import Command
from launches.backends.kubernetes_jobs import Identity, manifest
from launches.backends.slurm import Slurm
from launches.models import ArmRun, Launch
from launches.services import bundles, choices

HOSTILE = (
    "a; touch pwned", "$(touch pwned)", "`touch pwned`", "a\n#SBATCH --uid=0", "--uid=0 --wrap=id", "a b", "x'\"",
)  # fmt: skip
NAMES = ("partition", "account", "qos", "constraint", "gres", "image", "queue", "service_account")
#: Instead of Slurm: it keeps its arguments, one in a line, and says that it took the job.
SBATCH = """#!/bin/sh
for word; do printf '%s\\0' "$word"; done > "$(dirname "$0")/arguments"
echo 77
"""


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", "#!/bin/sh\n"), ("scontrol", "#!/bin/sh\nexit 1\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return tools


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", NAMES)
def test_hostile_name_is_refused_in_the_settings(name: str, value: str) -> None:
    with pytest.raises(choices.ChoiceError, match=name):
        choices.read({name: value})


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_label_is_refused_in_the_settings(value: str) -> None:
    for labels in ({value: "x"}, {"x": value}):
        with pytest.raises(choices.ChoiceError, match="node_selector"):
            choices.read({"node_selector": labels})


@pytest.mark.parametrize("value", HOSTILE)
def test_slurm_gets_a_value_as_one_argument(value: str, sbatch: Path, tmp_path: Path) -> None:
    Slurm(tmp_path).submit(JobSpec(name="asap-1-trial-1", files={"run.sh": ""}, values={"partition": value}))
    arguments = (sbatch / "arguments").read_bytes().decode().split("\0")
    assert f"--partition={value}" in arguments and "--export=NONE" in arguments and "--uid=0" not in arguments
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("job", ["1; touch pwned", "../../etc/1", "asap-1-trial-1 .*", "asap-1-trial-1 1 --uid=0"])
def test_log_of_a_hostile_job_is_empty(job: str, sbatch: Path, tmp_path: Path) -> None:
    (tmp_path / "asap-1-trial-1").mkdir()
    (tmp_path / "asap-1-trial-1" / "1_0_log.out").write_text("of another")
    assert Slurm(tmp_path).log(job) == b""


@pytest.mark.parametrize("value", HOSTILE)
def test_variables_of_a_bundle_are_text_in_its_shell(value: str, tmp_path: Path) -> None:
    files = {"run.sh": '. ./secret.env; printf %s "$GIVEN" > seen'}
    spec = JobSpec(name="asap-1-trial-1", files=files, environment={"GIVEN": value}, secret={"ASAP_TOKEN": value})
    Command(tmp_path, "sh -c 'cd {folder} && sh run.sh'").submit(spec)
    assert (tmp_path / spec.name / "seen").read_text() == value and not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("name", ["../outside", "/tmp/asap-outside", "a/../../outside"])
def test_bundle_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    with suppress(BackendError):
        Account(("PATH",)).write(inner, {name: "x"})
    assert {path for path in tmp_path.rglob("*") if path.is_file()} <= {inner / "tmp/asap-outside", inner / "outside"}
    assert not Path("/tmp/asap-outside").exists()


@pytest.mark.parametrize("server", ['http://x"; touch pwned; "', "http://$(touch pwned)", "http://`touch pwned`", "x'"])
def test_address_of_the_server_is_text_in_the_script(server: str, tmp_path: Path) -> None:
    launch = Launch(pk=1, tool="trial", server=server, repeats=1, steps=1)
    script = bundles.scripts(launch, ArmRun.Arm.TRIAL, "true")["run.sh"]
    export = next(line for line in script.splitlines() if line.startswith("export ASAP_URL"))
    shown = subprocess.run(
        ["bash", "-c", f'{export}\nprintf %s "$ASAP_URL"'], cwd=tmp_path, capture_output=True, text=True
    )
    assert shown.stdout == server and not list(tmp_path.iterdir())


def test_kubernetes_labels_hold_what_we_named_alone() -> None:
    values: dict[str, Any] = {"image": "a", "queue": "research", "node_selector": {"pool": "a"}}
    job = manifest(JobSpec(name="asap-1-trial-1", files={}, values=values), Identity("team"))
    assert job.metadata.labels == {"asap.run": "asap-1-trial-1", "kueue.x-k8s.io/queue-name": "research"}
    assert json.dumps(job.spec.template.spec.containers[0].command) == '["bash", "/asap/bundle/run.sh"]'
