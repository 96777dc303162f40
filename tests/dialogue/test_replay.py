"""Recorded answers replay: the shipped recordings with today's code, and answers of the database on their pages."""

from __future__ import annotations

import dataclasses
import html
import json
from datetime import timedelta

import pytest
from django.utils import timezone

from agent.events import Complaint, ModelRequest, ModelResponse, Retry, Stopped, ToolReturned
from agent.provider.openai import OpenAIProvider
from agent.provider.settings import Settings
from dialogue.models import Message
from dialogue.services import asking, replaying
from dialogue.services.respond import respond
from experiments.models import Event
from proposals.agents import chat
from proposals.agents.conversation import ConstraintStated
from proposals.agents.replaying import NoRecording, Recording, recordings, rerun, steps
from tests.agent.server import ScriptedServer, answer, calls, error, text
from tests.dialogue.answerers import Scripted, Waiting, final, tool
from tests.dialogue.conversations import RUN, conversations, record

NAMES = [each.name for each in conversations()]


def recording(name: str) -> Recording:
    path = next(each.path for each in conversations() if each.name == name)
    (found,) = recordings(path.read_text("utf-8").splitlines())
    return found


def recorded_here(name: str) -> Recording:
    """The same conversation recorded by this machine, whose numbers are equal to the last bit: another processor rounds
    the last digits differently."""
    (made,) = recordings(record(next(each for each in conversations() if each.name == name)))
    return made


def bench():
    from evaluation.quality.evidence import bench as made

    return made(RUN)


def changed(of: Recording, kind, **values) -> tuple[Recording, int]:
    """The recording with other values in its last step of this kind, and that step's number."""
    events = list(of.events)
    at = max(i for i, event in enumerate(events) if isinstance(event, kind))
    events[at] = dataclasses.replace(events[at], **values)
    return dataclasses.replace(of, events=tuple(events)), at + 1


# The shipped recordings.


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_conversation_is_repeated_by_todays_code(name):
    found = recording(name)
    assert found.ask is not None
    result = rerun(bench(), found.ask, found)
    assert result.same, (
        f"{result.sentence}\nWhere a prompt, a tool or the built-in reasoner was changed on purpose: "
        "python -m tests.dialogue.conversations"
    )
    assert result.compared == len(found.events) > 3


def test_the_recordings_hold_what_they_are_there_for():
    assert any(isinstance(event, Complaint) for event in recording("mended").events)
    unreachable = recording("unreachable").events
    assert any(isinstance(event, Retry) for event in unreachable) and any(isinstance(e, Stopped) for e in unreachable)
    assert not any(isinstance(event, ModelRequest) for event in recording("built-in").events)
    assert "sk-" not in "".join(each.path.read_text("utf-8") for each in conversations())


def test_another_result_of_a_tool_is_found_where_it_stands():
    found = recording("recommends")
    result = next(e for e in found.events if isinstance(e, ToolReturned) and e.name == "bottleneck")
    wrong = {**result.result, "confidence_share": 0.01}
    events = tuple(dataclasses.replace(e, result=wrong) if e is result else e for e in found.events)
    told = rerun(bench(), found.ask, dataclasses.replace(found, events=events))
    assert not told.same and told.difference.step == found.events.index(result) + 1
    assert "`bottleneck` at result.confidence_share" in told.sentence and "0.01" in told.difference.then


def test_another_answer_is_found_by_its_words():
    found, at = changed(recording("built-in"), type(recording("built-in").events[-1]), answer="Measure nothing.")
    told = rerun(bench(), found.ask, found)
    assert told.difference.step == at and "Measure nothing." in told.difference.then


def test_another_prompt_is_found_at_the_first_request():
    found = recording("recommends")
    first = next(e for e in found.events if isinstance(e, ModelRequest))
    messages = (dataclasses.replace(first.messages[0], text="You are somebody else."), *first.messages[1:])
    events = tuple(dataclasses.replace(e, messages=messages) if e is first else e for e in found.events)
    told = rerun(bench(), found.ask, dataclasses.replace(found, events=events))
    assert told.difference.step == found.events.index(first) + 1 and "somebody else" in told.difference.then


