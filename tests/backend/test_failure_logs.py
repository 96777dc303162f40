"""The log of a failed run at its entrances: shown before it is saved, overridden, kept with the measurement."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from history.models import HistoryRecord
from proposals.constraints import Constraints
from proposals.models import Measurement, PlanRequest
from proposals.services import failing, measuring

LOG = (
    "2024-05-01 10:00:00 step 3 loss 2.31\n"
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of "
    "79.15 GiB of which 1.25 GiB is free.\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
)


def log_file(text=LOG, name="rank3.log"):
    return SimpleUploadedFile(name, text.encode() if isinstance(text, str) else text)


def place(proposal, rest=""):
    return f"/proposals/{proposal.pk}/measurement/failed/{rest}"


def test_the_cause_is_shown_before_anything_is_saved(people, approved):
    client = people.client("engineer")
    answer = client.post(place(approved, "cause/"), {"logs": log_file()}, headers={"HX-Request": "true"})
    page = answer.content.decode()
    assert answer.status_code == 200
    assert "Do not retry" in page and "rank 3" in page and "95" in page
    assert "Tried to allocate 2.00 GiB" in page and "rank3.log" in page
    assert '<option value="out_of_memory" selected>' in page
    assert not Measurement.objects.exists()


def test_without_scripts_the_cause_is_said_on_the_page(people, approved):
    answer = people.client("engineer").post(place(approved, "cause/"), {"comment": LOG}, follow=True)
    assert "An allocation of 2.15" in answer.content.decode()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "No log given"),
        ({"comment": "all well\n" * 2}, "No known error in 2 lines"),
        ({"comment": "one\nlast line of mine"}, "one\nlast line of mine"),
    ],
)
def test_what_is_not_known_is_said(people, approved, body, says):
    answer = people.client("engineer").post(place(approved, "cause/"), body, headers={"HX-Request": "true"})
    assert says in answer.content.decode()


def test_an_empty_file_is_an_empty_log(people, approved):
    body = {"logs": log_file(b"")}
    answer = people.client("engineer").post(place(approved, "cause/"), body, headers={"HX-Request": "true"})
    assert "The log is empty." in answer.content.decode()


def test_too_much_log_is_refused_in_a_sentence(people, approved, settings):
    settings.UPLOAD_LIMIT_BYTES = 10
    answer = people.client("engineer").post(
        place(approved, "cause/"), {"logs": log_file()}, headers={"HX-Request": "true"}
    )
    assert "Logs are limited to" in answer.content.decode()
    with pytest.raises(measuring.MeasureError, match="Logs are limited"):
        failing.analyse(approved, [log_file()])


def test_the_failure_is_taken_from_the_log_and_taught_to_the_history(people, approved):
    client = people.client("engineer")
    client.post(place(approved), {"logs": log_file(), "failure": "", "comment": ""})
    made = Measurement.objects.get(proposal=approved)
    assert (made.failure, made.analysis["cause"], made.analysis["rank"]) == ("out_of_memory", "out_of_memory", 3)
    record = HistoryRecord.objects.get(key=made.record)
    assert record.failure == "out_of_memory" and "CUDA out of memory" in record.effect
    card = client.get(approved.get_absolute_url()).content.decode()
    assert "An allocation of 2.15" in card and "Forbidden: this configuration" in card and "rank3.log" in card


def test_what_failed_becomes_a_constraint_of_the_next_proposals(people, approved):
    client = people.client("engineer")
    said = "ValueError: Number of devices 16 must equal the product of mesh_shape (16, 2)"
    client.post(place(approved), {"comment": said})
    assert "Propose again without it" in client.get(approved.get_absolute_url()).content.decode()
    again = f"/experiments/{approved.experiment_id}/proposals/again/"
    assert client.post(again, {"plan": approved.plan_id, "failed": approved.pk}).status_code == 302
    assert [mesh["ici"] for mesh in PlanRequest.objects.get().constraints["excluded"]] == [approved.data["mesh"]["ici"]]
    assert client.post(again, {"plan": approved.plan_id, "failed": 10**9}).status_code == 404


def test_a_failure_never_loosens_a_memory_margin(people, approved):
    made = measuring.report_failure(
        approved, people.engineer, "", "", failing.analyse(approved, [], "CUDA out of memory. Tried to allocate 2 GiB")
    )
    margin = made.analysis["forbidden"]["constraints"].get("memory_margin", 0.0)
    assert failing.learnt(made, Constraints(memory_margin=0.5)).memory_margin == 0.5
    assert failing.learnt(made, Constraints()).memory_margin == margin
    made.failure = "numerics"  # the reporter knew better
    assert failing.learnt(made, Constraints()) == Constraints()


def test_the_reporter_may_know_better(people, approved):
    client = people.client("engineer")
    client.post(place(approved), {"comment": LOG, "failure": "numerics"})
    made = Measurement.objects.get(proposal=approved)
    assert (made.failure, made.analysis["cause"]) == ("numerics", "out_of_memory")
    assert "The log indicates out of memory; the reporter chose otherwise." in " ".join(
        client.get(approved.get_absolute_url()).content.decode().split()
    )


def test_neither_log_nor_failure_saves_nothing(people, approved):
    answer = people.client("engineer").post(place(approved), {"failure": "", "comment": ""}, follow=True)
    assert "Give the log, or choose the failure" in answer.content.decode()
    assert not Measurement.objects.exists()


def test_markup_in_a_log_stays_text(people, approved):
    bad = "RuntimeError: <script>alert(1)</script> CUDA out of memory.\x00\x1b[31m"
    client = people.client("engineer")
    answer = client.post(place(approved, "cause/"), {"logs": log_file(bad, "<b>.log")}, headers={"HX-Request": "true"})
    client.post(place(approved), {"logs": log_file(bad, "<b>.log")})
    for page in (answer.content.decode(), client.get(approved.get_absolute_url()).content.decode()):
        assert "&lt;script&gt;" in page and "<script>alert" not in page and "<b>.log" not in page


def test_rest_takes_the_log_as_text_or_as_a_file(people, approved):
    api = people.api("engineer")
    answer = api.post("/api/measurements/", {"proposal": approved.pk, "log": LOG}, format="json")
    assert answer.status_code == 201, answer.content
    body = answer.json()
    assert (body["failure"], body["analysis"]["verdict"]) == ("out_of_memory", "forbid")
    assert body["analysis"]["values"]["requested"] == 2 * 2**30
    assert body["analysis"]["forbidden"]["rule"] == "memory"


def test_rest_takes_a_file_and_an_override(people, approved):
    body = {"proposal": approved.pk, "log_file": log_file(), "failure": "other"}
    answer = people.api("engineer").post("/api/measurements/", body, format="multipart")
    assert answer.status_code == 201, answer.content
    assert (answer.json()["failure"], answer.json()["analysis"]["cause"]) == ("other", "out_of_memory")


def test_rest_without_a_log_has_no_analysis(people, approved):
    answer = people.api("engineer").post(
        "/api/measurements/", {"proposal": approved.pk, "failure": "hang"}, format="json"
    )
    assert answer.json()["analysis"] is None
