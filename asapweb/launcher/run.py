"""`asap run`: everything, from an empty folder to a page in the browser, and down again."""

from __future__ import annotations

import http.client
import json
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from django.core.exceptions import ImproperlyConfigured

from asapweb.environment import database_arguments, flag, home_folder
from asapweb.launcher.address import Address, choose_address
from asapweb.launcher.fingerprints import applied_migrations, migrations, samples_fingerprint, static_fingerprint
from asapweb.launcher.folders import Home, clear_uploading, open_home, sole_use, write_holder
from asapweb.launcher.interruptions import Interrupted, interruptible
from asapweb.launcher.managed_processes import CODE, ManagedProcess
from asapweb.launcher.orphans import MARK, end_marked
from asapweb.launcher.postgres import place_cluster
from asapweb.launcher.redis import place_redis
from asapweb.launcher.supervisor import Supervisor
from asapweb.user_error import UserError
from jobs import child
from jobs.child_environment import EVERYTHING, SYSTEM, environment
from knowledge.pgvector import complaint

HEARTBEAT_FRESH_S = 15.0
#: Answers written at the same moment; further ones wait.
ANSWERS_AT_ONCE = 16
#: How long a database or broker of the environment may take to come up beside us.
PATIENCE_S = 10.0

#: Where the environment says nothing else: requests and tasks run beside each other already, so one of them needs no
#: threads of its own for matrices, and glibc no heap for each thread, which keeps what large pages took.
LEAN = {
    name: value
    for name, value in {"MALLOC_ARENA_MAX": "2", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}.items()
    if name not in os.environ
}


@dataclass(frozen=True)
class Options:
    host: str
    port: int | None
    workers: int  # worker processes
    web_workers: int


def run(options: Options) -> int:
    """Start everything and stay until interrupted; 0 after an orderly end.  Raises UserError where it cannot start."""
    home = open_home(home_folder())
    os.umask(0o077)
    with sole_use(home), interruptible() as interruptions:
        supervisor = Supervisor(home.path, _say)
        try:
            end_marked(home.path)  # what a killed launcher left behind, its port included
            address = choose_address(options.host, options.port)
            _say(f"ASAP Web, data in {home.path}")
            _start_all(home, supervisor, address, options)
            supervisor.watch(_samples(home), interruptions.heed)
        except Interrupted:
            _say("Stopping …")
        finally:
            interruptions.seen = False  # a second Ctrl-C ends the patience
            try:
                supervisor.stop()
            except Interrupted:
                supervisor.kill()
        _say("Stopped; all data is kept.")
    return 0


def _start_all(home: Home, supervisor: Supervisor, address: Address, options: Options) -> None:
    os.environ["ASAP_HOME"] = str(home.path)
    embedded = _start_services(home, supervisor)
    _write_services(home, embedded)
    os.environ.update(embedded)

    with _connected(home) as connection:
        applied = applied_migrations(connection)
        if sentence := complaint(connection):
            raise UserError(sentence)
    if not applied:  # a new database has no samples, whatever stood in this folder before
        (home.run / "samples").unlink(missing_ok=True)
    static_mark = home.run / "static"
    is_new = not static_mark.exists() or static_mark.read_text() != static_fingerprint()
    steps = [*(["migrate"] if is_new or migrations() - applied else []), *(["static"] if is_new else [])]
    if steps:
        began = time.monotonic()
        _Preparation(home, steps).answer(supervisor)
        if "static" in steps:
            static_mark.write_text(static_fingerprint())
        _say(f"  {' and '.join(_STEP_NAMES[step] for step in steps)} in {time.monotonic() - began:.1f} s")

    link = _Preparation(home, ["knowledge", "link", address.url])
    sole_worker = "CELERY_BROKER_URL" in embedded
    supervisor.start(
        _worker(home, options, sole=sole_worker), _answerer(home, sole=sole_worker), _web(home, address, options)
    )
    sign_in = link.answer(supervisor)["link"]
    write_holder(home, address.url)
    if address.moved:
        _say(f"Port 8000 is in use, so port {address.port} is used; choose one with PORT=….")
    _say(f"\nOpen      {address.url}\nSign in   {sign_in}   (works once)")
    _say(f"Again     {_new_link_command(home)}   (prints a new link, in another terminal)")
    if not address.is_loopback and "ALLOWED_HOSTS" not in os.environ:
        _say(
            "Requests from other machines are refused until ALLOWED_HOSTS contains this machine's name "
            "(docs/operation.md)."
        )
    _say(f"Press Ctrl-C to stop; logs are in {home.logs}")


