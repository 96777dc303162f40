"""The compile check of a plan: queued, done at most two at a time, cancelled, shown; by page and by REST."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils import timezone

from dialogue.computations import run
from jobs import workers
from proposals import tasks
from proposals.models import Compilation
from proposals.services import compiling, launching
from proposals.services.stored import workbench
from tests.backend.factories import Stored, make_ready
from tests.backend.threads import in_threads
from tests.compiling.scripted import steer

OPEN = [Compilation.Status.QUEUED, Compilation.Status.WORKING]


@pytest.fixture
def people(transactional_db: None) -> Any:
    """Committed rows: the worker's thread says with a connection of its own that it lives."""
    from tests.backend.factories import make_people

    return make_people()


@pytest.fixture
def scripted(settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    settings.COMPILE_WORKER = "tests.compiling.scripted"
    settings.ASAP_HOME = tmp_path
    steer(monkeypatch, COMPILER="fits")


def asked(people: Any) -> tuple[Stored, list[Compilation]]:
    ready = make_ready(people)
    return ready, compiling.request(ready.plan, people.engineer)


@pytest.mark.usefixtures("scripted")
def test_baseline_and_proposals_are_compiled_and_shown(people: Any) -> None:
    ready, made = asked(people)
    assert [row.proposal.rank if row.proposal else 0 for row in made] == [0, 1, 2, 3]
    address = f"/experiments/{ready.experiment.pk}/proposals/"
    waits = people.client("engineer").get(address).content.decode()
    assert "Cancel the compile check" in waits and f"/plans/{ready.plan.pk}/compile/state/" in waits
    for row in made:
        compiling.compile_one(row.pk)
    assert {row.status for row in Compilation.objects.all()} == {"done"}
    page = people.client("viewer").get(address).content.decode()
    assert "12.5\xa0GB" in page  # the peak, at the number
    assert "jit(train_step)/mlp" in page  # where a collective comes from
    assert "proposal 3 fits" in page
    answer = people.api("viewer").get(f"/api/plans/{ready.plan.pk}/compilations/").json()
    assert len(answer) == 4 and {item["status"] for item in answer} == {"done"}
    baseline = next(item for item in answer if item["proposal"] is None)
    assert baseline["check"]["outcome"] == "fits" and baseline["check"]["peak_bytes"] == 1.25e10
    assert any(row["predicted_sent_bytes"] for row in baseline["check"]["axes"])


@pytest.mark.usefixtures("scripted")
def test_what_does_not_fit_is_said_at_the_number(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steer(monkeypatch, COMPILER="out of memory")
    ready, made = asked(people)
    compiling.compile_one(made[1].pk)
    page = people.client("viewer").get(f"/experiments/{ready.experiment.pk}/proposals/").content.decode()
    assert "out of memory" in page and "over the chip’s" in page


@pytest.mark.usefixtures("scripted")
def test_answers_and_launch_files_say_what_was_compiled(people: Any) -> None:
    ready, made = asked(people)
    first = made[1].proposal
    assert first is not None
    assert "compiled step" not in answered(ready, people, "confidence", proposal=first.rank)
    assert not any("Compile check" in item.text for item in launching.files(first))
    compiling.compile_one(made[1].pk)
    explained = answered(ready, people, "confidence", proposal=first.rank)
    assert "The compiled step fits: peak 12.5 GB" in explained
    produced = [item for item in launching.files(first) if item.produced]
    heads = [" ".join(item.text.replace("#", " ").split()) for item in produced]
    assert heads and all("The compiled step fits: peak 12.5" in head for head in heads if "Chips:" in head)
    assert any("Chips:" in head for head in heads)


def answered(ready: Stored, people: Any, key: str, **values: Any) -> str:
    return run(workbench(ready.experiment, people.viewer), key, values).rendered.plain.replace("\xa0", " ")


@pytest.mark.usefixtures("scripted")
def test_two_are_compiled_at_a_time_and_the_next_is_sent_when_one_ends(people: Any) -> None:
    _, made = asked(people)
    now = timezone.now()
    for row in made[:2]:
        Compilation.objects.filter(pk=row.pk).update(status="working", worker="elsewhere/1/1/1", heartbeat_at=now)
    tasks.compile_one(made[2].pk)
    assert Compilation.objects.get(pk=made[2].pk).status == "queued"
    Compilation.objects.filter(pk=made[0].pk).update(status="done")
    tasks.compile_one(made[2].pk)
    assert Compilation.objects.get(pk=made[2].pk).status == "done"


@pytest.mark.usefixtures("scripted")
def test_cancelling_stops_the_compiler(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steer(monkeypatch, COMPILER="hang")
    ready, made = asked(people)

    def cancel() -> None:
        while Compilation.objects.get(pk=made[0].pk).stage != "compiling":
            time.sleep(0.05)
        assert people.client("engineer").post(f"/plans/{ready.plan.pk}/compile/cancel/").status_code == 302

    in_threads(2, lambda index: cancel() if index else compiling.compile_one(made[0].pk))
    assert {row.status for row in Compilation.objects.all()} == {"cancelled"}


@pytest.mark.usefixtures("scripted")
def test_a_check_whose_worker_died_is_taken_over(people: Any) -> None:
    _, made = asked(people)
    dead = workers.this_process().rsplit("/", 1)[0] + "/1"  # this PID, started at another time
    Compilation.objects.filter(pk=made[0].pk).update(
        status="working", worker=dead, heartbeat_at=timezone.now(), attempts=1
    )
    compiling.compile_one(made[0].pk)
    row = Compilation.objects.get(pk=made[0].pk)
    assert (row.status, row.attempts) == ("done", 2)


@pytest.mark.usefixtures("scripted")
def test_a_new_plan_is_checked_by_itself_where_that_is_wanted(people: Any, settings: Any) -> None:
    ready = make_ready(people)
    settings.COMPILE_AUTO = False
    assert compiling.on_ready(ready.plan) == []
    settings.COMPILE_AUTO = True
    assert len(compiling.on_ready(ready.plan)) == 4
    assert compiling.on_ready(ready.plan) == []  # they are open


def test_without_the_compiler_one_line_says_how_to_get_it(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiling.targets.installed("tpu"):
        pytest.skip("libtpu is installed here")
    ready = make_ready(people)
    assert compiling.on_ready(ready.plan) == []
    page = people.client("engineer").get(f"/experiments/{ready.experiment.pk}/proposals/").content.decode()
    assert page.count("bin/bootstrap tpu") == 1 and "Cancel the compile check" not in page
    answer = people.api("engineer").post(f"/api/plans/{ready.plan.pk}/compilations/")
    assert answer.status_code == 409 and "bin/bootstrap tpu" in answer.json()["detail"]


@pytest.mark.usefixtures("scripted")
def test_a_step_that_xla_does_not_compile_is_not_checked(people: Any) -> None:
    plan = make_ready(people).plan
    plan.config = plan.priced_with | {"software": {"framework": "nanotron"}}
    plan.save(update_fields=["config"])
    assert compiling.on_ready(plan) == []
    answer = people.api("engineer").post(f"/api/plans/{plan.pk}/compilations/")
    assert answer.status_code == 409 and "this run trains with nanotron" in answer.json()["detail"]


@pytest.mark.usefixtures("scripted")
def test_for_everyone_who_knocks(people: Any) -> None:
    ready = make_ready(people)
    with pytest.raises(PermissionDenied):
        compiling.request(ready.plan, people.viewer)
    with pytest.raises(Http404):
        compiling.request(ready.plan, people.outsider)
    for path in ("compile/", "compile/cancel/"):
        address = f"/plans/{ready.plan.pk}/{path}"
        assert people.client("viewer").post(address).status_code == 403
        assert people.client("outsider").post(address).status_code == 404
        assert people.client("anonymous").post(address).status_code == 302
        assert people.client("engineer").get(address).status_code == 405
    assert people.api("outsider").get(f"/api/plans/{ready.plan.pk}/compilations/").status_code == 404
    assert people.api("viewer").delete(f"/api/plans/{ready.plan.pk}/compilations/").status_code == 403
    assert not Compilation.objects.exists()
