"""A run without a profile, from its step time: pages and API for everyone who knocks, and the whole way to a result."""

from __future__ import annotations

import copy
import json
from urllib.parse import urlencode

import pytest

from diagnosis.models import DiagnosisRecord
from experiments.models import Experiment, RunStatus
from experiments.services import configuration, runs, starting, uploads
from history.models import HistoryRecord
from proposals.models import Measurement, PlanRecord
from proposals.services import coordinator, reviews
from tests.backend.factories import CONFIG, upload

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/experiments/new/step-time/"
API = "/api/experiments/step-time/"


@pytest.fixture
def people(transactional_db):
    from tests.backend.factories import make_people

    return make_people()


def measured(step_time_s=3.0, **more):
    return copy.deepcopy(CONFIG) | {"measured": {"step_time_s": step_time_s, **more}}


def form(**changes):
    """The form as a browser sends it for CONFIG."""
    fields = {
        "config_way": "form", "name": "llama3.1-8b on v6e-16", "chip": "v6e", "topology": "4 × 4", "slices": "1",
        "ici_name": ["data", "seq"], "ici_size": ["4", "4"], "model": "llama3.1-8b", "global_batch": "32",
        "seq_len": "8192", "weight_sharding": "fsdp", "framework": "maxtext", "step_time_s": "3.0",
        "peak_memory_gb": "27.5", "without_profile": "1",
    }  # fmt: skip
    return fields | changes


def started(people, data=None):
    experiment, checked = starting.from_step_time(people.team, people.engineer, data or measured())
    assert experiment is not None, checked.errors
    coordinator.advance(runs.newest(experiment).pk)
    experiment.refresh_from_db()
    return experiment


def test_the_pages_for_everyone_who_knocks(people):
    assert people.client("engineer").get(PAGE).status_code == 200
    assert people.client("engineer").put(PAGE).status_code == 405
    assert people.client("viewer").get(PAGE).status_code == 403
    assert people.client("viewer").post(PAGE, form()).status_code == 403
    assert people.client("anonymous").post(PAGE, form()).status_code == 302
    assert not Experiment.objects.exists()
    answer = people.client("outsider").post(PAGE, form())
    assert answer.status_code == 302  # an experiment of the outsider's own team
    theirs = Experiment.objects.get()
    assert theirs.team.name == "Another team"
    assert people.client("engineer").get(answer["Location"]).status_code == 404


def test_the_form_starts_a_run_that_becomes_proposals(people):
    answer = people.client("engineer").post(PAGE, form())
    experiment = Experiment.objects.get()
    assert answer["Location"] == f"/experiments/{experiment.pk}/"
    assert experiment.config["measured"] == {"step_time_s": 3.0, "peak_memory_bytes": 27_500_000_000}
    assert experiment.config["software"] == {"framework": "maxtext"}
    waiting = people.client("viewer").get(answer["Location"]).content.decode()
    assert "Ingesting" in waiting
    coordinator.advance(runs.newest(experiment).pk)
    experiment.refresh_from_db()
    assert (experiment.state, experiment.origin, experiment.step_time_s) == ("ready", "step_time", 3.0)
    kinds = list(PlanRecord.objects.get().proposals.order_by("rank").values_list("kind", flat=True))
    assert kinds[0] == "recommendation" and (len(kinds) == 3 or kinds[-1] == "keep")
    page = people.client("viewer").get(answer["Location"]).content.decode()
    assert "Only the step time and the peak memory were measured" in page and "Step time only" in page
    assert "Predicted, not measured" in page and "predicted parts, scaled to the measured step" in page
    cards = people.client("viewer").get(f"/experiments/{experiment.pk}/proposals/").content.decode()
    assert "No profile: only the step time was measured" in cards