def _new_link_command(home: Home) -> str:
    given = f"ASAP_HOME={shlex.quote(str(home.path))} " if os.environ["ASAP_HOME"] != str(CODE / "data") else ""
    return f"{given}.venv/bin/python manage.py sign_in_link"


def _samples(home: Home) -> Callable[[], None]:
    """Load the shipped profiles once for each version of them, beside everything else; to be called now and then."""
    mark = home.run / "samples"
    wanted = samples_fingerprint()
    if not flag("ASAP_SAMPLES", default=True):
        return lambda: None
    if mark.exists() and mark.read_text() == wanted:
        return lambda: None
    loading: list[_Preparation] = [_Preparation(home, ["samples"])]

    def look() -> None:
        if not loading or loading[0].process.poll() is None:
            return
        try:
            loading.pop().answer()
        except UserError as error:
            _say(str(error))
        else:
            mark.write_text(wanted)

    return look


_STEP_NAMES = {
    "migrate": "database schema",
    "static": "static files",
    "samples": "samples",
    "knowledge": "shipped passages and records",
}


def _start_services(home: Home, supervisor: Supervisor) -> dict[str, str]:
    """Start what the environment does not name; returns the variables that lead to what was started."""
    pieces: list[ManagedProcess] = []
    variables: dict[str, str] = {}
    cluster = None
    if not os.environ.get("DATABASE_URL"):
        cluster = place_cluster(home.path, home.log("postgresql"))
        if cluster.data.parent != home.path:
            _say(f"  PostgreSQL runs as {cluster.user}, who cannot access {home.path}: its data is in {cluster.data}")
        cluster.initialise()
        pieces.append(
            ManagedProcess(
                name="PostgreSQL", command=cluster.command, log=cluster.log, home=home.path,
                is_healthy=cluster.is_alive, before_start=cluster.clear_stale_lock, folder=Path("/"),
                needs=SYSTEM, ends_with=signal.SIGINT, ends_within_s=20.0,
            )
        )  # fmt: skip
        variables["DATABASE_URL"] = cluster.url
    if not os.environ.get("CELERY_BROKER_URL"):
        redis = place_redis(home.redis)
        pieces.append(
            ManagedProcess(
                name="Redis", command=redis.command, log=home.log("redis"), home=home.path, is_healthy=redis.is_alive,
                before_start=redis.end_stale, folder=home.redis, needs=SYSTEM,
                hint=f"; {home.redis} can be moved away; queued work is recovered from the database",
            )
        )  # fmt: skip
        variables["CELERY_BROKER_URL"] = redis.url
    supervisor.start(*pieces)
    if cluster is not None:
        cluster.create_database()
    if "CELERY_BROKER_URL" not in variables:
        _wait_for_broker(os.environ["CELERY_BROKER_URL"])
    return variables


def _worker(home: Home, options: Options, *, sole: bool) -> ManagedProcess:
    """Does all background work but answers.  sole: nobody else takes work from its broker."""
    more = ["--pool", "prefork", "--concurrency", str(options.workers), "--beat"]
    return _celery(home, "worker", "asap", more, sole=sole, niceness=5)  # pages come before analyses


def _answerer(home: Home, *, sole: bool) -> ManagedProcess:
    """Writes answers: mostly waiting for a model, so threads will do."""
    more = ["--pool", "threads", "--concurrency", str(ANSWERS_AT_ONCE), "--queues", "dialogue"]
    return _celery(home, "answerer", "dialogue", more, sole=sole)


def _celery(home: Home, name: str, node: str, more: list[str], *, sole: bool, niceness: int = 0) -> ManagedProcess:
    heartbeat = home.run / f"{name}.alive"

    def forget() -> None:
        heartbeat.unlink(missing_ok=True)

    def is_alive() -> bool:
        try:
            return time.time() - heartbeat.stat().st_mtime < HEARTBEAT_FRESH_S
        except FileNotFoundError:
            return False

    return ManagedProcess(
        name=name,
        command=lambda: [
            sys.executable, "-W", "ignore::RuntimeWarning", "-m", "celery", "-A", "asapweb.celery", "worker", *more,
            # Events of being alive that nobody reads; one that seeks its broker keeps a worker from ending.
            "--without-gossip", "--without-mingle", "--without-heartbeat",
            "--loglevel", "INFO", "--hostname", f"{node}@%h",
        ],
        log=home.log(name), home=home.path, is_healthy=is_alive, before_start=forget,
        # What a dead worker left undone is delivered again by the one that works for all.
        environment={
            "ASAP_WORKER_HEARTBEAT": str(heartbeat), "ASAP_SOLE_WORKER": "1" if sole and name == "worker" else "0",
            # Of the code, and made with it; here they would load every page, which no task needs.
            "CELERY_SKIP_CHECKS": "1",
            **LEAN,
        },
        dies_with_us="QUIT", ends_within_s=5.0, niceness=niceness,
        # While a foreign broker is away the worker waits for it, which is no reason to end what it is doing.
        hung_after_s=120.0 if sole else math.inf,
    )  # fmt: skip


