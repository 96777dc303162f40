"""The deployment of deploy/: its files agree, and its processes run as they say, under the same environment."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from asapweb.launcher.redis import place_redis
from experiments.samples.samples import SAMPLES
from tests.launcher.application import CODE, eventually, new_folder
from tests.launcher.foreign import free_port, missing, postgresql_over_tcp, with_pgvector

DEPLOY = CODE / "deploy"
PROCESSES = ("prepare", "web", "worker", "answerer", "beat")
SAMPLE = next(sample for sample in SAMPLES if sample.key == "cpu-data8")


def unit(name: str) -> str:
    return (DEPLOY / "systemd" / f"asap-{name}.service").read_text()


def files_of(name: str) -> list[str]:
    """Return the environment files that a unit reads."""
    return re.findall(r"^EnvironmentFile=/etc/asap-web/(\w+)\.env$", unit(name), re.MULTILINE)


def variables_in(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)  # type: ignore[misc]


def test_containers_and_units_read_the_same_environment_files() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name in PROCESSES:
        assert services[name]["env_file"] == [f"env/{file}.env" for file in files_of(name)], name
        assert services[name]["command"] == [name]
        assert f"ExecStart=/opt/asap-web/deploy/start {name}\n" in unit(name)
    assert all("latest" not in service.get("image", "") for service in services.values())
    for name in ("database", "broker"):
        assert "ports" not in services[name] and services[name]["networks"] == ["inside"]


def test_compose_file_is_valid(tmp_path: Path) -> None:
    program = shutil.which("docker-compose")
    if program is None:
        missing("docker-compose")
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("*.env"))
    subprocess.run([tmp_path / "deploy" / "init", "asap.example.org"], check=True, capture_output=True)
    command = [str(program), "-f", str(tmp_path / "deploy" / "compose.yaml"), "config"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert "DATABASE_URL" not in services["beat"]["environment"] and "SECRET_KEY" in services["web"]["environment"]


def test_units_are_valid(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        missing("systemd")
    for path in (DEPLOY / "systemd").glob("asap*"):
        text = path.read_text().replace("/opt/asap-web", str(CODE)).replace("User=asap", "User=daemon")
        (tmp_path / path.name).write_text(text)
    done = subprocess.run(
        [str(program), "verify", *map(str, tmp_path.iterdir())], capture_output=True, text=True, timeout=60
    )
    complaints = [line for line in done.stderr.splitlines() if "asap" in line]
    assert (done.returncode, complaints) == (0, [])


def test_scripts_are_shell_and_run_programs_as_their_units_do(tmp_path: Path) -> None:
    for name in ("as", "init", "start"):
        subprocess.run(["sh", "-n", DEPLOY / name], check=True)
    (tmp_path / "systemd-run").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "systemd-run").chmod(0o755)
    given = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = [DEPLOY / "as", "prepare", ".venv/bin/asap", "backup", "/backups/today"]
    asked = subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout.splitlines()
    assert asked[asked.index("--") + 1 :] == [str(CODE / ".venv/bin/asap"), "backup", "/backups/today"]
    properties = [line.removeprefix("--property=") for line in asked if line.startswith("--property=")]
    files = [f"EnvironmentFile=/etc/asap-web/{name}.env" for name in ("database", "broker")]
    assert properties == ["Environment=ASAP_HOME=/var/lib/asap-web", *files]
    assert subprocess.run([DEPLOY / "as", "web"], env=given, capture_output=True).returncode == 2


def test_new_passwords_are_long_and_never_written_over(tmp_path: Path) -> None:
    made = subprocess.run([DEPLOY / "init", "asap.example.org", tmp_path / "env"], capture_output=True, text=True)
    assert made.returncode == 0
    secret = {path.stem: variables_in(path) for path in (tmp_path / "env").iterdir()}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "env").iterdir())
    assert len(secret["web"]["SECRET_KEY"]) >= 50
    assert secret["postgres"]["POSTGRES_PASSWORD"] in secret["database"]["DATABASE_URL"]
    assert secret["redis"]["BROKER_PASSWORD"] in secret["broker"]["CELERY_BROKER_URL"]
    assert not any(value in made.stdout for value in secret["web"].values() if len(value) > 20)
    again = subprocess.run([DEPLOY / "init", "other.example.org", tmp_path / "env"], capture_output=True, text=True)
    assert (again.returncode, variables_in(tmp_path / "env" / "web.env")) == (2, secret["web"])


class Deployment:
    """The processes of the units, each with the environment that its unit gives it and nothing else."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def environment(self, name: str) -> dict[str, str]:
        given = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit(name), re.MULTILINE))
        for file in files_of(name):
            given |= variables_in(self.folder / "env" / f"{file}.env")
        home = given["ASAP_HOME"].replace("/var/lib", str(self.folder)).replace("/run", str(self.folder))
        Path(home).mkdir(exist_ok=True, mode=0o700)
        return {**given, "ASAP_HOME": home, "PATH": "/usr/bin:/bin", "PORT": str(self.port), "LANG": "C.UTF-8"}

    def start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", DEPLOY / "start", name], env=self.environment(name),
                stdout=log, stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip

    def run(self, name: str, *command: str) -> str:
        """Run a command as the guide does, in the environment of a process."""
        done = subprocess.run(
            [CODE / ".venv" / "bin" / command[0], *command[1:]], env=self.environment(name), cwd=CODE,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    """Set up as docs/deployment.md says, with a PostgreSQL and a Redis over TCP."""
    folder = new_folder()
    broker_port, made = free_port(), ExitStack()
    subprocess.run(
        [DEPLOY / "init", "localhost", folder / "env"], check=True, capture_output=True,
        env={"PATH": os.environ["PATH"], "ASAP_BROKER": f"127.0.0.1:{broker_port}"},
    )  # fmt: skip
    with made:
        made.callback(shutil.rmtree, folder, ignore_errors=True)
        password = variables_in(folder / "env" / "redis.env")["BROKER_PASSWORD"]
        redis = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", place_redis(folder).program, "--port", str(broker_port), "--bind",
             "127.0.0.1", "--requirepass", password, "--dir", folder, "--appendonly", "yes"],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        made.callback(redis.wait)
        made.callback(redis.terminate)
        database = made.enter_context(postgresql_over_tcp(folder, with_pgvector(folder), prepared=True))
        (folder / "env" / "database.env").write_text(f"DATABASE_URL={database}\n")
        running = Deployment(folder, free_port())
        made.callback(running.stop)
        running.start("prepare")
        assert running.processes["prepare"].wait(180) == 0, (folder / "prepare.log").read_text()
        for name in PROCESSES[1:]:
            running.start(name)
        yield running