def test_what_is_measured_and_what_is_predicted_keep_their_marks(people):
    experiment = started(people)
    record = DiagnosisRecord.objects.get()
    assert record.data["basis"] == "step_time"
    known = {key for key, value in record.data["kpis"].items() if value is not None}
    assert known == {"step_time_s", "mfu"}
    assert sum(record.data["breakdown_s"].values()) == pytest.approx(3.0)
    base = f"/experiments/{experiment.pk}/evidence/"
    panels = {ref: people.client("viewer").get(f"{base}{ref}/").content.decode() for ref in
              ("term-compute", "kpi-step_time_s", "confidence", "bottleneck-0")}  # fmt: skip
    assert "predicted by the performance model" in panels["term-compute"]
    assert "given in the" in panels["kpi-step_time_s"] and "measured by the profiler" not in panels["kpi-step_time_s"]
    assert all("predicted" in panels[ref] for ref in ("confidence", "bottleneck-0"))
    assert people.client("outsider").get(f"{base}term-compute/").status_code == 404
    for path in ("report/", "report.md", "report.json", "ops/", "memory/", "launch/", "configuration/", "explore/"):
        answer = people.client("viewer").get(f"/experiments/{experiment.pk}/{path}", follow=True)
        assert answer.status_code == 200, path


@pytest.mark.parametrize(
    ("changes", "slot", "sentence"),
    [
        ({"step_time_s": ""}, "measured-step_time_s", "is missing"),
        ({"step_time_s": "fast"}, "measured-step_time_s", "must be a number"),
        ({"step_time_s": "1 ms"}, "measured-step_time_s", "at the peak of 16 v6e"),
        ({"peak_memory_gb": "500"}, "measured-peak_memory_bytes", "more than the"),
        ({"model": ""}, "model", "is missing"),
        ({"global_batch": ""}, "training-global_batch", "is missing"),
    ],
)
def test_what_is_wrong_stands_at_its_field_and_nothing_is_stored(people, changes, slot, sentence):
    answer = people.client("engineer").post(PAGE, form(**changes))
    assert answer.status_code == 422
    page = answer.content.decode()
    said = page.partition(f'id="err-{slot}">')[2].partition("</span>")[0]
    assert sentence in said.replace("&#x27;", "'")
    assert 'value="8192"' in page  # what was typed stays
    live = people.client("engineer").post("/experiments/configuration/check/", form(**changes) | {"all": "1"})
    assert sentence in live.content.decode()
    assert not Experiment.objects.exists()


def test_a_file_starts_it_too(people):
    body = {"config_way": "file", "config_text": json.dumps(measured())}
    assert people.client("engineer").post(PAGE, body).status_code == 302
    wrong = {"config_way": "file", "config_text": json.dumps(CONFIG)}
    answer = people.client("engineer").post(PAGE, wrong)
    assert answer.status_code == 422 and "measured.step_time_s: is missing" in answer.content.decode()
    assert Experiment.objects.count() == 1


def test_explore_hands_its_configuration_over(people):
    query = urlencode({"chip": "v6e", "topology": "4x4", "ici_name": ["data", "model"], "ici_size": ["8", "2"],
                       "model": "llama3.1-8b", "global_batch": "32", "seq_len": "8192"}, doseq=True)  # fmt: skip
    page = people.client("engineer").get(f"/explore/?{query}").content.decode()
    link = page.partition(f'href="{PAGE}?')[2].partition('"')[0].replace("&amp;", "&")
    assert link
    filled = people.client("engineer").get(f"{PAGE}?{link}").content.decode()
    assert '<option value="v6e" selected>' in filled and 'value="4 × 4"' in filled
    assert '<option value="llama3.1-8b" selected>' in filled
    assert f"{PAGE}?" not in people.client("viewer").get(f"/explore/?{query}").content.decode()
    for broken in ("config={", "config=" + "x" * 30_000, "config=[1]"):
        assert people.client("engineer").get(f"{PAGE}?{broken}").status_code == 200


def test_another_step_time_is_another_analysis_and_none_is_refused(people):
    experiment = started(people)
    checked = configuration.save(experiment, people.engineer, CONFIG)
    assert list(checked.errors) == ["measured.step_time_s"]
    assert configuration.save(experiment, people.engineer, measured(6.0)).ok
    run = runs.newest(experiment)
    assert run.status == RunStatus.UPLOADED
    coordinator.advance(run.pk)
    experiment.refresh_from_db()
    assert (experiment.state, experiment.step_time_s) == ("ready", 6.0)


