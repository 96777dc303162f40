"""What the operator enables, what a team chooses, and commands in place of an engine."""

from __future__ import annotations

import time

import pytest

from launches import backends
from launches.backends import BackendError, JobSpec, JobState
from launches.backends.command import Command
from launches.services import choices


def spec(name: str, script: str) -> JobSpec:
    return JobSpec(name=name, files={"run.sh": script}, secret={"ASAP_TOKEN": "x"}, hosts=2)


def test_a_command_is_run_once_without_a_shell(tmp_path):
    command = Command(tmp_path, f"touch '{tmp_path}/{{name}}; rm -rf x' {tmp_path}/{{hosts}}")
    job = command.submit(spec("asap-1-proposal-1", "true"))
    (tmp_path / "2").unlink()
    assert command.submit(spec("asap-1-proposal-1", "true")) == job and not (tmp_path / "2").exists()
    assert (tmp_path / "asap-1-proposal-1; rm -rf x").exists()
    assert command.status(job).state == JobState.WAITING


def test_a_command_on_this_machine_is_followed_and_cancelled(tmp_path):
    here = Command(tmp_path, "bash {script}", background=True)
    job = here.submit(spec("asap-1-proposal-1", "echo begun; exec sleep 100"))
    assert here.status(job).state == JobState.RUNNING
    here.cancel(job)
    end = time.monotonic() + 30
    while here.status(job).state != JobState.GONE:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert not (tmp_path / "asap-1-proposal-1" / "secret.env").exists()
    here.cancel(job)


def test_the_words_of_a_status_command_and_its_refusals(tmp_path):
    command = Command(tmp_path, "echo 77", status="echo failed {job} ran out of quota")
    job = command.submit(spec("asap-1-control-1", "true"))
    assert command.status(job).state == JobState.FAILED and command.status(job).reason == "77 ran out of quota"
    for template, words in (("echo {secret}", "not a placeholder"), ("echo '", "cannot be read"), (" ", "empty")):
        with pytest.raises(BackendError, match=words):
            Command(tmp_path, template)
    with pytest.raises(BackendError, match="ended with status 1"):
        Command(tmp_path, "false").submit(spec("asap-2-control-1", "true"))


@pytest.mark.slow
def test_only_what_the_operator_enables_is_there(tmp_path):
    assert backends.read(None).keys == ("manual",)
    path = tmp_path / "launch.toml"
    path.write_text('[slurm]\nfolder = "/shared"\nshared = true\n[command.xpk]\nsubmit = "xpk {name}"\n')
    assert backends.read(path).keys == ("manual", "slurm", "command.xpk")
    with pytest.raises(BackendError, match="not enabled"):
        backends.backend(backends.read(path), "kubernetes", "Vision", tmp_path)
    for text, words in (("[slurm]\n", "slurm.folder"), ("[pbs]\n", "pbs"), ("[", "not valid TOML"),
                        ('[command.x]\nsubmit = "{evil}"\n', "not a placeholder")):  # fmt: skip
        path.write_text(text)
        with pytest.raises(BackendError, match=words):
            backends.read(path)


def test_settings_of_a_backend_are_shown_where_it_is_enabled_or_one_is_set(people, tmp_path, settings):
    def shown() -> tuple[bool, bool]:
        page = people.client("administrator").get("/settings/launching/").content.decode()
        assert "Launch token lifetime" in page
        return "Quality of service" in page, "Kueue queue" in page

    assert shown() == (False, False)
    path = tmp_path / "launch.toml"
    path.write_text('[slurm]\nfolder = "/shared"\nshared = true\nallow = {partition = ["train"]}\n')
    settings.LAUNCH_CONFIG = str(path)
    assert shown() == (True, False)
    choices.save(people.team, people.administrator, "slurm", {"partition": "train", "queue": "research"})
    assert shown() == (True, True)
    settings.LAUNCH_CONFIG = ""
    assert shown() == (True, True)
    administrator = people.client("administrator")
    refused = administrator.post("/settings/launching/", {"backend": "manual", "partition": "a; b"}).content.decode()
    assert 'value="a; b"' in refused and "Kueue queue" not in refused


def test_an_administrator_chooses_among_them(people, tmp_path, settings):
    path = tmp_path / "launch.toml"
    path.write_text('[slurm]\nfolder = "/shared"\nshared = true\nallow = {partition = ["train"]}\n')
    settings.LAUNCH_CONFIG = str(path)
    administrator = people.client("administrator")
    page = administrator.get("/settings/launching/").content.decode()
    assert 'value="slurm"' in page and 'value="kubernetes"' not in page
    assert people.team.name in page and ">Save</button>" in page
    assert (
        "Only an administrator of the team can change these settings."
        in people.client("engineer").get("/settings/launching/").content.decode()
    )
    body = {"backend": "slurm", "partition": "train", "setup": "module load jax", "time_limit_min": "90"}
    assert administrator.post("/settings/launching/", body).status_code == 302
    saved = choices.of_team(people.team)
    assert saved.backend == "slurm"
    assert saved.values == {"partition": "train", "setup": "module load jax", "time_limit_min": 90}
    for wrong, words in (({"partition": "a; rm -rf /"}, "partition"), ({"backend": "kubernetes"}, "not enabled"),
                         ({"token_days": "x"}, "token_days"), ({"server": "ftp://x"}, "server")):  # fmt: skip
        answer = administrator.post("/settings/launching/", {**body, **wrong})
        assert answer.status_code == 422 and words in answer.content.decode()
    assert choices.of_team(people.team).values["partition"] == "train"
    assert people.client("engineer").post("/settings/launching/", body).status_code == 403
