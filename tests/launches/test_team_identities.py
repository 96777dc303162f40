"""Teams at a backend: two accounts on a real Slurm and on this machine, two namespaces of the API server's double."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launches import backends
from launches.backends import Backend, BackendError, JobSpec, JobState
from launches.services import bundles, choices, launching
from launches.services.launching import LaunchError
from tests.launches.fake_kubernetes import FakeKubernetes
from tests.launches.slurm_cluster import Cluster, missing

TEAMS = {"Vision": "asap-test-vision", "Language": "asap-test-language"}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run commands as two other users")


def run_as() -> str:
    if shutil.which("sudo"):
        return "sudo --preserve-env=SLURM_CONF -n -u {user} --"
    return "setpriv --reuid={user} --regid={user} --init-groups --"


@pytest.fixture(scope="module")
def accounts() -> Iterator[dict[str, pwd.struct_passwd]]:
    made = []
    for user in TEAMS.values():
        if subprocess.run(["id", user], capture_output=True).returncode:
            subprocess.run(["useradd", "--create-home", "--user-group", "--shell", "/bin/bash", user], check=True)
            made.append(user)
    yield {team: pwd.getpwnam(user) for team, user in TEAMS.items()}
    for user in made:
        subprocess.run(["userdel", "--remove", user], capture_output=True)


@pytest.fixture(scope="module")
def shared(accounts: dict[str, pwd.struct_passwd]) -> Iterator[Path]:
    """A folder with one of each account, as docs/launches.md says; pytest's own cannot be entered by other users."""
    with tempfile.TemporaryDirectory(prefix="asap-teams-") as place:
        os.chmod(place, 0o711)
        for account in accounts.values():
            folder = Path(place) / account.pw_name
            folder.mkdir(mode=0o700)
            os.chown(folder, account.pw_uid, account.pw_gid)
        yield Path(place)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="asap-slurm-") as place:
        found = Cluster(Path(place))
        yield found
        found.stop()


def of_teams(tmp_path: Path, key: str, section: str) -> dict[str, Backend]:
    path = tmp_path / "launch.toml"
    entries = "".join(f'[{key}.team.{team}]\nuser = "{user}"\n' for team, user in TEAMS.items())
    path.write_text(f'[{key}]\nrun_as = "{run_as()}"\n{section}\n{entries}')
    enabled = backends.read(path)
    return {team: backends.backend(enabled, key, team, tmp_path / "bundles") for team in TEAMS}


def eventually(condition: Callable[[], object], within_s: float = 90.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.3)


def spec(name: str, script: str) -> JobSpec:
    return JobSpec(name=name, files={"run.sh": script}, secret={"ASAP_TOKEN": f"token-of-{name}"}, time_limit_min=5)


#: What one team's job tries against another's, which runs beside it.
ATTACK = """id -un
for target in {place} {place}/secret.env {place}/run.sh; do ls "$target" && cat "$target"; done
for process in /proc/[0-9]*; do tr '\\0' '\\n' < $process/environ | grep token-of-asap-1; done
echo stolen > {place}/run.sh; touch {place}/new; kill -9 -1
echo attacked
"""


def attacked(teams: dict[str, Backend], shared: Path, stop: Callable[[str], None]) -> tuple[bytes, bytes]:
    """What the jobs of both teams wrote, after the second one has attacked the first."""
    victim, attacker = teams["Vision"], teams["Language"]
    hidden = shared / TEAMS["Vision"] / "asap-1-trial-1"
    owned = victim.submit(spec("asap-1-trial-1", ". ./secret.env\nid -un; sleep 8; echo survived\n"))
    eventually(lambda: victim.status(owned).state == JobState.RUNNING)
    theirs = attacker.submit(spec("asap-2-trial-1", f"trap '' TERM\n({ATTACK.format(place=hidden)}) 2>&1\n"))
    stop(owned.rpartition(" ")[2])
    eventually(lambda: b"survived" in victim.log(owned) or victim.status(owned).ended)
    eventually(lambda: attacker.status(theirs).ended)
    assert (hidden.stat().st_mode & 0o777, hidden.owner()) == (0o700, TEAMS["Vision"])
    assert all(path.stat().st_mode & 0o077 == 0 for path in hidden.iterdir() if not path.name.endswith(".out"))
    assert not (hidden / "new").exists() and "stolen" not in (hidden / "run.sh").read_text()
    return victim.log(owned), attacker.log(theirs)


