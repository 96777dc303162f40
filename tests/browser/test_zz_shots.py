from __future__ import annotations
import json, glob, re
from pathlib import Path
from typing import Any
import pytest
from django.core.files import File
from playwright.sync_api import Page
from experiments.services import uploads, runs
from proposals.services import coordinator

OUT = Path("/tmp/shots")
OUT.mkdir(exist_ok=True)


def make(people, files, config=None):
    handles = [File(open(f, "rb"), name=Path(f).name) for f in files]
    e = uploads.receive(people.team, people.engineer, handles, json.dumps(config) if config else None)
    coordinator.advance(runs.newest(e).pk)
    e.refresh_from_db()
    return e


T = "/work/shared/profiles/xprof_tpu_training/"
CFG = {
    "name": "wrong",
    "hardware": {"chip": "v5e", "topology": [2, 2]},
    "mesh": {"ici": {"data": 2, "model": 2}},
    "model": {"layers": 24, "d_model": 4096, "d_ff": 14336, "heads": 32, "vocab": 32000},
    "training": {"global_batch": 8, "seq_len": 4096, "remat": "none"},
}
CASES = {
    "tpu": ([T + f + ".json.gz" for f in ("overview_page", "hlo_stats")], None),
    "tpu_wrong": ([T + f + ".json.gz" for f in ("overview_page", "hlo_stats")], CFG),
    "amd": (["/work/shared/profiles/934987a2fc2f.xplane.pb"], None),
}


@pytest.mark.parametrize("name", list(CASES))
def test_shots(name, server: str, people: Any, as_engineer: Any, page: Page) -> None:
    files, cfg = CASES[name]
    e = make(people, files, cfg)
    print(name, e.state, runs.newest(e).reason)
    page.goto(f"{server}/experiments/{e.pk}/")
    page.wait_for_timeout(600)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for w in (1280, 390):
            page.set_viewport_size({"width": w, "height": 900})
            page.wait_for_timeout(250)
            page.screenshot(path=str(OUT / f"{name}-{w}-{scheme}.png"), full_page=True)
    for s in page.query_selector_all("details.told > summary"):
        s.click()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")
    page.screenshot(path=str(OUT / f"{name}-told.png"), full_page=True)
    from tests.browser.conftest import violations

    print(violations(page))