def test_a_changed_tool_is_found_though_every_message_is_the_same():
    found = recorded_here("recommends")
    first = next(e for e in found.events if isinstance(e, ModelRequest))
    events = tuple(dataclasses.replace(e, key="0" * 64) if e is first else e for e in found.events)
    told = rerun(bench(), found.ask, dataclasses.replace(found, events=events))
    assert not told.same and "tool's description" in told.sentence


def test_time_price_and_the_last_digits_of_a_number_are_no_difference():
    found = recording("recommends")
    events = []
    for event in found.events:
        if isinstance(event, ModelResponse):
            event = dataclasses.replace(event, duration_s=99.0, cost_usd=1.0, first_token_s=3.0)
        if isinstance(event, ToolReturned):
            nudged = json.loads(json.dumps(event.result), parse_float=lambda text: float(text) * (1 + 1e-12))
            event = dataclasses.replace(event, duration_s=7.0, result=nudged)
        events.append(event)
    assert rerun(bench(), found.ask, dataclasses.replace(found, events=tuple(events))).same


def test_a_request_more_than_was_recorded_is_a_difference():
    found = recording("mended")
    first = next(i for i, e in enumerate(found.events) if isinstance(e, ModelResponse))
    short = dataclasses.replace(found, events=(*found.events[: first + 1], found.events[-1]))
    assert not rerun(bench(), found.ask, short).same


def test_the_steps_show_each_request_with_all_its_messages():
    found = recording("recommends")
    requests = [step for step in steps(found) if isinstance(step.event, ModelRequest)]
    assert [step.messages[0].role for step in requests] == ["system", "system"]
    assert len(requests[1].messages) == len(requests[0].messages) + len(requests[1].event.messages)


@pytest.mark.parametrize(("lines", "sentence"), [
    (["no json"], "Line 1 is not an event"), (['{"kind": "status"}'], "Line 1 is not an event"),
    (["[]"], "Line 1 is not an event"),
    ([""], "no answer in this file"), (['{"kind": "status", "data": {}}'], "no answer in this file"),
    (['{"kind": "tool_result", "data": {"thread": 1, "message": 2, "turn": 1}}'], "Line 1 is not a step"),
])  # fmt: skip
def test_a_file_that_is_no_recording_is_refused_in_a_sentence(lines, sentence):
    with pytest.raises(NoRecording, match=sentence):
        recordings(lines)


# Answers in the database.


@pytest.fixture
def model():
    """An answerer with a scripted model; gives the server too."""
    servers = []

    def scripted(*replies):
        server = ScriptedServer(replies)
        server.__enter__()
        servers.append(server)
        provider = OpenAIProvider(Settings.from_env({"OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted"}))
        return lambda of, ask, cancel=None: chat.answer(of, ask, cancel, provider)

    yield scripted
    for server in servers:
        server.__exit__()


def answered(thread, user, answerer, question="Which do you recommend first?") -> Message:
    answer = asking.ask(thread, user, question)
    respond(answer.pk, answerer)
    answer.refresh_from_db()
    return answer