def _web(home: Home, address: Address, options: Options) -> ManagedProcess:
    def is_alive() -> bool:
        place = urlsplit(address.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=5)
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return ManagedProcess(
        name="web server",
        command=lambda: [
            sys.executable, "-m", "granian", "--interface", "asginl", "--host", address.host,
            "--port", str(address.port), "--workers", str(options.web_workers), "--no-ws", "--http", "1",
            "--workers-kill-timeout", "5", "--respawn-failed-workers", "--log-level", "info",
            "asapweb.asgi:application",
        ],
        log=home.log("web"), home=home.path, is_healthy=is_alive, before_start=lambda: clear_uploading(home),
        # WhiteNoise reads its files in threads, which is what we want of it.
        environment={"PYTHONWARNINGS": "ignore:StreamingHttpResponse must consume:Warning", **LEAN},
    )  # fmt: skip


class _Preparation:
    """A run of `asapweb.launcher.prepare`, beside other work until its answer is needed."""

    def __init__(self, home: Home, steps: list[str]) -> None:
        self.home = home
        self.log = home.log("prepare")
        self.steps = steps
        self.process = self._start()

    def _start(self) -> child.Process:
        with self.log.open("ab") as log:
            return child.launch(
                ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "asapweb.launcher.prepare", *self.steps],
                environment(EVERYTHING, values={MARK: str(self.home.path)}), folder=CODE, stdout=child.PIPE, stderr=log,
            )  # fmt: skip

    def answer(self, supervisor: Supervisor | None = None) -> dict[str, str]:
        """What it printed.  supervisor: keeps its pieces meanwhile; where one fell, the work is done once more."""
        for again in (True, False):
            disturbed = False
            while supervisor is not None and self.process.poll() is None:
                disturbed |= supervisor.keep()
                time.sleep(0.05)
            if self.process.poll() in (None, 0) or not (again and disturbed):
                break
            self.process = self._start()
        output, _ = self.process.communicate()
        if self.process.returncode != 0:
            lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            what = " and ".join(_STEP_NAMES.get(step, "the sign-in link") for step in self.steps if "/" not in step)
            raise UserError(f"Preparing {what} failed: {lines[-1] if lines else 'no message'} (log: {self.log})")
        answer: dict[str, str] = json.loads(output)
        return answer


@contextmanager
def _connected(home: Home) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection to the application's database; raises UserError with the host, never with the password."""
    try:
        arguments = database_arguments(home.path)
    except ImproperlyConfigured as error:
        raise UserError(str(error)) from None
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = psycopg.connect(**arguments, connect_timeout=5, autocommit=True)
            break
        except psycopg.OperationalError as error:
            final = any(word in str(error) for word in ("authentication failed", "does not exist", "no password"))
            if final or time.monotonic() > deadline:
                reason = str(error).strip().splitlines()[-1]
                raise UserError(f"The database of DATABASE_URL cannot be used: {reason}") from None
            time.sleep(0.5)
    with connection:
        yield connection


def _wait_for_broker(url: str) -> None:
    from kombu import Connection  # slow to import, and only needed for a foreign broker
    from kombu.exceptions import OperationalError

    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with Connection(url, connect_timeout=3) as broker:
                broker.ensure_connection(max_retries=1, timeout=3)
                _ = broker.default_channel  # a socket alone is no broker
                return
        except (OperationalError, OSError, ValueError, KeyError, ImportError) as error:
            if time.monotonic() > deadline or isinstance(error, (ValueError, KeyError, ImportError)):
                place = urlsplit(url)
                where = f"{place.scheme}://{place.hostname or ''}{f':{place.port}' if place.port else ''}"
                raise UserError(
                    f"The broker of CELERY_BROKER_URL ({where}) does not answer ({error}): start it or correct the URL."
                ) from None
            time.sleep(0.5)


def _write_services(home: Home, variables: dict[str, str]) -> None:
    """For other processes on this data folder, such as manage.py in a second terminal."""
    names = {"DATABASE_URL": "database_url", "CELERY_BROKER_URL": "broker_url"}
    temporary = home.services.with_suffix(".new")
    temporary.write_text(json.dumps({names[name]: value for name, value in variables.items()}))
    temporary.replace(home.services)


def _say(line: str) -> None:
    print(line, flush=True)
