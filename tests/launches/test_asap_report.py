"""`asap_report.py` as a cluster runs it: the oldest Python at hand, no packages, over HTTP, with a bad network."""

from __future__ import annotations

import ast
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from launches.models import ReportFile
from launches.services import bundles, choices, launching
from tests.campaigns.cluster import enable
from tests.launches.reports import work

pytestmark = pytest.mark.django_db(transaction=True)

MAXTEXT = "I0822 metric_logger.py:181] completed step: {0}, seconds: {1:.3f}, TFLOP/s/device: 38.1, loss: 1.0"
MEGATRON = " iteration {0:8d}/ 100 | elapsed time per iteration (ms): {1:.1f} | max allocated: 2048.0 |"


def pythons() -> list[str]:
    """The newest and, where there is one, Python 3.8."""
    found = shutil.which("python3.8")
    works = found and subprocess.run([found, "--version"], capture_output=True).returncode == 0
    return [sys.executable, *([found] if found and works else [])]


class Network:
    """Between the script and the server.  lose: so many answers in a row are lost once their requests were done."""

    def __init__(self, target: str) -> None:
        self.address = urlsplit(target)
        self.lose = 0
        self.pieces: list[int] = []
        handler = type("Handler", (_Handler,), {"network": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    network: Network

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command == "PATCH":
            self.network.pieces.append(int(self.headers["Upload-Offset"]))
        onward = http.client.HTTPConnection(self.network.address.netloc)
        onward.request(self.command, self.path, body, dict(self.headers))
        answer = onward.getresponse()
        content = answer.read()
        if self.network.lose:
            self.network.lose -= 1
            self.close_connection = True
            return  # the connection breaks before the answer
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() in ("content-type", "retry-after"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_PUT = do_PATCH = _pass

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def network(live_server: Any) -> Iterator[Network]:
    found = Network(live_server.url)
    yield found
    found.stop()


def call(
    arguments: list[str],
    folder: Path,
    network: Network,
    launch: Any,
    token: str,
    python: str = sys.executable,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "ASAP_URL": network.url, "ASAP_TOKEN": token,
        "ASAP_LAUNCH": str(launch.pk), "ASAP_ARM": "proposal", "ASAP_REPEAT": "1", **more,
    }  # fmt: skip
    script = [python, "-I", "-S", str(bundles.REPORT), "--patience", "20"]
    return subprocess.run(
        [*script, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


def training(folder: Path, line: str, code: int = 0, scale: float = 1.0) -> str:
    """A program that prints as a training program does and leaves a profile."""
    place = folder / "out" / "plugins" / "profile" / "1"
    text = (
        "import os, sys, time\n"
        f"os.makedirs({str(place)!r}, exist_ok=True)\n"
        f"open({str(place / 'host0.xplane.pb')!r}, 'wb').write(os.urandom(100_000))\n"
        f"open({str(place / 'host0.trace.json.gz')!r}, 'wb').write(b'a second copy')\n"
        f"[print({line!r}.format(n, {scale} * (30.0 if n == 0 else 1.5 + n / 1000)), flush=True) for n in range(15)]\n"
        f"sys.exit({code})\n"
    )
    (folder / "train.py").write_text(text)
    return str(folder / "train.py")


@pytest.mark.parametrize("python", pythons())
def test_a_training_run_comes_back_with_times_log_and_profile(python, people, launch, token, network, tmp_path):
    program = training(tmp_path, MAXTEXT)
    done = call(["run", "--profile", "out", "--", sys.executable, program], tmp_path, network, launch, token, python)
    assert done.returncode == 0 and "Reported" in done.stderr, done.stderr
    assert done.stdout.count("completed step") == 15  # the log of the job is what it was
    run = launch.runs.get(arm="proposal", repeat=1)
    assert run.status == "collecting" and run.median_step_s == pytest.approx(1.507, abs=1e-3)
    kinds = dict(ReportFile.objects.values_list("kind", "name"))
    assert set(kinds) == {"log", "profile"} and kinds["profile"] == "host0.xplane.pb.gz"
    assert ReportFile.objects.filter(complete=True).count() == 2
    assert not list((tmp_path / ".cache" / "asap-report").iterdir())


def test_megatrons_times_and_memory(people, launch, token, network, tmp_path):
    program = training(tmp_path, MEGATRON, scale=1000.0)
    call(["run", "--", sys.executable, program], tmp_path, network, launch, token)
    run = launch.runs.get(arm="proposal", repeat=1)
    assert run.median_step_s == pytest.approx(1.507, abs=1e-3) and run.peak_memory_bytes == 2048 * 2**20


def test_a_run_that_fails_says_so_and_keeps_its_exit_status(people, launch, token, network, tmp_path):
    program = training(tmp_path, "RESOURCE_EXHAUSTED: Out of memory allocating {0} bytes.", code=41)
    done = call(["run", "--", sys.executable, program], tmp_path, network, launch, token)
    assert done.returncode == 41
    work(launch)
    run = launch.runs.get(arm="proposal", repeat=1)
    assert run.status == "failed" and run.failure == "Exit status 41." and run.analysis["cause"] == "out_of_memory"
    absent = call(["run", "--", "./no-such-program"], tmp_path, network, launch, token, ASAP_REPEAT="2")
    assert absent.returncode == 127


def test_what_runs_longer_than_its_time_limit_is_ended_whatever_it_does(people, launch, token, network, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        "open('training', 'w').write(str(os.getpid()))\n"
        "time.sleep(100)\n"
    )
    short = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import asap_report; asap_report.GRACE_S = 1;"
        "sys.exit(asap_report.main())"
    )
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "ASAP_URL": network.url, "ASAP_TOKEN": token,
        "ASAP_LAUNCH": str(launch.pk), "ASAP_ARM": "proposal", "ASAP_REPEAT": "1", "ASAP_TIME_LIMIT_MIN": "0.02",
    }  # fmt: skip
    command = [sys.executable, "-c", short, str(bundles.REPORT.parent), "run", "--", sys.executable, str(program)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 124 and "Terminated at its time limit of 0.02 min." in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "training").read_text()), 0)
    work(launch)
    assert launch.runs.get(arm="proposal", repeat=1).analysis["cause"] == "time_limit"


def test_a_command_on_this_machine_ends_at_its_time_limit_and_the_page_says_so(
    people, approved, live_server, settings, tmp_path
):
    operator = 'submit = "bash {script}"\nbackground = true'
    shorter = 'echo "limit $ASAP_TIME_LIMIT_MIN" >&2; export ASAP_TIME_LIMIT_MIN=0.02'
    values = {"setup": f"{shorter}\nexport ASAP_SPOOL={tmp_path}/spool", "command": "sleep 100", "time_limit_min": 7}
    enable(people, settings, tmp_path, operator, **values)
    made = launching.launch(approved, people.engineer, tool="own", repeats=1, steps=30, server=live_server.url)
    work(made)
    end = time.monotonic() + 60
    while made.closed_at is None:
        assert time.monotonic() < end
        time.sleep(0.2)
        work(made)
    run = made.runs.get(arm="proposal")
    log = choices.backend("command.here", run.launch.team).log(run.job).decode()
    assert "limit 7" in log and "Terminated at its time limit of 0.02 min." in log
    page = people.client("viewer").get(f"/proposals/{approved.pk}/launches/").content.decode()
    assert "Time limit" in page and "The job reached its time limit." in page


def test_lost_answers_send_no_byte_twice_that_arrived(people, launch, token, network, tmp_path):
    big = tmp_path / "host0.xplane.pb"
    big.write_bytes(os.urandom(9_500_000))  # three pieces, as it does not compress
    times = tmp_path / "times.json"
    times.write_text(json.dumps([1.0] * 12))
    network.lose = 2
    done = call(["send", "--step-times", str(times), "--profile", str(big)], tmp_path, network, launch, token)
    assert done.returncode == 0, done.stderr
    assert sorted(set(network.pieces)) == [0, 4 * 2**20, 8 * 2**20]
    assert launch.runs.get(arm="proposal", repeat=1).status == "collecting"
    assert ReportFile.objects.get().complete


def test_a_server_that_is_away_is_no_reason_to_lose_anything(people, launch, token, network, tmp_path):
    program = training(tmp_path, MAXTEXT)
    away = {"ASAP_URL": "http://127.0.0.1:9"}
    arguments = ["--patience", "1", "run", "--profile", "out", "--", sys.executable, program]
    done = call(arguments, tmp_path, network, launch, token, **away)
    assert done.returncode == 0 and "Send it with asap_report.py flush" in done.stderr
    shutil.rmtree(tmp_path / "out")  # the disk of a pod goes with it
    spool = tmp_path / ".cache" / "asap-report"
    assert token not in "".join(path.read_text(errors="replace") for path in spool.rglob("*") if path.is_file())
    assert spool.stat().st_mode & 0o077 == 0
    assert call(["--patience", "1", "flush"], tmp_path, network, launch, token, **away).returncode == 3
    assert call(["flush"], tmp_path, network, launch, token).returncode == 0
    run = launch.runs.get(arm="proposal", repeat=1)
    assert run.status == "collecting" and run.files.filter(kind="profile", complete=True).count() == 1
    assert call(["flush"], tmp_path, network, launch, token).returncode == 0  # nothing is left


def test_what_is_refused_is_one_sentence_and_kept(people, launch, token, network, tmp_path):
    log = tmp_path / "run.log"
    log.write_text("asap_step_time_s=1.5\n" * 12)
    wrong = call(["send", "--log", str(log)], tmp_path, network, launch, "not-a-token")
    assert wrong.returncode == 2 and wrong.stderr.startswith("Not reported:") and "kept in" in wrong.stderr
    assert call(["flush"], tmp_path, network, launch, token).returncode == 0
    launching.cancel(launch, people.engineer)
    for arguments, more in ((["send", "--log", "absent"], {}), (["run", "--"], {}), (["send"], {"ASAP_ARM": ""}),
                            (["flush"], {"ASAP_URL": "ftp://x"}), (["send"], {"ASAP_URL": "ftp://x"})):  # fmt: skip
        done = call(arguments, tmp_path, network, launch, token, **more)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 2 or arguments == ["flush"]


def test_ranks_report_for_themselves(people, launch, token, network, tmp_path):
    log = tmp_path / "run.log"
    log.write_text("asap_step_time_s=1.5\n" * 12)
    ranks = {"SLURM_NTASKS": "2"}
    assert (
        call(["send", "--log", str(log)], tmp_path, network, launch, token, SLURM_PROCID="0", **ranks).returncode == 0
    )
    run = launch.runs.get(arm="proposal", repeat=1)
    assert run.status == "submitted" and set(run.reports) == {"0"}
    call(["send"], tmp_path, network, launch, token, SLURM_PROCID="1", **ranks)
    run.refresh_from_db()
    assert run.status == "collecting" and set(run.reports) == {"0", "1"}


def test_it_needs_nothing_but_python_3_8():
    source = bundles.REPORT.read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    imported = {
        name.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    assert imported <= sys.stdlib_module_names


def test_it_can_be_downloaded_without_signing_in(client):
    answer = client.get("/asap_report.py")
    assert answer.status_code == 200 and answer.content == bundles.REPORT.read_bytes()