@pytest.mark.slow
@as_root
@pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here")
def test_slurm_jobs_of_two_teams_run_as_two_users_who_reach_nothing_of_each_other(
    cluster: Cluster, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    teams = of_teams(tmp_path, "slurm", f'folder = "{shared}"')

    def cancel_as_the_other(job: str) -> None:
        with pytest.raises(BackendError, match="did not cancel"):
            teams["Language"].cancel(f"asap-1-trial-1 {job}")

    seen, found = attacked(teams, shared, cancel_as_the_other)
    assert TEAMS["Vision"].encode() in seen and b"survived" in seen
    assert TEAMS["Language"].encode() in found and b"token-of-asap-1" not in found
    # A job of another user with our name is not taken for ours.
    again = teams["Language"].submit(spec("asap-1-trial-1", "id -un\n"))
    eventually(lambda: teams["Language"].status(again).ended)
    assert TEAMS["Language"].encode() in teams["Language"].log(again)


@pytest.mark.slow
@as_root
def test_commands_of_two_teams_run_as_two_users_who_reach_nothing_of_each_other(shared: Path, tmp_path: Path) -> None:
    for left in shared.glob("*/asap-*"):
        shutil.rmtree(left)
    submit = "bash -c 'cd {folder}; bash {script}; echo $? > ended'"
    section = f'folder = "{shared}"\nsubmit = "{submit}"\nbackground = true'
    seen, found = attacked(of_teams(tmp_path, "command.here", section), shared, lambda job: None)
    assert TEAMS["Vision"].encode() in seen and b"survived" in seen
    assert TEAMS["Language"].encode() in found and b"token-of-asap-1" not in found


def test_a_backend_without_an_identity_for_a_team_is_not_its(tmp_path: Path) -> None:
    path = tmp_path / "launch.toml"
    path.write_text(
        '[slurm]\nfolder = "/shared"\nrun_as = "sudo -u {user}"\n[slurm.team.Vision]\nuser = "asap-vision"\n'
    )
    enabled = backends.read(path)
    assert backends.backend(enabled, "slurm", "Vision", tmp_path).folder == Path("/shared/asap-vision")
    with pytest.raises(BackendError, match="no identity for the team Language"):
        backends.backend(enabled, "slurm", "Language", tmp_path)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[slurm]\nfolder = "/s"\n[slurm.team.Vision]\nuser = "a"\n', "run_as"),
        ('[slurm]\nfolder = "/s"\n[slurm.team.Vision]\n', "user is missing"),
        ('[slurm]\nfolder = "/s"\nrun_as = "sudo -u {user}"\n[slurm.team.Vision]\nuser = "a; id"\n', "user"),
        ('[kubernetes.team.Vision]\nnamespace = "one"\n[kubernetes.team.Language]\nnamespace = "one"\n', "namespace"),
        ('[kubernetes.team.Vision]\nnamespace = "One/../x"\n', "namespace"),
        ('[slurm]\nshared = true\nfolder = "/s"\nallow = {image = ["*"]}\n', "allow.image"),
    ],
)
def test_a_launch_configuration_without_isolation_is_refused(text: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "launch.toml").write_text(text)
    with pytest.raises(BackendError, match=place):
        backends.read(tmp_path / "launch.toml")