def test_each_process_sees_what_its_unit_names_and_no_more(deployment: Deployment) -> None:
    secret = {"DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY", "ASAP_METRICS_TOKEN"}
    expected = {
        "web": secret,
        "worker": {"DATABASE_URL", "CELERY_BROKER_URL"},
        "answerer": {"DATABASE_URL", "CELERY_BROKER_URL"},
        "beat": {"CELERY_BROKER_URL"},
    }
    every = secret | {"POSTGRES_PASSWORD", "BROKER_PASSWORD"}
    for name, names in expected.items():
        process = deployment.processes[name]
        # A process that has only just started is still its starter, which has less.
        assert eventually(lambda of=process, names=names: _variables(of.pid) & every == names, 30), name
        assert process.poll() is None, (deployment.folder / f"{name}.log").read_text()


def _variables(pid: int) -> set[str]:
    return {part.split(b"=")[0].decode() for part in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}


def test_profile_uploaded_through_the_proxy_is_analysed(deployment: Deployment) -> None:
    """Over TLS that is verified, with the certificate of the proxy's own authority."""
    if shutil.which("caddy") is None:
        missing("caddy")
    ports = free_port(), free_port()
    variables = {
        **variables_in(deployment.folder / "env" / "proxy.env"), "ASAP_TLS": "tls internal",
        "ASAP_UPSTREAM": f"127.0.0.1:{deployment.port}", "ASAP_HTTP_PORT": str(ports[0]),
        "ASAP_HTTPS_PORT": str(ports[1]), "PATH": "/usr/bin:/bin", "HOME": str(deployment.folder),
        "XDG_DATA_HOME": str(deployment.folder / "proxy"),
    }  # fmt: skip
    with (deployment.folder / "proxy.log").open("wb") as log:
        proxy = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", "caddy", "run", "--config", DEPLOY / "Caddyfile", "--adapter",
             "caddyfile"], env=variables, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        browser = Browser(ports[1], deployment.folder / "proxy/caddy/pki/authorities/local/root.crt")
        assert eventually(browser.is_ready, 60), (deployment.folder / "proxy.log").read_text()[-2000:]
        plain = http.client.HTTPConnection("localhost", ports[0], timeout=20)
        plain.request("GET", "/")
        assert plain.getresponse().status == 308
        link = deployment.run("web", "python", "manage.py", "sign_in_link").strip()
        assert link.startswith("https://localhost/sign-in/")
        path = link.removeprefix("https://localhost")
        browser.ask("GET", path)
        browser.ask("POST", path, urlencode({"csrfmiddlewaretoken": browser.cookies["csrftoken"]}), FORM)
        assert browser.flags["sessionid"] >= {"Secure", "HttpOnly"}
        answer = browser.upload()
        assert answer["state"] == "uploaded"
        look = f"/api/experiments/{answer['id']}/"
        assert eventually(lambda: json.loads(browser.ask("GET", look)[1])["state"] == "ready", 120)
    finally:
        proxy.terminate()
        proxy.wait(20)


