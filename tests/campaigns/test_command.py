"""`asap campaign` by the performance model."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from asapweb.cli import campaign
from tests.campaigns.worlds import CONFIG


def arguments(folder: Path, *options: str, **more: Any) -> argparse.Namespace:
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIG | more), encoding="utf-8")
    parser = argparse.ArgumentParser()
    campaign.add_parser(parser.add_subparsers())
    return parser.parse_args(["campaign", str(path), "--trials", "2", *options])


def test_a_measured_step_time_is_what_the_first_trial_takes_and_what_the_others_are_priced_from(tmp_path: Path) -> None:
    plain = campaign.run(arguments(tmp_path))["trials"]
    slow = 2.0 * plain[0]["step_time_s"]
    found = campaign.run(arguments(tmp_path, measured={"step_time_s": slow}))["trials"]
    assert found[0]["step_time_s"] == pytest.approx(slow)
    assert all(1.2 * slow / 2.0 < trial["step_time_s"] for trial in found)
