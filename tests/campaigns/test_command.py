"""`asap campaign` with a language model: asked where that is said, and only there."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from asapweb.cli import campaign
from asapweb.user_error import UserError
from tests.agent.server import Plain, Reply, ScriptedServer, answer
from tests.campaigns.worlds import CONFIG

WISH = {"mesh": {"data": 4, "model": 4}, "reason": "Tensor parallelism shrinks what is gathered."}
Play = Callable[..., tuple[dict[str, Any], ScriptedServer]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Play]:
    """A campaign of the command line beside a scripted model."""
    servers: list[ScriptedServer] = []

    def play(reply: Reply, *options: str) -> tuple[dict[str, Any], ScriptedServer]:
        server = ScriptedServer(lambda body: reply)
        server.__enter__()
        servers.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("ASAP_LLM_MODEL", "scripted")
        return campaign.run(arguments(tmp_path, *options)), server

    yield play
    for server in servers:
        server.__exit__()


def arguments(folder: Path, *options: str, **more: Any) -> argparse.Namespace:
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIG | more), encoding="utf-8")
    parser = argparse.ArgumentParser()
    campaign.add_parser(parser.add_subparsers())
    return parser.parse_args(["campaign", str(path), "--trials", "2", *options])


def test_the_model_is_asked_for_each_trial_and_what_it_may_not_have_is_built_in(play: Play) -> None:
    found, server = play(answer({"trials": [WISH]}), "--use-language-model")
    whys = [trial["why"] for trial in found["trials"]]
    assert whys[1].startswith("Requested by scripted: “Tensor parallelism shrinks what is gathered.”")
    assert "refused: It is a trial of this campaign already." in whys[2]
    assert found["tokens"] == 120 * len(server.requests) > 0


def test_without_being_told_to_it_asks_nobody(play: Play) -> None:
    found, server = play(answer({"trials": [WISH]}))
    assert server.requests == [] and found["tokens"] == 0
    assert not any("asked" in trial["why"] for trial in found["trials"])


def test_a_limit_of_tokens_too_small_to_ask_asks_nobody(play: Play) -> None:
    found, server = play(answer({"trials": [WISH]}), "--use-language-model", "--most-tokens", "100")
    assert server.requests == []
    assert "The limit of 100 tokens is reached." in found["trials"][1]["why"]


def test_an_endpoint_that_fails_changes_no_trial(play: Play) -> None:
    alone, _ = play(answer({"trials": []}))
    found, _ = play(Plain(500), "--use-language-model")
    assert [row["parameters"] for row in found["trials"]] == [row["parameters"] for row in alone["trials"]]
    assert "Chosen by the built-in acquisition." in found["trials"][1]["why"]


def test_without_an_endpoint_it_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ASAP_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="--use-language-model: No language model is configured"):
        campaign.run(arguments(tmp_path, "--use-language-model"))
    with pytest.raises(UserError, match="--most-tokens must be a whole number"):
        campaign.run(arguments(tmp_path, "--most-tokens", "many"))


def test_a_measured_step_time_is_what_the_first_trial_takes_and_what_the_others_are_priced_from(tmp_path: Path) -> None:
    plain = campaign.run(arguments(tmp_path))["trials"]
    slow = 2.0 * plain[0]["step_time_s"]
    found = campaign.run(arguments(tmp_path, measured={"step_time_s": slow}))["trials"]
    assert found[0]["step_time_s"] == pytest.approx(slow)
    assert all(1.2 * slow / 2.0 < trial["step_time_s"] for trial in found)
