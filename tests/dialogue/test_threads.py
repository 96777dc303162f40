"""Asking and being answered, with the database as it is used: every writer has its own connection."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from agent.events import Complaint, Fault, Retry, Stopped, TextDelta
from agent.messages import UserMessage
from dialogue.models import Held, Message, Thread
from dialogue.services import answering, asking, holding
from dialogue.services.answering import respond
from experiments.models import Event
from proposals.agents.conversation import ConstraintStated, FactStated, MeshOffered
from tests.dialogue.answerers import Scripted, Waiting, final, said, tool

pytestmark = pytest.mark.django_db(transaction=True)


def ask(thread, user, text="Which do you recommend first?"):
    return asking.ask(thread, user, text)


def answered(thread, user, *said, text="Which do you recommend first?"):
    """The answer once it is written, and who wrote it."""
    answer, scripted = ask(thread, user, text), Scripted(*said)
    respond(answer.pk, scripted)
    answer.refresh_from_db()
    return answer, scripted


def in_background(function, *args):
    def work():
        try:
            function(*args)
        finally:
            connection.close()

    running = threading.Thread(target=work)
    running.start()
    return running


def kinds(thread):
    found = Event.objects.filter(experiment=thread.experiment, data__thread=thread.pk).order_by("pk")
    return [event.kind for event in found]


def test_a_question_is_answered_and_every_step_is_on_record(people, ready, thread):
    answer, scripted = answered(
        thread, people.engineer,
        tool(1, "predict", {"ici": {"data": 16}}, {"step_time_s": 1.0}), TextDelta(1, "The step takes 1 s."),
        final("The step takes 1 s."),
    )  # fmt: skip
    assert scripted.asked[0].text == "Which do you recommend first?" and scripted.asked[0].earlier == ()
    assert (answer.status, answer.text, answer.provider) == ("done", "The step takes 1 s.", "scripted")
    assert answer.finished_at and answer.first_text_s is not None
    (step,) = answer.steps
    assert (step["tool"], step["ok"], step["result"]) == ("predict", True, "r1")
    assert kinds(thread) == ["message", "tool_call", "tool_result", "final"]
    held = Event.objects.get(pk=step["returned"]).data
    assert held["result"] == {"step_time_s": 1.0} and held["message"] == answer.pk
    thread.refresh_from_db()
    assert thread.title == "Which do you recommend first?"


def test_the_next_answer_reads_the_thread(people, thread):
    answered(thread, people.engineer, TextDelta(1, "The first."), final("The first."))
    _, scripted = answered(thread, people.engineer, final("Yes."), text="Are you sure?")
    assert [(turn.role, turn.text) for turn in scripted.asked[0].earlier] == [
        ("user", "Which do you recommend first?"), ("assistant", "The first."),
    ]  # fmt: skip


def confirmed(thread, user, *stated):
    """An answer that asks to hold these, all of which a person confirms."""
    answer, scripted = answered(thread, user, *stated, *said("Noted."))
    for index in range(len(stated)):
        holding.answer_card(answer, index, user, True)
    return scripted


def test_nothing_is_held_before_a_person_confirms_it(people, thread):
    stated = (
        ConstraintStated({"keep_batch": True}, "Keep the batch."),
        FactStated("training.remat", "full", "Remat is full."),
    )
    answer, _ = answered(thread, people.engineer, *stated, *said("Noted."))
    assert holding.held_by(thread) == []
    holding.answer_card(answer, 0, people.reviewer, True)
    holding.answer_card(answer, 1, people.reviewer, False)
    (held,) = holding.held_by(thread)
    assert (held.key, held.held_by) == ("keep_batch", people.reviewer)
    answer.refresh_from_db()
    assert [effect["decided"] for effect in answer.effects] == ["held", "dismissed"]
    for index in (0, 1, 2):
        with pytest.raises(asking.DialogueError):
            holding.answer_card(answer, index, people.engineer, True)


def test_what_is_confirmed_counts_in_the_next_answer_until_it_is_taken_back(people, thread):
    told = ConstraintStated({"keep_batch": True, "fixed": {"seq": 4}}, "Keep the batch and seq 4.")
    confirmed(thread, people.engineer, told, FactStated("training.remat", "full", "Remat is full."))
    assert [(item.kind, item.key) for item in holding.held_by(thread)] == [
        ("constraint", "keep_batch"), ("constraint", "fixed.seq"), ("fact", "training.remat"),
    ]  # fmt: skip
    second = confirmed(thread, people.engineer, ConstraintStated({"fixed": {"model": 2}}, "Model 2."))
    assert second.asked[0].constraints.to_json() == {"keep_batch": True, "fixed": {"seq": 4}}
    assert second.asked[0].facts == {"training.remat": "full"}
    assert second.benches[0].constraints.fixed == {"seq": 4} and second.benches[0].config.training.remat == "full"
    # Another axis joins; the same axis replaces; a person takes back.
    third = confirmed(thread, people.engineer, ConstraintStated({"fixed": {"seq": 2}}, "Seq 2."))
    assert third.asked[0].constraints.to_json()["fixed"] == {"seq": 4, "model": 2}
    for item in holding.held_by(thread):
        if item.key.startswith("fixed."):
            assert holding.release(item, people.engineer)
    assert [item.key for item in holding.held_by(thread)] == ["keep_batch", "training.remat"]
    first = holding.held_by(thread)[0]
    assert holding.release(first, people.engineer) and not holding.release(first, people.engineer)
    _, last = answered(thread, people.engineer, final("Noted."))
    assert not last.asked[0].constraints
    assert Held.objects.get(pk=first.pk).removed_by == people.engineer


def test_what_is_typed_is_held_as_it_reads(people, ready, thread):
    from dialogue.services import computing

    config = computing.bench_of(ready.experiment, people.engineer).config
    holding.hold_typed(thread, people.engineer, f"model=2 batch {config.training.global_batch}", config)
    assert [item.key for item in holding.held_by(thread)] == ["fixed.model", "keep_batch"]
    for text in ("", "hello", "batch 7", "precision fp8"):
        with pytest.raises(asking.DialogueError):
            holding.hold_typed(thread, people.engineer, text, config)
    assert len(holding.held_by(thread)) == 2


def test_excluded_meshes_add_up(people, thread):
    first, second = {"ici": {"data": 16}}, {"ici": {"data": 8, "seq": 2}}
    for mesh, words in ((first, "Not the first."), (second, "Nor this."), (second, "Nor this.")):
        confirmed(thread, people.engineer, ConstraintStated({"excluded": [mesh]}, words))
    assert holding.constraints_of(holding.held_by(thread)).to_json() == {"excluded": [first, second]}


def test_what_cannot_be_held_is_said_and_names_what_to_do(people, thread):
    confirmed(thread, people.engineer, ConstraintStated({"fixed": {"warp": 2}}, "Warp 2."))
    answer, scripted = answered(thread, people.engineer, final("never said"))
    assert scripted.asked == [] and answer.status == "failed"
    assert "'warp' is neither an axis of the mesh" in answer.note and "Remove them" in answer.note


def test_an_answer_is_stopped_while_it_is_written(people, thread):
    answer, waiting = ask(thread, people.engineer), Waiting("The first", " is best.")
    running = in_background(respond, answer.pk, waiting)
    assert waiting.began.wait(20)
    assert asking.stop(answer)
    running.join(20)
    answer.refresh_from_db()
    assert (answer.status, answer.text, answer.note) == ("stopped", "The first", "Stopped.")
    assert not asking.stop(answer)
    again = asking.retry(answer, people.engineer)
    respond(again.pk, Scripted(final("The first is best.")))
    again.refresh_from_db()
    assert again.status == "done" and again.question_id == answer.question_id
    with pytest.raises(asking.DialogueError, match="Only the last answer"):
        asking.retry(answer, people.engineer)


def test_an_answer_is_stopped_before_it_begins(people, thread):
    answer = ask(thread, people.engineer)
    assert asking.stop(answer)
    scripted = Scripted(final("never said"))
    respond(answer.pk, scripted)
    answer.refresh_from_db()
    assert answer.status == "stopped" and scripted.asked == []


def test_one_question_at_a_time_and_none_that_is_empty_or_endless(people, thread):
    answer = ask(thread, people.engineer)
    for text, words in (
        ("And then?", "still being written"), (" \x00\n".replace("\x00", ""), "Write a question"),
        ("x" * 8001, "8,001"),
    ):  # fmt: skip
        with pytest.raises(asking.DialogueError, match=words):
            ask(thread, people.engineer, text)
    respond(answer.pk, Scripted(final("Yes.")))
    assert ask(thread, people.engineer, "a\x00b").question.text == "a\ufffdb"


def test_text_that_is_withdrawn_counts_no_more(people, thread):
    complaint = Complaint(1, 1, "content", ("7.5 s is in no result",), UserMessage("7.5 s is in no result"))
    retry = Retry(2, 1, Fault("server", "The endpoint answered 500."), 0.0)
    answer, _ = answered(
        thread, people.engineer, TextDelta(1, "It takes 7.5 s."), complaint, TextDelta(2, "It ta"), retry,
        TextDelta(2, "It takes 1 s."), final("It takes 1 s.", "model"),
    )  # fmt: skip
    assert (answer.text, answer.revision) == ("It takes 1 s.", 2)
    assert kinds(thread) == ["message", "complaint", "retry", "final"]


def test_where_the_model_fails_the_answer_says_so(people, thread):
    answer, _ = answered(
        thread, people.engineer, TextDelta(1, "Half an ans"), Stopped("fault", "The model did not answer in 60 s.")
    )
    assert (answer.status, answer.text, answer.note) == ("failed", "", "The model did not answer in 60 s.")


@pytest.mark.usefixtures("no_model")
def test_free_text_is_refused_where_no_model_is_set_up(people, thread):
    with pytest.raises(asking.DialogueError, match="needs a language model"):
        ask(thread, people.engineer)
    assert not Message.objects.exists()


def test_an_answer_whose_worker_died_is_taken_over_and_says_everything_once(people, thread):
    answer = ask(thread, people.engineer)
    claimed = answering.claim(answer.pk, f"{_dead_process()}/1")
    writing = answering.Writing(claimed, claimed.worker, answering.Cancel())
    for step in (TextDelta(1, "Half"), ConstraintStated({"keep_batch": True}, "Keep the batch.")):
        writing.take(step)
    assert asking.ANSWERS.sweep() == [answer.pk]
    respond(answer.pk, Scripted(ConstraintStated({"keep_batch": True}, "Keep the batch."), final("Whole.")))
    answer.refresh_from_db()
    assert (answer.status, answer.text, answer.attempts, answer.revision > 0) == ("done", "Whole.", 2, True)
    assert len(answer.effects) == 1 and not Held.objects.exists()
    # The first worker comes back from the dead, and changes nothing.
    writing.take(TextDelta(1, " more"))
    writing.flush(now=True)
    assert writing.cancel.is_set()
    answer.refresh_from_db()
    assert answer.text == "Whole."


def test_an_answer_that_lives_is_left_alone(people, thread):
    answer, waiting = ask(thread, people.engineer), Waiting("One", " two")
    running = in_background(respond, answer.pk, waiting)
    assert waiting.began.wait(20)
    assert asking.ANSWERS.sweep() == []
    other = Scripted(final("another"))
    respond(answer.pk, other)
    assert other.asked == []
    waiting.go.set()
    running.join(20)
    answer.refresh_from_db()
    assert answer.text == "One two"


def test_an_answer_that_kills_its_workers_ends_with_a_sentence(people, thread):
    answer = ask(thread, people.engineer)
    for _ in range(asking.ANSWERS.most_attempts):
        assert answering.claim(answer.pk, f"{_dead_process()}/1")
    respond(answer.pk, Scripted(final("never said")))
    answer.refresh_from_db()
    assert answer.status == "failed" and "died twice" in answer.note


def test_what_nobody_took_up_is_queued_again(people, thread):
    answer = ask(thread, people.engineer)
    assert asking.ANSWERS.sweep() == []
    Message.objects.filter(pk=answer.pk).update(created_at=timezone.now() - timedelta(minutes=1))
    assert asking.ANSWERS.sweep() == [answer.pk]


def test_our_own_fault_ends_the_answer_with_a_sentence_and_is_loud(people, thread):
    def breaks(bench, ask, cancel=None):
        yield TextDelta(1, "So far")
        raise ZeroDivisionError

    answer = ask(thread, people.engineer)
    with pytest.raises(ZeroDivisionError):
        respond(answer.pk, breaks)
    answer.refresh_from_db()
    assert answer.status == "failed" and "ZeroDivisionError" in answer.note and answer.text == "So far"


def test_who_left_the_team_is_not_answered(people, thread):
    from accounts.models import Membership

    answer = ask(thread, people.engineer)
    Membership.objects.filter(user=people.engineer).delete()
    respond(answer.pk, Scripted(final("never said")))
    answer.refresh_from_db()
    assert answer.status == "failed" and "no longer a member" in answer.note


def test_a_mesh_is_offered_and_survives_as_data(people, thread):
    offer = MeshOffered({"ici": {"data": 4, "seq": 2, "model": 2}, "dcn": {"data": 1}}, {}, "data 4 · seq 2 · model 2")
    answer, _ = answered(thread, people.engineer, offer, final("Here it is."))
    assert list(answer.effects[0]["mesh"]["ici"]) == ["data", "seq", "model"]  # the order is the layout


def test_threads_are_opened_and_deleted_and_the_memory_keeps_what_they_did(people, ready, thread):
    assert asking.open_thread(ready.experiment, people.engineer) == thread  # not used yet
    answered(thread, people.engineer, final("Yes."))
    assert asking.open_thread(ready.experiment, people.engineer) != thread
    pk = thread.pk
    asking.delete(thread, people.engineer)
    assert not Thread.objects.filter(pk=pk).exists() and not Message.objects.filter(thread_id=pk).exists()
    assert "final" in kinds(Thread(pk=pk, experiment=ready.experiment))


def _dead_process() -> str:
    """The name of a process of this machine that is gone."""
    import subprocess
    import sys

    code = "from jobs import workers; print(workers.this_process())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
