"""Every test session has a data folder of its own and, once a test asks for the database, a PostgreSQL of its own."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import pickle
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.db.models.signals import post_migrate
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from jobs import child
from tests import chromium, warm
from tests.stored_rows import StoredRows, layers_of

if TYPE_CHECKING:  # reads settings of the product, so only once they are set
    from playwright.sync_api import Browser

    from experiments.step_profile import StepProfile
    from tests.launcher.application import Application

# Set before Django reads its settings: nothing of the developer's own installation may leak into a test.
SESSION_HOME = Path(tempfile.mkdtemp(prefix="asap-tests-", dir="/tmp"))
SESSION_HOME.chmod(0o755)  # the database's own folder is private; as root another user must be able to enter here
atexit.register(shutil.rmtree, SESSION_HOME, ignore_errors=True)
for name in (
    "DATABASE_URL",
    "ALLOWED_HOSTS",
    "CSRF_TRUSTED_ORIGINS",
    "ASAP_METRICS_TOKEN",
    "DEBUG",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ASAP_LLM_MODEL",
):
    os.environ.pop(name, None)
os.environ |= {
    "ASAP_HOME": str(SESSION_HOME),
    "ASAP_HASHED_STATIC": "0",  # no collectstatic before a test
    "CELERY_BROKER_URL": "memory://",
    "DJANGO_SETTINGS_MODULE": "asapweb.settings",
    # As the launcher sets them: threads of matmuls wait for each other where processes share the processors.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "DJANGO_ALLOW_ASYNC_UNSAFE": "1",  # pytest-playwright runs an event loop beside synchronous tests
}


# A slow machine is no failure; CI tries the same examples every time, a developer's machine new ones.
settings.register_profile(
    "asap", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=os.environ.get("ASAP_CI") == "1"
)
settings.load_profile("asap")

#: Tests of whole applications, which share ports and processors: one process runs them in turn, from the beginning,
#: since they take the longest and mostly wait.
APPLICATIONS = ("tests/launcher/", "tests/flow/")
#: Attacks through whole pages, commands and conversations.
ATTACKS = ("tests/hostile/", "tests/permissions/")
#: Each process that takes one of these files starts a server and a browser for them: they follow one another.
BROWSER = "tests/browser/"

SLOW_FOLDERS = (*APPLICATIONS, *ATTACKS, BROWSER)

# Now, so that test modules and their fixtures may import models.
django.setup()
# Nobody asks for the permissions of Django's own, which every test with committed rows would write anew.
post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")


# Walking all that is imported and collected, again and again, took a quarter of the tests' processor time.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz", type=int, default=1, metavar="N", help="send N times as many odd requests")


def pytest_configure(config: pytest.Config) -> None:
    """Processes that pytest-xdist starts come here themselves, before anything of Django reads its settings."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        del os.environ["DJANGO_SETTINGS_MODULE"]