def test_a_team_names_what_the_operator_lists(tmp_path: Path) -> None:
    path = tmp_path / "launch.toml"
    path.write_text(
        '[kubernetes]\nallow = {image = ["registry/train/*"]}\n[kubernetes.team.Vision]\nnamespace = "vision"\n'
        'allow = {image = ["registry/vision/*"], node_selector = ["pool=vision"]}\n'
        '[kubernetes.team.Language]\nnamespace = "language"\n'
        '[slurm]\nshared = true\nfolder = "/s"\nallow = {partition = ["train"]}\n'
    )
    enabled = backends.read(path)
    enabled.check("kubernetes", "Vision", {"image": "registry/vision/a:1", "node_selector": {"pool": "vision"}})
    enabled.check("kubernetes", "Language", {"image": "registry/train/a:1"})
    enabled.check("slurm", "Vision", {"partition": "train", "gres": "gpu:8"})
    for key, team, values in (
        ("kubernetes", "Vision", {"image": "registry/train/a:1"}),
        ("kubernetes", "Language", {"image": "registry/vision/a:1"}),
        ("kubernetes", "Vision", {"image": "registry/vision/a:1", "service_account": "admin"}),
        ("kubernetes", "Vision", {"image": "registry/vision/a:1", "node_selector": {"pool": "language"}}),
        ("slurm", "Vision", {"partition": "urgent"}), ("slurm", "Vision", {"account": "language"}),
        ("slurm", "Vision", {"qos": "high"}),
    ):  # fmt: skip
        with pytest.raises(BackendError, match="not allowed"):
            enabled.check(key, team, values)


def test_pods_of_two_teams_run_restricted_in_two_namespaces(tmp_path: Path) -> None:
    fake = FakeKubernetes()
    fake.namespaces, fake.restricted = {"vision", "language"}, True
    (tmp_path / "kubeconfig").write_text(fake.kubeconfig())
    path = tmp_path / "launch.toml"
    path.write_text(
        f'[kubernetes]\nkubeconfig = "{tmp_path}/kubeconfig"\nallow = {{image = ["*"]}}\n'
        '[kubernetes.team.Vision]\nnamespace = "vision"\nservice_account = "trainer"\n'
        '[kubernetes.team.Language]\nnamespace = "language"\n'
    )
    try:
        enabled = backends.read(path)
        vision = backends.backend(enabled, "kubernetes", "Vision", tmp_path)
        job = vision.submit(JobSpec(name="asap-1-trial-1", files={"run.sh": ""}, values={"image": "a"}))
        pod = fake.objects["jobs", job]["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == "trainer" and pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["fsGroup"] == 1000  # else the pod could not read its token
        assert {path.split("/namespaces/")[1].split("/")[0] for _, path in fake.requests} == {"vision"}
        fake.requests.clear()
        backends.backend(enabled, "kubernetes", "Language", tmp_path).status(job)
        assert {path.split("/namespaces/")[1].split("/")[0] for _, path in fake.requests} == {"language"}
    finally:
        fake.stop()


def test_lines_that_run_on_the_server_are_the_operators(
    people: Any, approved: Any, settings: Any, tmp_path: Path
) -> None:
    operator = tmp_path / "launch.toml"
    settings.LAUNCH_CONFIG = str(operator)
    here = '[command.here]\nshared = true\nbackground = true\nsubmit = "bash {script}"\n'

    def drafted() -> Any:
        return launching.launch(approved, people.engineer, tool="own", repeats=2, steps=30, server="http://testserver")

    operator.write_text(here)
    for values in ({"setup": "env > /tmp/x"}, {"command": "env > /tmp/x"}):
        with pytest.raises(choices.ChoiceError, match="runs them on this server"):
            choices.save(people.team, people.administrator, "command.here", values)
        body = {"backend": "command.here", **values}
        assert people.client("administrator").post("/settings/launching/", body).status_code == 422
    operator.write_text(here + "team_lines = true\n")
    choices.save(people.team, people.administrator, "command.here", {"setup": "of the team", "command": "true"})
    operator.write_text(here)
    with pytest.raises(LaunchError, match="runs them on this server"):  # also what was saved before
        drafted()
    choices.save(people.team, people.administrator, "command.here", {})
    operator.write_text(here + 'setup = "of the operator"\ncommand = "train --fast"\n')
    script = bundles.of_arm(drafted(), "proposal")["run.sh"]
    assert "\nof the operator\n" in script and "'train --fast'" in script
