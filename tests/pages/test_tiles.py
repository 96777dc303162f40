"""Tiles and event lines in words: what a figure is of, and how many."""

from __future__ import annotations

from diagnosis import presentation
from diagnosis.report import Bottleneck, Diagnosis
from experiments.event_words import describe
from experiments.models import Event, Experiment


def notes(**kpis: float) -> dict[str, str]:
    found = Diagnosis({"step_time_s": 2.0, **kpis}, {}, Bottleneck("unknown", 0.0, ""), (), ())
    return {tile.key: tile.note for tile in presentation.tiles(found)}


def test_communication_in_flight_is_not_called_hidden_work() -> None:
    note = notes(communication_overlapped=0.5)["communication_overlapped"].replace("\u00a0", " ")
    assert note == "1.00 s of the step with other ops running"


def test_goodput_does_not_call_communication_productive() -> None:
    assert notes(goodput=0.989)["goodput"] == "not lost to idle, input or host"


def test_one_candidate_is_counted_as_one() -> None:
    event = Event(kind="proposal", actor="proposer", data={"proposals": [{"rank": 1, "title": "t"}], "considered": 1})
    assert describe(event, Experiment()).title == "1 proposal from 1 candidate"


def test_what_people_do_in_conversations_and_campaigns_is_said() -> None:
    def told(kind: str, data: dict[str, object]) -> tuple[str, str]:
        line = describe(Event(kind=kind, actor="user", data=data), Experiment())
        return line.title, line.text

    added = told("message", {"thread": 1, "message": 2, "added": 5, "title": "data 8"})
    assert added == ("A former user added a proposal from the conversation", "data 8")
    assert told("campaign", {"campaign": 1, "backend": "local"})[0] == "A former user started a tuning campaign"
    retried = told("campaign", {"campaign": 1, "change": "retry", "trial": 3})
    assert retried == ("A former user retried a failed trial of a tuning campaign", "Trial 3.")
