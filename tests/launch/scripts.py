"""Run a launch script with recorders in place of the programs it starts: what would they have been told?"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_RECORDER = """#!/usr/bin/env -S python3 -I
import json, os, sys
json.dump({"argv": sys.argv[1:], "env": dict(os.environ)}, open(os.environ["RECORD"], "w"))
"""


@dataclass(frozen=True)
class Call:
    """One started program: its arguments and environment.  code, error: of the script."""

    argv: list[str]
    env: dict[str, str]
    code: int
    error: str


def run_script(text: str, folder: Path, **env: str) -> Call:
    """Run the script under bash; `python3` and `torchrun` only write down how they were called."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    recorder = "/usr/bin/env -S python3 -I"
    python = subprocess.run(["bash", "-c", "command -v python3"], capture_output=True, text=True).stdout.strip()
    for name in ("python3", "torchrun"):
        program = tools / name
        program.write_text(_RECORDER.replace(recorder, f"{python} -I"))
        program.chmod(0o755)
    script, record = folder / "script.sh", folder / "record.json"
    script.write_text(text)
    record.unlink(missing_ok=True)
    keep = {key: os.environ[key] for key in ("HOME", "LANG") if key in os.environ}
    done = subprocess.run(
        ["bash", str(script)], capture_output=True, text=True, cwd=folder,
        env={**keep, "PATH": f"{tools}:{os.environ['PATH']}", "RECORD": str(record), **env},
    )  # fmt: skip
    told = json.loads(record.read_text()) if record.exists() else {"argv": [], "env": {}}
    return Call(told["argv"], told["env"], done.returncode, done.stderr)


def script_words(text: str, name: str) -> list[str]:
    """The words of a bash array of the script, as bash reads them, without running anything else."""
    start = text.index(f"{name}=(")
    array = text[start : text.index("\n)\n", start) + 2]
    done = subprocess.run(
        ["bash", "-c", f'{array}\nprintf "%s\\0" "${{{name}[@]}}"'], capture_output=True, text=True, check=True,
        env={"PATH": os.environ["PATH"], **dict.fromkeys(
            ("PER_DEVICE_BATCH_SIZE", "MAX_TARGET_LENGTH", "MODEL_NAME", "OPT_TYPE", "MICRO_BATCH_SIZE",
             "GLOBAL_BATCH_SIZE", "SEQ_LENGTH"), "given")},
    )  # fmt: skip
    return done.stdout.split("\0")[:-1]