@pytest.mark.django_db(transaction=True)
class TestStored:
    def test_a_stored_answer_is_the_same_again_and_nothing_is_stored(self, people, ready, thread, model):
        answer = answered(
            thread, people.engineer,
            model(calls(("kpis", {})), text("It takes 77.7 s."), text("Proposal 1 stands first.")),
        )  # fmt: skip
        assert answer.status == "done" and answer.text.startswith("Proposal 1")
        before = Event.objects.count(), Message.objects.count()
        result = replaying.rerun(ready.experiment, answer.pk, people.engineer)
        assert result.same, result.sentence
        assert (Event.objects.count(), Message.objects.count()) == before

    def test_a_decision_since_then_is_where_it_differs(self, people, ready, thread, model):
        from proposals.services import reviews

        answer = answered(thread, people.engineer, model(text("Proposal 1 stands first.")))
        reviews.decide(ready.plan.proposals.get(rank=1), people.reviewer, "approved")
        told = replaying.rerun(ready.experiment, answer.pk, people.engineer)
        assert not told.same and "`proposals`" in told.sentence

    def test_it_is_asked_with_what_the_thread_held_then(self, people, ready, thread, model):
        keep = ConstraintStated({"keep_axes": ["seq"]}, "`seq` keeps its size.")
        answered(thread, people.engineer, Scripted(keep, final("Held.")), "Keep seq.")
        second = answered(thread, people.engineer, model(text("Proposal 1 stands first.")))
        for held in thread.held.all():
            from dialogue.services import holding

            holding.release(held, people.engineer)
        assert replaying.ask_then(second).constraints.keep_axes == ("seq",)
        result = replaying.rerun(ready.experiment, second.pk, people.engineer)
        assert result.same, result.sentence

    def test_a_failure_of_the_endpoint_is_repeated_without_its_waits(self, people, ready, thread, model):
        answer = answered(thread, people.engineer, model(
            error(429, "slow down", headers={"Retry-After": "1"}), error(401, "wrong key"),
        ))  # fmt: skip
        assert answer.provider == "built-in" and answer.note
        result = replaying.rerun(ready.experiment, answer.pk, people.engineer)
        assert result.same, result.sentence

    def test_only_the_newest_attempt_is_replayed(self, people, ready, thread):
        answer = answered(thread, people.engineer, Scripted(tool(1, "kpis", {}, {"step_time_s": 1.0}), final("First.")))
        long_ago = timezone.now() - timedelta(minutes=5)
        Message.objects.filter(pk=answer.pk).update(status="answering", worker="dead", heartbeat_at=long_ago)
        respond(answer.pk, Scripted(tool(1, "kpis", {}, {"step_time_s": 2.0}), final("Second.")))
        found = replaying.replayed(ready.experiment, answer.pk)
        assert len(found.steps) == 3 and found.events[1].data["result"] == {"step_time_s": 2.0}

    def test_pages_show_the_steps_and_the_result_of_running_again(self, people, ready, thread, model):
        answer = answered(thread, people.engineer, model(
            calls(("kpis", {})), text("It takes 77.7 s."), text("Proposal 1 stands first."),
        ))  # fmt: skip
        client, address = people.client("engineer"), f"/experiments/{ready.experiment.pk}/replay/"
        listed = client.get(address).content.decode()
        assert "Which do you recommend first?" in listed and "scripted" in listed and f"{address}{answer.pk}/" in listed
        found = replaying.replayed(ready.experiment, answer.pk)
        requests = [step.number for step in found.steps if isinstance(step.event, ModelRequest)]
        shown = html.unescape(client.get(f"{address}{answer.pk}/?step={requests[1]}").content.decode())
        assert f"Step {requests[1]} of {len(found.steps)}" in shown and "Previous" in shown and "Next" in shown
        assert "You are the Coordinator" in shown and f"event {found.events[requests[1] - 1].pk}" in shown
        everything = html.unescape(client.get(f"{address}{answer.pk}/?step=all").content.decode())
        assert "It takes 77.7 s." in everything and "is in no tool result" in everything
        for step in ("0", "999", "x", ""):
            assert client.get(f"{address}{answer.pk}/?step={step}").status_code == 200
        again = client.post(f"{address}{answer.pk}/again/", headers={"HX-Request": "true"}).content.decode()
        assert "Same: the current code repeats all" in again and "<html" not in again
        assert (
            f"{address}{answer.pk}/" in listed
            and "Replay" in client.get(f"/experiments/{ready.experiment.pk}/memory/").content.decode()
        )

    def test_engineers_replay_viewers_and_strangers_do_not(self, people, ready, thread):
        answer = answered(thread, people.engineer, Scripted(final("Yes.")))
        address = f"/experiments/{ready.experiment.pk}/replay/"
        for path in (address, f"{address}{answer.pk}/"):
            for who, status in (("engineer", 200), ("viewer", 403), ("outsider", 404), ("anonymous", 302)):
                assert people.client(who).get(path).status_code == status, (path, who)
        for who, status in (("viewer", 403), ("outsider", 404), ("anonymous", 302)):
            assert people.client(who).post(f"{address}{answer.pk}/again/").status_code == status
        assert people.client("engineer").get(f"{address}{answer.pk}/again/").status_code == 405
        assert people.client("engineer").get(f"{address}999999/").status_code == 404

    def test_removed_payloads_and_a_deleted_conversation_are_said(self, people, ready, thread):
        from experiments.services import retention

        answer = answered(thread, people.engineer, Scripted(tool(1, "kpis", {}, {"a": 1}), final("Yes.")))
        client, address = people.client("engineer"), f"/experiments/{ready.experiment.pk}/replay/{answer.pk}/"
        asking.delete(thread, people.engineer)
        assert "of a deleted conversation" in client.get(f"/experiments/{ready.experiment.pk}/replay/").content.decode()
        assert "conversation was deleted" in client.post(f"{address}again/").content.decode()
        Event.objects.update(created_at=timezone.now() - timedelta(days=9))
        people.team.keep_payloads_days = 5
        people.team.save()
        retention.sweep()
        assert "payloads of these steps were removed" in client.get(address).content.decode()

    def test_an_answer_that_was_stopped_is_the_same_as_far_as_it_came(self, people, ready, thread):
        answer = asking.ask(thread, people.engineer, "What should I measure next?")
        scripted = Waiting("It ", "says so.")
        scripted.go.set()
        respond(answer.pk, scripted)
        assert replaying.replayed(ready.experiment, answer.pk) is not None

    def test_an_export_of_the_page_can_be_read_as_a_recording(self, people, ready, thread, model):
        answer = answered(thread, people.engineer, model(calls(("kpis", {})), text("Proposal 1 stands first.")))
        path = f"/experiments/{ready.experiment.pk}/memory.jsonl?thread={thread.pk}"
        lines = b"".join(people.client("engineer").get(path).streaming_content).decode().splitlines()
        (found,) = recordings(lines)
        assert found.message == answer.pk and found.ask.text == "Which do you recommend first?"
        assert found.events == replaying.replayed(ready.experiment, answer.pk).recording.events

    def test_what_an_agent_wrote_of_a_run_is_replayed_as_well(self, people, ready):
        from proposals.agents import analyzer_agent
        from proposals.services import recording, stored

        of = stored.workbench(ready.experiment, None, ready.plan)
        report = analyzer_agent.built_in(of).model_dump(mode="json")
        wrong = {**report, "bottleneck": "idle"}
        with ScriptedServer([calls(("kpis", {})), answer(wrong), *[answer(report)] * 3]) as server:
            settings = Settings.from_env({"OPENAI_BASE_URL": server.url, "ASAP_LLM_MODEL": "scripted"})
            for event in analyzer_agent.report(of, OpenAIProvider(settings)):
                if event.kind != "text_delta":
                    recording.store(ready.experiment, event, "analyzer", run=ready.run)
        result = replaying.rerun_work(ready.experiment, ready.run.pk, "analyzer", people.engineer)
        assert result.same, result.sentence
        client, address = people.client("engineer"), f"/experiments/{ready.experiment.pk}/replay/"
        path = f"{address}run/{ready.run.pk}/analyzer/"
        assert path in client.get(address).content.decode()
        shown = html.unescape(client.get(f"{path}?step=all").content.decode())
        assert "Answer rejected" in shown and "The report says the bottleneck is idle" in shown
        again = client.post(f"{path}again/", headers={"HX-Request": "true"}).content.decode()
        assert "Same: the current code repeats all" in again
        assert people.client("viewer").get(path).status_code == 403
        assert people.client("outsider").post(f"{path}again/").status_code == 404
        assert client.get(f"{address}run/{ready.run.pk}/nobody/").status_code == 404


# The command.


def asap(capsys, *arguments):
    from asapweb.cli import main

    status = main(["replay", *map(str, arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_command_prints_the_steps_of_a_file(capsys):
    path = next(each.path for each in conversations() if each.name == "mended")
    status, out, _ = asap(capsys, path)
    assert status == 0 and "Answer 2 by scripted: How long does the step take?" in out
    assert "complaint" in out and "is in no tool result" in out
    status, out, _ = asap(capsys, path, "--json")
    (answer,) = json.loads(out)["answers"]
    assert [step["kind"] for step in answer["steps"]][-1] == "final" and "again" not in answer


def test_the_command_refuses_in_one_line(capsys, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    for arguments, words in (
        ([tmp_path / "none.jsonl"], "cannot be read"), ([bad], "Line 1 is not an event"),
        ([conversations()[0].path, "--config", "x.json"], "Give both"),
        ([conversations()[0].path, "--answer", "99"], "has no answer 99"),
    ):  # fmt: skip
        status, out, err = asap(capsys, *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1) and words in err
