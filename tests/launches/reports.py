"""What a cluster sends, by REST as `asap_report.py` does, and the workers that take it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from rest_framework.test import APIClient

from launches.models import ArmRun
from launches.services import launching


def client(token: str) -> APIClient:
    found = APIClient()
    found.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return found


def place(launch: Any, arm: str = "proposal", repeat: int = 1) -> str:
    return f"/api/launches/{launch.pk}/runs/{arm}/{repeat}"


def send_file(api: APIClient, where: str, content: bytes, kind: str = "log", name: str = "run.log") -> str:
    """Announce and send a file in one piece; its SHA-256."""
    digest = hashlib.sha256(content).hexdigest()
    about = {"kind": kind, "name": name, "size_bytes": len(content), "sha256": digest}
    assert api.post(f"{where}/files/", about, format="json").status_code == 200
    if content:
        assert send_piece(api, where, digest, 0, content).status_code == 200
    return digest


def send_piece(api: APIClient, where: str, digest: str, offset: int, piece: bytes) -> Any:
    kind = "application/octet-stream"
    return api.generic("PATCH", f"{where}/files/{digest}/", piece, kind, headers={"Upload-Offset": str(offset)})


def report(api: APIClient, where: str, **body: Any) -> Any:
    return api.generic("PUT", f"{where}/report/", json.dumps(body), "application/json")


def work(launch: Any) -> None:
    """What the workers do with the runs that wait for them."""
    for pk in launch.runs.filter(status__in=[ArmRun.Status.QUEUED, ArmRun.Status.COLLECTING]).values_list(
        "pk", flat=True
    ):
        launching.advance(pk)
    launch.refresh_from_db()


def times(median_s: float, seed: int, steps: int = 30) -> list[float]:
    """Step times around a median: a slow first step, then a few per cent of scatter."""
    scatter = [((seed * 7919 + step * 104_729) % 997 / 997 - 0.5) * 0.02 for step in range(steps)]
    return [median_s * 10, *(median_s * (1 + value) for value in scatter[1:])]


def report_all(api: APIClient, launch: Any, proposal_s: float, control_s: float) -> None:
    for repeat in range(1, launch.repeats + 1):
        for arm, median_s in (("proposal", proposal_s), ("control", control_s)):
            given = times(median_s * (1 + 0.003 * repeat), seed=repeat * 10 + (arm == "control"))
            assert (
                report(api, place(launch, arm, repeat), step_times_s=given, peak_memory_bytes=10**9).status_code == 200
            )
    work(launch)
