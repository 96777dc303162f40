"""Names of kernels and framework ops that exchange data between devices (communication.toml)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_TABLE = tomllib.loads((Path(__file__).parent / "communication.toml").read_text())["library"]
#: (kernel names, kind where it is one for all) by library, in the order of the table.
LIBRARIES = tuple((re.compile(library["kernels"], re.I), library.get("kind")) for library in _TABLE)
COLLECTIVE_KERNEL = re.compile("|".join(f"(?:{library['kernels']})" for library in _TABLE), re.I)
#: Framework ops that launch nothing but communication.
COLLECTIVE_OP = re.compile("|".join(f"(?:{library['ops']})" for library in _TABLE if "ops" in library), re.I)
