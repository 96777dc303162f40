"""In the place of the compiler: it says which environment it has."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    json.load(sys.stdin)
    Path("program.hlo").write_text(json.dumps(dict(os.environ)))
    print(json.dumps({"result": {"outcome": "fits"}}), flush=True)
