"""How the launcher starts its pieces together, with small processes in their place."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from asapweb.launcher.managed_processes import ManagedProcess
from asapweb.launcher.supervisor import Supervisor
from asapweb.user_error import UserError


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    found = Supervisor(tmp_path, lambda line: None)
    yield found
    found.stop()


def piece(home: Path, name: str, program: str, is_healthy: Callable[[], bool]) -> ManagedProcess:
    return ManagedProcess(
        name=name, command=lambda: ["sh", "-c", program], log=home / f"{name}.log", home=home, is_healthy=is_healthy,
        folder=home,
    )  # fmt: skip


def pid(found: ManagedProcess) -> int:
    assert found.process is not None
    return found.process.pid


def test_a_piece_that_is_killed_while_others_start_is_started_again(supervisor: Supervisor, tmp_path: Path) -> None:
    first = piece(tmp_path, "database", "exec sleep 60", lambda: first.is_running)
    supervisor.start(first)
    killed = pid(first)

    def is_healthy() -> bool:
        if first.process is not None and pid(first) == killed:
            os.kill(killed, signal.SIGKILL)
            first.process.wait()
            return False
        return first.is_running

    second = piece(tmp_path, "worker", "exec sleep 60", is_healthy)
    supervisor.start(second)
    assert first.is_running and second.is_running
    assert pid(first) != killed


def test_a_piece_that_falls_with_a_killed_one_is_started_again(supervisor: Supervisor, tmp_path: Path) -> None:
    """A worker ends by itself where its broker is gone; that is no reason to give up."""
    first = piece(tmp_path, "broker", "exec sleep 60", lambda: first.is_running)
    supervisor.start(first)
    fallen = tmp_path / "fallen"
    begun: set[int] = set()

    def is_healthy() -> bool:
        if not begun:
            os.kill(pid(first), signal.SIGKILL)
        if second.process is not None:
            begun.add(pid(second))
        return len(begun) == 2 and second.is_running

    falls_once = f"[ -e {fallen} ] && exec sleep 60; touch {fallen}; sleep 0.5; exit 1"
    second = piece(tmp_path, "worker", falls_once, is_healthy)
    supervisor.start(second)
    assert first.is_running and second.is_running


def test_a_piece_that_ends_by_itself_is_named_with_its_last_words(supervisor: Supervisor, tmp_path: Path) -> None:
    broken = piece(tmp_path, "worker", "echo Error: no such module; exit 3", lambda: False)
    with pytest.raises(UserError, match="The worker does not start: Error: no such module"):
        supervisor.start(broken)


def test_a_piece_that_is_killed_again_and_again_is_given_up(supervisor: Supervisor, tmp_path: Path) -> None:
    broken = piece(tmp_path, "worker", "kill -9 $$", lambda: False)
    with pytest.raises(UserError, match="worker"):
        supervisor.start(broken, patience_s=1.0)


def test_what_was_started_together_ends_together_and_before_what_it_stands_on(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    said = tmp_path / "said"

    def slow(name: str) -> ManagedProcess:
        ready = tmp_path / f"{name} is ready"
        trap = f"trap 'echo {name} was asked >> {said}; sleep 0.5; echo {name} ended >> {said}; exit' TERM"
        return piece(tmp_path, name, f"{trap}; touch '{ready}'; while :; do sleep 0.05; done", ready.exists)

    supervisor.start(slow("broker"))
    supervisor.start(slow("web"), slow("worker"))
    supervisor.stop()
    lines = said.read_text().splitlines()
    assert set(lines[:2]) == {"web was asked", "worker was asked"}
    assert lines[4:] == ["broker was asked", "broker ended"]
