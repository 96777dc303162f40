"""A configuration that its profile contradicts is decided on before any verdict: in the form, the API, the loop."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
from django.core.files import File
from django.urls import reverse

from experiments.models import Experiment, RunStatus
from experiments.samples.samples import SAMPLES
from experiments.services import against_profile, configuration, runs, uploads
from experiments.step_profile import Device, Op, StepProfile
from proposals.models import Measurement
from proposals.services import coordinator, measuring
from tests.backend.factories import CONFIG, step_profile, upload
from tests.backend.measured_runs import analyse, config_of, make_run, step_of

pytestmark = pytest.mark.slow

SAMPLE = next(sample for sample in SAMPLES if sample.key == "asap-experiment-3")
TRUE: dict[str, Any] = json.loads(SAMPLE.config.read_text())
WRONG = {**copy.deepcopy(TRUE), "hardware": {"chip": "v6e", "topology": [16, 16], "slices": 1}}


def receive(people: Any, config: dict[str, Any], **more: Any) -> Experiment:
    with SAMPLE.files[0].open("rb") as file:
        return uploads.receive(
            people.team, people.engineer, [File(file, name="host-0.xplane.pb.gz")], json.dumps(config), "third", **more
        )


def advanced(experiment: Experiment) -> Experiment:
    coordinator.advance(runs.newest(experiment).pk)
    return Experiment.objects.get(pk=experiment.pk)


def test_a_configuration_that_agrees_is_diagnosed_at_once(people):
    experiment = advanced(receive(people, TRUE))
    assert experiment.state == RunStatus.READY
    assert experiment.config_kept == []


def test_one_that_contradicts_waits_and_is_answered_with_what_does(people):
    experiment = advanced(receive(people, WRONG))
    assert experiment.state == RunStatus.CONFIGURING
    said = experiment.events.filter(kind="status").last().data["contradictions"]
    assert [item["field"] for item in said] == ["hardware.chip"]

    address = f"/api/experiments/{experiment.pk}/configuration/"
    api = people.api("engineer")
    refused = api.put(address, WRONG, format="json")
    assert refused.status_code == 409
    (item,) = refused.json()["contradictions"]
    assert (item["field"], item["configured"], item["profile"]) == ("hardware.chip", "TPU v6e (Trillium)", "TPU v5e")
    assert item["use"] == {"hardware.chip": "v5e"}
    assert item["evidence"]
    assert runs.newest(experiment).status == RunStatus.CONFIGURING
    assert api.put(address, {**WRONG, "accept": "mesh.ici"}, format="json").status_code == 409
    assert api.put(address, {**WRONG, "accept": 7}, format="json").status_code == 400

    kept = api.put(address, {**WRONG, "accept": ["hardware.chip"]}, format="json")
    assert kept.status_code == 200, kept.json()
    assert "accept" not in kept.json()["config"]
    experiment = advanced(experiment)
    assert experiment.state == RunStatus.READY
    assert [item["field"] for item in experiment.config_kept] == ["hardware.chip"]
    client = people.client("engineer")
    for page in ("experiment", "report", "report_markdown"):
        answer = client.get(reverse(page, args=[experiment.pk]))
        assert "the profile was recorded on TPU v5e" in answer.content.decode(), page
    # What was kept is not asked again; another wrong value is.
    assert api.put(address, {**WRONG, "notes": "again"}, format="json").status_code == 200
    other = {**WRONG, "hardware": {"chip": "v5p", "topology": [8, 8, 4], "slices": 1}}
    assert api.put(address, other, format="json").status_code == 409


def test_what_is_corrected_leaves_no_caveat(people):
    experiment = advanced(receive(people, WRONG))
    answer = people.api("engineer").put(f"/api/experiments/{experiment.pk}/configuration/", TRUE, format="json")
    assert answer.status_code == 200
    experiment = advanced(experiment)
    assert (experiment.state, experiment.config_kept) == (RunStatus.READY, [])


def test_what_is_accepted_with_the_upload_is_not_asked(people):
    with SAMPLE.files[0].open("rb") as file:
        answer = people.api("engineer").post(
            "/api/experiments/",
            {"files": [file], "config": json.dumps(WRONG), "accept": "hardware.chip, training.remat"},
            format="multipart",
        )
    assert answer.status_code == 201, answer.json()
    experiment = advanced(Experiment.objects.get(pk=answer.json()["id"]))
    assert experiment.state == RunStatus.READY
    assert [item["field"] for item in experiment.config_kept] == ["hardware.chip"]  # what contradicts nothing is gone
    assert "TPU v5e" in against_profile.caveats(experiment)[0]


@pytest.fixture
def waiting(people):
    """An experiment whose profile was read, under a configuration with the wrong chip and batch."""
    config = copy.deepcopy(CONFIG)
    config["hardware"] = {"chip": "v5e", "topology": [4, 4], "slices": 1}
    experiment = uploads.receive(people.team, people.engineer, [upload()], json.dumps(config), "waits")
    run = runs.newest(experiment)
    from experiments.services import profiles

    profiles.store(run.profile, step_profile(), profiles.write(run, step_profile()))
    assert runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    assert runs.move(run, RunStatus.INGESTING, RunStatus.CONFIGURING, actor="coordinator")
    return Experiment.objects.get(pk=experiment.pk)


def form_of(experiment: Experiment, **more: Any) -> dict[str, Any]:
    hardware, training = experiment.config["hardware"], experiment.config["training"]
    return {
        "config_way": "form", "name": experiment.name, "chip": hardware["chip"], "topology": "4 × 4", "slices": "1",
        "ici_name": ["data", "seq"], "ici_size": ["4", "4"], "ici_role": ["", ""], "model": "llama3.1-8b",
        "global_batch": str(training["global_batch"]), "seq_len": str(training["seq_len"]), **more,
    }  # fmt: skip


def test_the_form_shows_it_beside_the_field_and_saves_nothing_undecided(people, waiting):
    client = people.client("engineer")
    address = reverse("configuration", args=[waiting.pk])
    page = client.get(address).content.decode()
    assert "the profile was recorded on TPU v6e" in page
    assert "The profile contradicts this configuration in 1 field" in page
    answer = client.post(address, form_of(waiting))
    assert answer.status_code == 422
    assert runs.newest(waiting).status == RunStatus.CONFIGURING
    live = client.post(reverse("check_configuration"), {**form_of(waiting), "experiment": waiting.pk})
    assert 'name="use" value="hardware.chip"' in live.content.decode()


def test_one_click_fills_the_field_with_what_the_profile_says(people, waiting):
    client = people.client("engineer")
    address = reverse("configuration", args=[waiting.pk])
    answer = client.post(address, form_of(waiting, use="hardware.chip"))
    assert answer.status_code == 200
    page = answer.content.decode()
    assert '<option value="v6e" selected>' in page
    assert 'name="use"' not in page  # nothing is left to decide
    waiting.refresh_from_db()
    assert waiting.config["hardware"]["chip"] == "v5e"  # filled in, not saved
    assert client.post(address, form_of(waiting, chip="v6e")).status_code == 302
    waiting.refresh_from_db()
    assert (waiting.config["hardware"]["chip"], waiting.config_kept) == ("v6e", [])


def test_keeping_is_explicit_and_stored(people, waiting):
    client = people.client("engineer")
    address = reverse("configuration", args=[waiting.pk])
    assert client.post(address, form_of(waiting, keep="hardware.chip")).status_code == 302
    waiting.refresh_from_db()
    assert [item["field"] for item in waiting.config_kept] == ["hardware.chip"]
    assert runs.newest(waiting).status == RunStatus.DIAGNOSING
    event = waiting.events.filter(kind="config").last()
    assert "recorded on" in event.data["kept"][0]


def test_a_spelt_out_shape_is_named(people):
    shape = {"layers": 80, "d_model": 8192, "d_ff": 28672, "heads": 64, "kv_heads": 8, "head_dim": 128, "vocab": 128256}
    checked = configuration.check({**CONFIG, "model": shape})
    assert configuration.columns(checked.config)["model_name"] == "llama3.1-70b"
    other = configuration.check({**CONFIG, "model": {**shape, "d_ff": 28000}})
    assert configuration.columns(other.config)["model_name"] == "custom"


def grouped(profile: StepProfile, groups: str) -> StepProfile:
    """The profile with an all-reduce over these groups."""
    hlo = (
        f"%all-reduce.1 = bf16[64,64]{{1,0}} all-reduce(bf16[64,64]{{1,0}} %x), replica_groups={groups}, to_apply=%add"
    )
    op = Op("all-reduce.1", "all-reduce", 10, 0.1, 0.1, 0.1, program="jit_step", hlo=hlo, op_name="jit(step)/psum")
    return dataclasses.replace(profile, ops=(*profile.ops, op))


def test_a_run_whose_groups_are_not_of_the_proposed_mesh_is_no_measurement(people, approved):
    """The proposal is data 16; the profile has groups of four with stride four, as data 4 · seq 4 has."""
    profile = grouped(step_of(1.0), "[4,4]<=[4,4]T(1,0)")
    experiment = make_run(people, config_of(approved), profile=profile)
    with pytest.raises(measuring.MeasureError, match="groups of 4 devices, stride 4") as refused:
        measuring.link(approved, experiment, people.engineer)
    assert len(str(refused.value)) <= 300
    # Kept by its user it counts, with what differs as a caveat.
    configuration.save(experiment, people.engineer, experiment.config | {"notes": "sure"}, ["mesh.ici"])
    runs.newest(experiment).refresh_from_db()
    experiment.refresh_from_db()
    assert experiment.config_kept


def test_a_kept_difference_is_a_caveat_of_the_measurement(people, approved):
    device = Device(kind="TPU v5 lite", chip="v5e", core_count=16, host_count=2)
    value = dataclasses.replace(step_of(1.0), device=device)
    text = json.dumps(config_of(approved))
    experiment = uploads.receive(
        people.team, people.engineer, [upload()], text, "on other chips", accept=["hardware.chip"]
    )
    analyse(experiment, value)
    made = measuring.link(approved, experiment, people.engineer)
    assert made.status == Measurement.Status.MEASURED
    run = runs.newest(experiment)
    configuration.hold_against(experiment.pk, against_profile.facts(run.profile))
    experiment.refresh_from_db()
    found = measuring.compare(approved, run)
    assert any("Configuration kept despite the profile" in line and "TPU v5e" in line for line in found.caveats)