def test_deployment_is_backed_up_by_the_command_of_the_guide(deployment: Deployment) -> None:
    target = deployment.folder / "backup"
    made = json.loads(deployment.run("prepare", "asap", "backup", str(target), "--json"))
    assert made["files"] > 1 and (target / "manifest.json").exists()


FORM = "application/x-www-form-urlencoded"


class Browser:
    """Trusts the certificate at `authority`, and keeps cookies."""

    def __init__(self, port: int, authority: Path) -> None:
        self.port, self.authority = port, authority
        self.cookies: dict[str, str] = {}
        self.flags: dict[str, set[str]] = {}

    def is_ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            time.sleep(0.2)
            return False

    def ask(self, method: str, path: str, body: Any = None, kind: str = "") -> tuple[int, str]:
        trust = ssl.create_default_context(cafile=str(self.authority))
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=60, context=trust)
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        headers |= {"Content-Type": kind, "Referer": "https://localhost/", "Host": "localhost"} if kind else {}
        if "csrftoken" in self.cookies:
            headers["X-CSRFToken"] = self.cookies["csrftoken"]
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        for cookie in answer.headers.get_all("Set-Cookie", []):
            pair, *flags = cookie.split("; ")
            name, _, value = pair.partition("=")
            self.cookies[name], self.flags[name] = value, set(flags)
        return answer.status, answer.read().decode()

    def upload(self) -> dict[str, Any]:
        mark = "part-of-a-form"
        body = b""
        for path in SAMPLE.files:
            head = f'--{mark}\r\nContent-Disposition: form-data; name="files"; filename="{path.name}"\r\n\r\n'
            body += head.encode() + path.read_bytes() + b"\r\n"
        head = f'--{mark}\r\nContent-Disposition: form-data; name="config"\r\n\r\n'
        body += head.encode() + SAMPLE.config.read_bytes() + f"\r\n--{mark}--\r\n".encode()
        status, text = self.ask("POST", "/api/experiments/", body, f"multipart/form-data; boundary={mark}")
        assert status == 201, text
        made: dict[str, Any] = json.loads(text)
        return made
