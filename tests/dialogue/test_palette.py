"""The palette, questions on objects and computed answers, on pages and over REST."""

from __future__ import annotations

import html
import re

import pytest

from dialogue.models import Message, Thread
from tests.dialogue.answerers import model_set_up

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_model")]


def of(experiment, rest=""):
    return f"/experiments/{experiment.pk}/compute/{rest}"


def text_of(page) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page.content.decode())))


def test_typed_settings_lead_to_their_price_with_the_number_beside_it(people, ready):
    page = people.client("viewer").get(of(ready.experiment), {"q": "data=8 model=2"})
    assert page.status_code == 200
    shown = page.content.decode()
    assert f'href="{of(ready.experiment, "price/")}?mesh=' in shown and "Price this configuration" in shown
    assert re.search(r'<i class="p">[0-9.,]+', shown)
    answer = people.client("viewer").get(html.unescape(re.search(r'href="([^"]*compute/price/[^"]*)"', shown)[1]))
    first = re.search(r'<i class="p">([^<]*)</i>', shown)[1]
    assert answer.status_code == 200 and f">{first}</" in answer.content.decode()
    assert not Message.objects.exists()


def test_arguments_of_a_result_are_edited_in_its_row(people, ready):
    client, row = people.client("viewer"), of(ready.experiment, "price/row/")
    shown = client.get(of(ready.experiment), {"q": "data=8 model=2"}).content.decode()
    assert re.search(r'name="mesh.model"\s+value="2"', shown)
    asked = {"mesh.data": "16", "mesh.model": "1", "changes.remat": "full", "at": "0-1"}
    part = client.get(row, asked, headers={"HX-Request": "true"}).content.decode()
    address = html.unescape(re.search(r'href="([^"]*)"', part)[1])
    assert "mesh=data=16,model=1" in address and "changes=remat=full" in address and 'id="arg-0-1-1"' in part
    price = re.search(r'<i class="p">([^<]*)</i>', part)[1]
    assert f">{price}</" in client.get(address).content.decode()
    assert client.get(row, asked)["Location"] == address
    wrong = client.get(row, {**asked, "mesh.model": "x"}, headers={"HX-Request": "true"}).content.decode()
    assert "href" not in wrong.split("<form")[0] and 'value="x"' in wrong and "mesh" in wrong
    run = people.client("engineer").post(of(ready.experiment, "price/"), {**asked, "thread": "new"})
    kept = Message.objects.get(provider="computed").content["arguments"]
    assert run.status_code == 302 and kept == {"mesh": {"data": 16, "model": 1}, "changes": {"remat": "full"}}


def test_the_card_of_a_number_offers_its_questions(people, ready):
    client, address = people.client("viewer"), f"/experiments/{ready.experiment.pk}/number/"
    for target, key in (
        ("proposal:1", "confidence"),
        ("finding:1", "from_what"),
        ("kpi:mfu", "figure"),
        ("op:x", "op"),
        ("configuration:mesh=data=8,model=2&changes=remat=full", "fits"),
    ):
        part = client.get(address, {"target": target}, headers={"HX-Request": "true"}).content.decode()
        assert f"/compute/{key}/?" in part, target
    shown = client.get(address, {"target": "proposal:1"}, headers={"HX-Request": "true"}).content.decode()
    assert f'href="/experiments/{ready.experiment.pk}/proposals/#proposal-1"' in shown
    assert client.get(address, {"target": "record:nothing"}).status_code == 302
    assert "href" not in client.get(address, {"target": "x"}, headers={"HX-Request": "true"}).content.decode()


