"""What the environment variables mean, and the test session's own database."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from asapweb.environment import broker_url, database_settings, secret_key
from tests.launcher.application import environment


def test_a_password_may_hold_any_character(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(
        "DATABASE_URL", "postgresql://asap:p%40ss%2Fw%3Aord%20%C3%A9@db.example:6432/asap%2Dweb?sslmode=require"
    )
    found = database_settings(tmp_path)
    assert (found["USER"], found["PASSWORD"], found["HOST"], found["PORT"]) == (
        "asap",
        "p@ss/w:ord é",
        "db.example",
        6432,
    )
    assert found["NAME"] == "asap-web"
    assert found["OPTIONS"]["sslmode"] == "require"


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://asap@localhost/asap", "sqlite:///db.sqlite3", "postgresql://h:x/y"]
)
def test_what_is_no_postgresql_address_is_refused_without_repeating_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL") as caught:
        database_settings(tmp_path)
    assert url not in str(caught.value)


def test_services_of_the_launcher_are_found_by_other_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DATABASE_URL", "CELERY_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "services.json").write_text(
        '{"database_url": "postgresql://postgres@%2Ftmp%2Fpg/asap", "broker_url": "redis+socket:///tmp/r.sock"}'
    )
    assert database_settings(tmp_path)["HOST"] == "/tmp/pg"
    assert broker_url(tmp_path) == "redis+socket:///tmp/r.sock"


def test_processes_that_start_together_agree_on_one_secret_key(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from asapweb.environment import secret_key;"
        "print(secret_key(Path(sys.argv[1])))"
    )

    def start(_: int) -> str:
        return subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], env=environment(tmp_path), capture_output=True, text=True
        ).stdout

    with ThreadPoolExecutor(6) as pool:
        keys = set(pool.map(start, range(6)))
    assert len(keys) == 1
    assert len(keys.pop().strip()) >= 50
    assert (tmp_path / "secret_key").stat().st_mode & 0o077 == 0


def test_a_secret_key_of_the_environment_is_not_written_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET_KEY", "given")
    assert secret_key(tmp_path) == "given"
    assert not (tmp_path / "secret_key").exists()
