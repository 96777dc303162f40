"""Reports from a cluster: with a token of one launch, in pieces, as often as it takes."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest
from django.utils import timezone
from knox.models import AuthToken

from accounts.models import Membership
from launches.models import ArmRun, ReportFile
from tests.launches.reports import client, place, report, report_all, send_file, send_piece, work

pytestmark = pytest.mark.slow

CONTENT = b"step 1\nstep 2\n" * 100


def test_a_token_of_a_launch_reports_to_it_and_does_nothing_else(people, launch, token):
    api = client(token)
    assert report(api, place(launch), step_times_s=[1.0] * 12).status_code == 200
    for address in ("/api/me/", "/api/experiments/", f"/api/launches/{launch.pk}/", "/api/tokens/"):
        assert api.get(address).status_code == 401, address
    other = place(launch).replace(f"/{launch.pk}/", f"/{launch.pk + 1}/")
    assert report(api, other, step_times_s=[1.0]).status_code in (403, 404)
    assert report(people.api("viewer"), place(launch)).status_code == 403
    assert report(people.api("outsider"), place(launch)).status_code == 404
    assert report(people.api("anonymous"), place(launch)).status_code == 401
    assert report(people.api("engineer"), place(launch, "control"), step_times_s=[1.0] * 12).status_code == 200


def test_the_token_of_one_launch_is_refused_by_another(people, launch, token, ready):
    from launches.services import launching
    from proposals.services import reviews

    second = ready.plan.proposals.get(rank=2)
    reviews.decide(second, people.reviewer, "approved")
    other = launching.launch(second, people.engineer, tool="maxtext", repeats=1, steps=5, server="http://x")
    answer = report(client(token), place(other), step_times_s=[1.0] * 12)
    assert answer.status_code == 403 and "another launch" in answer.json()["detail"]


def test_it_is_listed_revoked_and_expires_as_other_tokens(people, launch, token):
    engineer = people.client("engineer")
    page = engineer.get("/settings/").content.decode()
    assert f"reports to launch {launch.pk} only" in page
    key = AuthToken.objects.get(scoped__scope=launch.scope).token_key
    AuthToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))
    assert report(client(token), place(launch)).status_code == 401
    from launches.services import launching

    fresh = launching.new_token(launch, people.engineer)
    key = AuthToken.objects.get(scoped__scope=launch.scope).token_key
    engineer.post(f"/settings/tokens/{key}/revoke/")
    assert report(client(fresh), place(launch)).status_code == 401


def test_it_ends_with_the_role_of_who_made_it(people, launch, token):
    Membership.objects.filter(user=people.engineer).update(role="viewer")
    assert report(client(token), place(launch)).status_code == 403
    Membership.objects.filter(user=people.engineer).delete()
    assert report(client(token), place(launch)).status_code == 404


def test_it_ends_with_the_launch(people, launch, token):
    report_all(client(token), launch, 1.0, 1.25)
    assert launch.closed_at and report(client(token), place(launch)).status_code == 401


def test_a_file_goes_on_where_it_broke_off(launch, token):
    api, where = client(token), place(launch)
    digest = hashlib.sha256(CONTENT).hexdigest()
    about = {"kind": "log", "name": "run.log", "size_bytes": len(CONTENT), "sha256": digest}
    assert api.post(f"{where}/files/", about, format="json").json()["received_bytes"] == 0
    assert send_piece(api, where, digest, 0, CONTENT[:500]).json()["received_bytes"] == 500
    lost = send_piece(api, where, digest, 0, CONTENT[:500])  # its answer was lost, so it came again
    assert lost.status_code == 409 and lost.json()["received_bytes"] == 500
    assert send_piece(api, where, digest, 700, b"x").status_code == 409
    again = api.post(f"{where}/files/", about, format="json").json()
    assert again["received_bytes"] == 500 and not again["complete"]
    early = report(api, where, step_times_s=[1.0] * 12, files=[digest])
    assert early.status_code == 409 and "not complete" in early.json()["detail"]
    assert send_piece(api, where, digest, 500, CONTENT[500:]).json()["complete"]
    assert api.get(f"{where}/files/{digest}/").json()["complete"]
    assert report(api, where, step_times_s=[1.0] * 12, files=[digest]).status_code == 200
    assert ReportFile.objects.count() == 1


def test_bytes_that_are_not_what_was_announced_begin_anew(launch, token):
    api, where = client(token), place(launch)
    digest = hashlib.sha256(CONTENT).hexdigest()
    about = {"kind": "log", "name": "run.log", "size_bytes": len(CONTENT), "sha256": digest}
    api.post(f"{where}/files/", about, format="json")
    wrong = send_piece(api, where, digest, 0, b"y" * len(CONTENT))
    assert wrong.status_code == 409 and wrong.json()["received_bytes"] == 0
    assert send_piece(api, where, digest, 0, CONTENT).json()["complete"]


def test_the_same_report_again_changes_nothing_and_a_later_one_of_an_open_run_counts(launch, token):
    api, where = client(token), place(launch)
    first = {"ranks": 2, "rank": 0, "step_times_s": [1.0] * 12}
    assert report(api, where, **first).json() == {"status": "submitted", "missing_ranks": 1}
    assert report(api, where, **first).json()["missing_ranks"] == 1
    assert report(api, where, **{**first, "step_times_s": [2.0] * 12}).status_code == 200
    assert report(api, where, ranks=2, rank=1, peak_memory_bytes=5).json()["missing_ranks"] == 0
    run = ArmRun.objects.get(launch=launch, arm="proposal", repeat=1)
    assert run.status == "collecting" and run.median_step_s == 2.0 and run.peak_memory_bytes == 5
    late = report(api, where, **first)
    assert late.status_code == 409 and "has ended" in late.json()["detail"]
    assert report(api, where, ranks=2, rank=1, peak_memory_bytes=5).status_code == 200  # its answer was lost


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"step_times_s": [1.0, -2.0]}, "step_times_s"),
        ({"step_times_s": ["fast"]}, "step_times_s"),
        ({"step_times_s": [True]}, "step_times_s"),
        ({"step_times_s": 3}, "step_times_s"),
        ({"rank": 2, "ranks": 2}, "rank: must be a whole number from 0 to 1"),
        ({"peak_memory_bytes": 0}, "peak_memory_bytes"),
        ({"warm_up": 3}, "warm_up"),
        ({"failure": 3}, "failure"),
        ({"files": ["../../etc/passwd"]}, "files"),
        ({"speed": 3}, "speed"),
    ],
)
def test_a_report_that_is_none_gets_one_sentence(launch, token, body, words):
    answer = report(client(token), place(launch), **body)
    assert answer.status_code == 400 and words in answer.json()["detail"] and len(answer.json()["detail"]) <= 300


def test_files_are_limited_and_named_safely(launch, token, settings):
    api, where = client(token), place(launch)
    settings.UPLOAD_LIMIT_BYTES = 1000
    about = {"kind": "profile", "name": "../../x\n.xplane.pb", "size_bytes": 600, "sha256": "a" * 64}
    assert "/" not in api.post(f"{where}/files/", about, format="json").json()["name"]
    more = api.post(f"{where}/files/", {**about, "sha256": "b" * 64}, format="json")
    assert more.status_code == 400 and "limited to" in more.json()["detail"]
    for wrong in ({"kind": "shell"}, {"sha256": "A" * 64}, {"size_bytes": -1}, {"sha256": "a/../b"}):
        assert api.post(f"{where}/files/", {**about, **wrong}, format="json").status_code == 400
    assert send_piece(api, where, "c" * 64, 0, b"x").status_code == 404
    assert api.generic("PATCH", f"{where}/files/{'a' * 64}/", b"x", "application/octet-stream").status_code == 400
    too_long = send_piece(api, where, "a" * 64, 0, b"x" * 8_000_001)
    assert too_long.status_code == 400 and "at a time" in too_long.json()["detail"]
    assert api.get(f"{place(launch, 'third', 1)}/files/{'a' * 64}/").status_code == 404
    assert api.get(f"{place(launch, 'proposal', 3)}/files/{'a' * 64}/").status_code == 404


def test_the_log_of_a_failed_run_is_read_for_its_configuration(launch, token):
    api, where = client(token), place(launch)
    log = b"I0101 compiling\njaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: "
    log += b"Ran out of memory in memory space hbm. Used 40.00G of 31.25G hbm.\n"
    digest = send_file(api, where, log)
    assert report(api, where, failure="Exit status 1.", files=[digest]).status_code == 200
    work(launch)
    run = ArmRun.objects.get(launch=launch, arm="proposal", repeat=1)
    assert run.status == "failed" and run.analysis["cause"] == "out_of_memory" and run.told.words == "Out of memory"


def test_a_run_without_step_times_has_failed(launch, token):
    assert report(client(token), place(launch)).status_code == 200
    work(launch)
    run = ArmRun.objects.get(launch=launch, arm="proposal", repeat=1)
    assert run.status == "failed" and "no step times" in run.reason
