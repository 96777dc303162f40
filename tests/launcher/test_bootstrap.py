"""`bin/bootstrap` on machines that lack something."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.launcher.application import CODE


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout without an environment."""
    for name in ("bin/bootstrap", "uv.lock", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(CODE / name, tmp_path / name)
    return tmp_path


def bootstrap(clone: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / "bin" / "bootstrap", "run"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(clone), **variables},
        capture_output=True,
        text=True,
    )


def test_no_python(clone: Path) -> None:
    done = bootstrap(clone, ASAP_PYTHON="/nonexistent/python3.11")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "apt-get install python3.11" in done.stderr


def test_no_venv_module(clone: Path) -> None:
    """Debian's python3.11 without python3.11-venv has no ensurepip."""
    python = clone / "python3.11"
    python.write_text('#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\nexec python3.11 "$@"\n')
    python.chmod(0o755)
    done = bootstrap(clone, ASAP_PYTHON=str(python))
    assert done.returncode == 1
    assert "python3.11-venv" in done.stderr


def test_an_environment_that_is_complete_costs_nothing(clone: Path) -> None:
    """Nothing is run that could reach a network: there is not even a uv to run."""
    shutil.copytree(CODE / "bin", clone / "bin", dirs_exist_ok=True)
    (clone / ".venv" / "bin").mkdir(parents=True)
    wanted = subprocess.run(
        "cat uv.lock pyproject.toml | sha256sum | cut -c1-32", shell=True, cwd=clone, capture_output=True, text=True
    )
    (clone / ".venv" / f"asap-{wanted.stdout.strip()}").write_text("dev\n")
    (clone / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 0\n")
    (clone / ".venv" / "bin" / "python").chmod(0o755)
    done = bootstrap(clone, ASAP_PYTHON="/nonexistent")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
