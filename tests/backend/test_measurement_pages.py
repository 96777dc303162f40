"""Pages of the measured loop: for everyone who knocks, and from upload to result."""

from __future__ import annotations

import json
from dataclasses import replace

from experiments.step_profile import Memory
from proposals.models import Measurement
from proposals.services import measuring
from tests.backend.factories import upload
from tests.backend.measured_runs import analyse, config_of, make_run, step_of


def test_pages_for_everyone_who_knocks(people, approved):
    experiment = make_run(people, config_of(approved), ready=False)
    place = f"/proposals/{approved.pk}/"
    writes = {
        "upload/": {"config_way": "later"},
        "measurement/": {"experiment": experiment.pk},
        "measurement/unlink/": {},
        "measurement/failed/": {"failure": "hang"},
    }
    for path, body in writes.items():
        assert people.client("viewer").post(place + path, body).status_code == 403
        assert people.client("outsider").post(place + path, body).status_code == 404
        assert people.client("anonymous").post(place + path, body).status_code == 302
        if path != "upload/":
            assert people.client("engineer").get(place + path).status_code == 405
    assert people.client("viewer").get(place + "upload/").status_code == 403
    assert people.client("engineer").get(place + "upload/").status_code == 200
    assert people.client("engineer").post(place + "measurement/", {"experiment": "x"}).status_code == 404
    for path in ("/measurements/", "/history/waiting/"):
        assert {people.client(name).get(path).status_code for name in ("viewer", "engineer", "outsider")} == {200}
        assert people.client("engineer").post(path).status_code == 405
        assert people.client("anonymous").get(path).status_code == 302
    waits = [people.client(name).get("/history/waiting/").content.decode() for name in ("viewer", "outsider")]
    assert approved.title in waits[0] and approved.title not in waits[1]
    assert not Measurement.objects.exists()


def test_the_pages_take_a_run_from_upload_to_result(people, approved):
    client = people.client("engineer")
    form = client.get(f"/proposals/{approved.pk}/upload/").content.decode()
    assert "This run measures" in form and "data: 16" in form
    body = {"config_way": "file", "config_text": json.dumps(config_of(approved)), "files": [upload("after.xplane.pb")]}
    answer = client.post(f"/proposals/{approved.pk}/upload/", body)
    experiment = Measurement.objects.get(proposal=approved).experiment
    assert answer["Location"] == f"/experiments/{experiment.pk}/"
    assert "the measured effect is compared with the prediction" in client.get(answer["Location"]).content.decode()
    analyse(experiment, step_of(1.0))
    card = client.get(approved.get_absolute_url()).content.decode()
    assert "Predicted against measured" in card and "as predicted" in card
    assert "1.25" in client.get("/measurements/").content.decode()
    assert "Measured" in client.get(f"/experiments/{experiment.pk}/memory/").content.decode()


def test_measured_memory_stands_beside_the_predicted(people, approved):
    made = make_run(people, config_of(approved), profile=replace(step_of(1.0), memory=Memory(peak_bytes=12.48e9)))
    measuring.link(approved, made, people.engineer)
    predicted = {"params": 4e9, "optimizer": 3e9, "activations": 3.4e9, "total": 10.4e9, "capacity": 16e9}
    approved.data["predicted"]["hbm_per_chip_bytes"] = predicted
    approved.save(update_fields=["data"])
    page = people.client("engineer").get(approved.get_absolute_url()).content.decode()
    result = page.split("Predicted against measured", 1)[1]
    assert "10.4\u00a0GB" in result and "12.5\u00a0GB" in result and "20\u00a0% more than predicted" in result


def test_an_upload_without_files_keeps_what_was_typed(people, approved):
    body = {"config_way": "file", "config_text": "name: mine"}
    answer = people.client("engineer").post(f"/proposals/{approved.pk}/upload/", body)
    assert answer.status_code == 422 and "name: mine" in answer.content.decode()
    assert not Measurement.objects.exists()