def test_a_profile_that_is_added_takes_the_place_of_the_step_time(people):
    experiment = started(people)
    run = runs.newest(experiment)
    body = {"files": [upload()]}
    assert people.client("viewer").post(f"/experiments/{experiment.pk}/files/", body).status_code == 403
    uploads.add_files(run, people.engineer, [upload()])
    again = runs.newest(experiment)
    assert again.pk != run.pk and not runs.is_without_profile(again)
    coordinator.advance(again.pk)
    again.refresh_from_db()
    assert again.status == RunStatus.FAILED and "Internal error" not in again.reason  # the file is no profile


def test_the_api_for_everyone_who_knocks(people):
    body = {"config": measured(), "name": "from a number"}
    assert people.api("anonymous").post(API, body, format="json").status_code in (401, 403)
    assert people.api("viewer").post(API, body, format="json").status_code == 403
    assert people.api("engineer").get(API).status_code in (404, 405)
    answer = people.api("engineer").post(API, body, format="json")
    assert answer.status_code == 201 and answer.json()["origin"] == "step_time"
    pk = answer.json()["id"]
    coordinator.advance(runs.newest(Experiment.objects.get(pk=pk)).pk)
    assert people.api("outsider").get(f"/api/experiments/{pk}/").status_code == 404
    proposals = people.api("viewer").get(f"/api/experiments/{pk}/").json()
    assert proposals["name"] == "from a number" and proposals["state"] == "ready"


@pytest.mark.parametrize(
    ("config", "field"),
    [(CONFIG, "measured.step_time_s"), (measured(-1), "measured.step_time_s"), ([], None), ({}, "hardware")],
)
def test_the_api_says_what_is_wrong(people, config, field):
    answer = people.api("engineer").post(API, {"config": config}, format="json")
    assert answer.status_code == 400 and answer.json()["detail"]
    assert field is None or field in answer.json()["errors"]
    assert not Experiment.objects.exists()


def test_the_api_prices_candidates_from_a_baseline(people):
    body = {"config": [CONFIG, CONFIG], "baseline": measured(3.0), "mesh": "data=16"}
    found = people.api("viewer").post("/api/predict/", body, format="json").json()
    assert all(item["calibrated_from"]["step_time_s"] == 3.0 for item in found)
    answer = people.api("viewer").post("/api/predict/", body | {"baseline": CONFIG}, format="json")
    assert answer.status_code == 400 and "measured.step_time_s" in answer.json()["detail"]


def test_the_measured_loop_closes_on_step_times_alone(people):
    experiment = started(people)
    chosen = next(item for item in PlanRecord.objects.get().proposals.order_by("rank") if item.kind != "keep")
    reviews.decide(chosen, people.reviewer, "approved")
    place = f"/proposals/{chosen.pk}/step-time/"
    assert people.client("viewer").get(place).status_code == 403
    assert people.client("outsider").get(place).status_code == 404
    assert people.client("engineer").put(place).status_code == 405
    page = people.client("engineer").get(place).content.decode()
    assert "This run measures" in page and 'name="step_time_s" value=""' in page
    data = copy.deepcopy(measured(2.0))
    data["mesh"] = chosen.data["mesh"]
    data["training"] |= chosen.data["changes"]
    body = {"config_way": "file", "config_text": json.dumps(data | {"name": "after"})}
    assert people.client("engineer").post(place, body | {"config_text": "name: x"}).status_code == 422
    answer = people.client("engineer").post(place, body)
    made = Measurement.objects.get(proposal=chosen)
    assert answer["Location"] == f"/experiments/{made.experiment_id}/"
    coordinator.advance(runs.newest(made.experiment).pk)
    made.refresh_from_db()
    assert made.status == Measurement.Status.MEASURED, made.reason
    tokens = data["training"]["global_batch"] / CONFIG["training"]["global_batch"]
    assert made.speedup == pytest.approx(3.0 / 2.0 * tokens)
    assert any("step time" in line for line in made.caveats)
    assert HistoryRecord.objects.get(key=made.record).bottleneck == ""  # a predicted bottleneck teaches nothing
    assert people.client("viewer").get(f"/experiments/{experiment.pk}/proposals/").status_code == 200