class Scheduling(LoadFileScheduling):
    """Each process takes a file at a time, whose fixtures are made once."""

    def _split_scope(self, nodeid: str) -> str:
        return APPLICATIONS[0] if nodeid.startswith(APPLICATIONS) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    config.option.loadscopereorder = False  # by the order of the collection, below
    return Scheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Folders of which every test is slow are not even imported by `make quick`."""
    if "not slow" not in config.option.markexpr:
        return None
    path = f"{collection_path.relative_to(config.rootpath)}/" if collection_path.is_dir() else ""
    return path in SLOW_FOLDERS or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whole applications, browsers and committed rows are slow.  Several processes begin with the slowest files, so
    that none is left to one of them at the end."""
    for item in items:
        if item.nodeid.startswith(SLOW_FOLDERS) or _commits_rows(item):
            item.add_marker(pytest.mark.slow)
    _choose_samples(items)
    if hasattr(config, "workerinput") and not config.getoption("random_order_enabled"):
        slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
        first = (APPLICATIONS, BROWSER)
        items.sort(key=lambda item: (*(not item.nodeid.startswith(folder) for folder in first), -slow[item.path]))
    _skip_without_browser(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Playwright's event loop counts as running in this thread from the first browser test on.  It is hidden from the
    tests that come after it: they could not run coroutines, and Django keeps other connections where a loop runs."""
    loop = asyncio._get_running_loop()
    if loop is None or "playwright" in getattr(item, "fixturenames", ()):
        return (yield)
    asyncio._set_running_loop(None)
    try:
        return (yield)
    finally:
        asyncio._set_running_loop(loop)


@pytest.fixture(scope="session")
def browser(browser: Browser) -> Iterator[Browser]:
    """Closing it needs Playwright's loop, whichever test is the last."""
    loop = asyncio._get_running_loop()
    yield browser
    asyncio._set_running_loop(loop)


def _choose_samples(items: list[pytest.Item]) -> None:
    """Take each fourth case of a test that is marked nightly(of=4), from the first on, out of the nightly ones."""
    number: Counter[object] = Counter()
    for item in items:
        mark = item.get_closest_marker("nightly")
        if mark and mark.kwargs:
            function = getattr(item, "originalname", item.name), item.path
            if number[function] % mark.kwargs["of"] == 0:
                item.own_markers = [own for own in item.own_markers if own.name != "nightly"]
            number[function] += 1


def _commits_rows(item: pytest.Item) -> bool:
    """Whether all tables are emptied after the test, which takes longer than most tests."""
    marker = item.get_closest_marker("django_db")
    return bool(marker and marker.kwargs.get("transaction")) or "transactional_db" in getattr(item, "fixturenames", ())


def _skip_without_browser(items: list[pytest.Item]) -> None:
    """Without a browser its tests are skipped and say why; in CI, which installs one, they fail."""
    downloaded = list(Path.home().glob(".cache/ms-playwright/chromium*"))
    if os.environ.get("ASAP_CI") == "1" or downloaded or chromium.installed():
        return
    skip = pytest.mark.skip(reason="Chromium is not installed (as root: apt-get install chromium-headless-shell)")
    for item in items:
        if {"page", "context", "browser"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[object]:
    """The session's own PostgreSQL, empty, without fsync; stops with the session, or with a killed one."""
    from asapweb.launcher.postgres import place_cluster

    cluster = place_cluster(SESSION_HOME, SESSION_HOME / "postgres.log", durable=False)
    with cluster.running():
        yield cluster


@pytest.fixture(scope="session", autouse=True)
def rows_are_deleted() -> Iterator[None]:
    """After a test with committed rows, rows are deleted: to truncate a hundred tables, most of them empty, takes
    PostgreSQL longer than most tests.  Without foreign keys' triggers, and so in any order."""

    from django.db.backends.postgresql.operations import DatabaseOperations

    def sql(self: DatabaseOperations, style: object, tables: list[str], **options: bool) -> list[str]:
        deletions = [f"DELETE FROM {self.quote_name(table)}" for table in tables if table != "django_content_type"]
        role = "SET LOCAL session_replication_role = replica"
        return ["; ".join([role, *deletions, "SET LOCAL session_replication_role = origin"])] if deletions else []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "sql_flush", sql)
        yield


@pytest.fixture(scope="session", autouse=True)
def confined_processes_fork() -> Iterator[None]:
    """Those that read uploads share their imports, except where a test asks for `fresh_processes`."""
    warmed = warm.Warmed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "start", warmed.start)
        yield
    warmed.end()


@pytest.fixture(scope="session", autouse=True)
def samples_are_read_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """XProf converts a shipped profile for one process of the session; the others take what it said."""
    from evaluation.steps import shipped
    from experiments.ingest import read_profile

    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

    def read(paths: list[Path]) -> StepProfile:
        kept = folder / f"{paths[0].parent.name}.read"
        if not kept.exists():
            unfinished = kept.with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(pickle.dumps(read_profile(paths)))
            unfinished.rename(kept)
        return pickle.loads(kept.read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped, "read_profile", read)
        yield


@pytest.fixture
def fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Confined processes are started as in production, for tests of what confines them."""
    monkeypatch.setattr(child, "start", warm.fresh)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres_server: object, django_db_modify_db_settings_parallel_suffix: None) -> None:
    """pytest-django asks for this before it makes the test database; only then does the server start."""


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """The database ends with its server."""
    return True


@pytest.fixture(scope="session")
def stored_rows() -> Iterator[StoredRows]:
    """The owner of every row that outlives a test; no database is made for it alone."""
    rows = StoredRows()
    yield rows
    rows.end()


@pytest.fixture(scope="session")
def owned_database(django_db_setup: None, django_db_blocker: Any, stored_rows: StoredRows) -> StoredRows:
    """The same owner with the tests' database."""
    with django_db_blocker.unblock():
        stored_rows.prepare()
    return stored_rows