def test_words_find_computations_findings_pages_and_say_that_free_text_needs_a_model(people, ready):
    client = people.client("engineer")
    found = text_of(client.get(of(ready.experiment), {"q": "why is mfu low"}))
    assert "Why is MFU low?" in found and "Free text needs a language model" in found
    assert "Timeline" in text_of(client.get(of(ready.experiment), {"q": "timeline"}))
    nothing = text_of(client.get(of(ready.experiment), {"q": "purple elephants"}))
    assert "No passage or record is close to this." in nothing and "Free text needs a language model" in nothing
    part = client.get(of(ready.experiment), {"q": "remat"}, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part and "compute/vary/" in part


def test_with_a_model_the_first_row_asks_it(people, ready):
    with model_set_up():
        shown = people.client("engineer").get(of(ready.experiment), {"q": "why <b>?"}).content.decode()
        read = people.client("viewer").get(of(ready.experiment), {"q": "why"}).content.decode()
    assert re.search(r"<button[^>]*data-row|<a[^>]*data-row", shown)[0].startswith("<button")
    assert "Ask the model: why &lt;b&gt;?" in shown and "Free text needs" not in shown
    assert "Ask the model" not in read


def test_the_palette_of_every_page_is_the_same(people, ready):
    client = people.client("engineer")
    inside = text_of(client.get("/jump/", {"q": "data=8 model=2", "experiment": ready.experiment.pk}))
    assert "Price this configuration" in inside
    outside = text_of(client.get("/jump/", {"q": ready.experiment.name}))
    assert ready.experiment.name in outside and "Price this configuration" not in outside
    assert "light and dark" in text_of(client.get("/jump/", {"q": "dark"}))
    other = people.client("outsider").get("/jump/", {"q": "data=8", "experiment": ready.experiment.pk})
    assert "Price this configuration" not in text_of(other)


def test_a_posted_question_is_kept_with_its_answer(people, ready):
    client = people.client("engineer")
    asked = client.post(of(ready.experiment, "price/?mesh=data=8,model=2"), {"thread": "new"})
    question, answer = Thread.objects.get().messages.order_by("pk")
    assert asked.status_code == 302 and asked["Location"].endswith(f"#m-{answer.pk}")
    assert (answer.status, answer.provider, answer.question) == ("done", "computed", question)
    assert answer.content["computation"] == "price" and answer.content["arguments"]["mesh"] == {"data": 8, "model": 2}
    page = client.get(asked["Location"]).content.decode()
    assert 'class="nb p"' in page and 'data-of="' in page and 'data-origin="predicted"' in page
    assert f'href="{of(ready.experiment, "fits/")}' in page  # a further question
    again = client.post(
        of(ready.experiment, "which_first/"), {"thread": answer.thread_id}, headers={"HX-Request": "true"}
    )
    assert again.status_code == 204 and "#m-" in again["HX-Redirect"] and Thread.objects.count() == 1


def test_a_number_alone_changes_what_was_asked_before(people, ready):
    client = people.client("engineer")
    client.post(of(ready.experiment, "price/?mesh=data=8,model=2"), {"thread": "new"})
    rows = client.get("/jump/", {"q": "and with 4 there?", "experiment": ready.experiment.pk}).content.decode()
    assert re.search(r'mesh\.model"[^>]*value="4"', rows), text_of(client.get("/jump/", {"q": "4"}))


def test_what_a_thread_holds_counts_in_its_answers(people, ready, thread):
    client = people.client("engineer")
    typed = client.post(f"/experiments/{ready.experiment.pk}/dialogue/hold/", {"text": "model=1", "thread": thread.pk})
    assert typed.status_code == 302
    client.post(of(ready.experiment, "price/?mesh=data=8,model=2"), {"thread": thread.pk})
    assert "constraint" in Message.objects.get(provider="computed").text


def test_what_cannot_be_answered_is_said_and_not_kept(people, ready):
    client = people.client("engineer")
    page = client.get(of(ready.experiment, "price/"), {"mesh": "warp=2"})
    assert page.status_code == 200 and "warp" in text_of(page)
    assert client.post(of(ready.experiment, "why_finding/?finding=99"), {"thread": "new"}).status_code == 422
    assert not Message.objects.exists()


def test_free_text_is_refused_without_a_model(people, ready):
    asked = people.client("engineer").post(
        f"/experiments/{ready.experiment.pk}/dialogue/ask/", {"text": "Why?", "thread": "new"}
    )
    assert asked.status_code == 422 and "needs a language model" in text_of(asked)


def test_pages_carry_the_questions_of_their_objects(people, ready):
    client, pk = people.client("engineer"), ready.experiment.pk
    diagnosis = client.get(f"/experiments/{pk}/").content.decode()
    for key in ("mfu", "parallelism", "sharding_or_input", "since_last", "other_chip", "fits"):
        assert f'href="{of(ready.experiment, key)}/"' in diagnosis
    proposals = client.get(f"/experiments/{pk}/proposals/").content.decode()
    for key in ("which_first", "how_confident", "others_promising", "still_confident"):
        assert f'href="{of(ready.experiment, key)}/"' in proposals
    assert f'href="{of(ready.experiment, "confidence")}/?proposal=2"' in proposals
    assert f'href="{of(ready.experiment, "op")}/?op=' in client.get(f"/experiments/{pk}/ops/").content.decode()
    number = client.get(f"/experiments/{pk}/evidence/kpi-step_time_s/").content.decode()
    assert f'href="{of(ready.experiment, "figure")}/?number=step_time_s"' in number


def test_a_viewer_reads_answers_and_keeps_none(people, ready):
    shown = people.client("viewer").get(f"/experiments/{ready.experiment.pk}/").content.decode()
    assert "hx-post" not in re.search(r'<section class="askrun.*?</section>', shown, re.DOTALL)[0]
    for address in (of(ready.experiment), of(ready.experiment, "verdict/")):
        assert people.client("viewer").get(address).status_code == 200
        assert people.client("outsider").get(address).status_code == 404
        assert people.client("anonymous").get(address)["Location"].startswith("/sign-in/")
    assert people.client("viewer").post(of(ready.experiment, "verdict/"), {}).status_code == 403
    assert people.client("outsider").post(of(ready.experiment, "verdict/"), {}).status_code == 404
    assert people.client("engineer").get(of(ready.experiment, "nothing/")).status_code == 404
    assert people.client("engineer").post(of(ready.experiment), {}).status_code == 405


def test_messages_of_earlier_versions_stay_readable(people, ready, thread):
    question = Message.objects.create(thread=thread, role="user", author=people.engineer, text="Which first?")
    Message.objects.create(
        thread=thread, role="assistant", question=question, provider="built-in", text="**Proposal 1** at 1.25 s.",
        supports=[{"sentence": "Proposal 1 at 1.25 s.", "start": 0, "end": 25, "results": ["r1"]}],
        effects=[
            {"kind": "question", "text": "How long?", "options": []},
            {"kind": "constraint", "constraint": {"keep_batch": True}, "sentence": "Keep.", "dropped": []},
        ],
    )  # fmt: skip
    page = people.client("viewer").get(f"/experiments/{ready.experiment.pk}/dialogue/{thread.pk}/").content.decode()
    assert "<strong>Proposal 1</strong> at 1.25 s." in page and "Without a language model" in page
    assert "Hold this?" not in page