@pytest.fixture(scope="module", autouse=True)
def no_row_is_left(request: pytest.FixtureRequest, stored_rows: StoredRows, django_db_blocker: Any) -> Iterator[None]:
    """A module that leaves committed rows fails, and the next one finds an empty database all the same."""
    yield
    if left := stored_rows.committed_tables():
        with django_db_blocker.unblock():
            stored_rows.delete_all()
        pytest.fail(
            f"{request.node.nodeid} leaves rows in {', '.join(left)}: store them by a fixture that removes them"
        )


@pytest.fixture(scope="module", autouse=True)
def no_setting_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module that leaves a setting of the installation in the environment fails, and the next one does not see it."""
    before = _settings_of_the_installation()
    yield
    after = _settings_of_the_installation()
    if left := sorted(name for name in {*before, *after} if before.get(name) != after.get(name)):
        for name in left:
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in left if name in before})
        pytest.fail(f"{request.node.nodeid} leaves {', '.join(left)} in the environment")


def _settings_of_the_installation() -> dict[str, str]:
    prefixes = ("ASAP_", "OPENAI_", "DATABASE_", "CELERY_", "DJANGO_")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


@pytest.fixture(scope="module")
def rolled_back_rows(owned_database: StoredRows, django_db_blocker: Any) -> Iterator[None]:
    """An empty database for a module; what is stored in it by fixtures of the module is taken back after it."""
    with django_db_blocker.unblock(), owned_database.rolled_back():
        yield


@pytest.fixture(scope="module")
def committed_rows(owned_database: StoredRows, django_db_blocker: Any) -> Iterator[None]:
    """The same for rows that several connections see: deleted once after the module, not after each test."""
    with django_db_blocker.unblock(), owned_database.committed():
        yield


@pytest.fixture
def begun(request: pytest.FixtureRequest, django_db_blocker: Any, owned_database: StoredRows) -> None:
    """The rows that a test begins with."""
    with django_db_blocker.unblock():
        owned_database.have(0 if _commits_rows(request.node) else layers_of(request.node))


@pytest.fixture
def _django_db_helper(begun: None, _django_db_helper: None) -> None:
    """pytest-django's own transaction of a test, begun after them."""


@pytest.fixture
def layers(request: pytest.FixtureRequest, begun: None, stored_rows: StoredRows, settings: Any) -> list[Any]:
    return stored_rows.copied(settings.ASAP_HOME)


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many times as many odd requests a test is to send; how many that were is printed."""
    from django.core.signals import request_started

    sent: Counter[str] = Counter()

    def count(**about: object) -> None:
        sent["requests"] += 1

    request_started.connect(count)
    yield request.config.getoption("fuzz")
    request_started.disconnect(count)
    print(f"{sent['requests']:,} requests")


@pytest.fixture(scope="session")
def first_start() -> Iterator[Application]:
    """The first start on an empty folder, by an ordinary user, already stopped again by Ctrl-C.  Where we are root, the
    folder is then what root's own start leaves."""
    from tests.launcher.application import Application, eventually, new_folder, ordinary_user, without_vector

    path, user = new_folder(), ordinary_user()
    if user is not None:
        shutil.chown(path, user)
    application = Application(path / "data", user=user)
    application.healthz = application.get("/healthz")  # type: ignore[attr-defined]
    application.sign_in_page = application.get(application.sign_in_link.removeprefix(application.address))  # type: ignore[attr-defined]
    application.owners = {  # type: ignore[attr-defined]
        Path(f"/proc/{application.main_process(piece)}").stat().st_uid for piece in ("PostgreSQL", "worker")
    }
    application.mode = application.home.stat().st_mode  # type: ignore[attr-defined]
    # A copy of the folder that lacks vectors computes them beside its test.
    eventually(lambda: without_vector(application.home) == 0, within_s=120)
    application.stop()
    if user is not None:
        for part in (path, *path.rglob("*")):
            if (application.home / "postgres") not in (part, *part.parents):
                shutil.chown(part, "root")
        application.home.chmod(0o711)
    yield application
    shutil.rmtree(path, ignore_errors=True)
