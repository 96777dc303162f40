"""The pages of the dialogue: what they show, who may do what, and that they work without a script."""

from __future__ import annotations

import re

import pytest

from dialogue.models import Held, Message, Thread
from dialogue.services import asking, holding
from dialogue.services.answering import respond
from proposals.agents.conversation import ConstraintStated, FactStated, MeshOffered
from proposals.models import PlanRequest, Proposal
from tests.dialogue.answerers import Scripted, final, said, tool

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "**Proposal 1.** The step takes 1.25 s.\n\n| Mesh | Step |\n| --- | --: |\n| `data 16` | 1.25 s |\n"
OFFER = MeshOffered({"ici": {"replica": 1, "data": 4, "seq": 2, "model": 2}, "dcn": {"data": 1}}, {}, "A third way")


@pytest.fixture
def answer(people, thread):
    """An answer with a step, a table, something held and an offer."""
    made = asking.ask(thread, people.engineer, "Which do you recommend first?")
    scripted = Scripted(
        tool(1, "predict", {"ici": {"data": 16}}, {"step_time_s": 1.25}),
        ConstraintStated({"keep_batch": True}, "Keep the global batch."),
        FactStated("training.remat", "full", "Remat is full."),
        OFFER,
        said(TEXT),
    )
    respond(made.pk, scripted)
    for index in (0, 1):
        holding.answer_card(made, index, people.engineer, True)
    made.refresh_from_db()
    return made


def of(experiment, rest=""):
    return f"/experiments/{experiment.pk}/dialogue/{rest}"


def htmx(client, method, address, data=None):
    return getattr(client, method)(address, data or {}, headers={"HX-Request": "true"})


def test_a_thread_is_shown_whole_without_a_script(people, ready, thread, answer):
    page = people.client("viewer").get(of(ready.experiment, f"{thread.pk}/"))
    text = page.content.decode()
    assert page.status_code == 200
    assert "<strong>Proposal 1.</strong>" in text and '<td class="n" data-column="Step">1.25 s' in text
    assert "Keep the global batch" in text and "remat full" in text
    assert f'href="/experiments/{ready.experiment.pk}/memory/{answer.steps[0]["returned"]}/"' in text
    assert "Add as a proposal" not in text and "Hold something" not in text
    assert "http-equiv" not in text


def test_without_a_script_one_asks_waits_and_reads(people, ready):
    client = people.client("engineer")
    asked = client.post(of(ready.experiment, "ask/"), {"text": "Why not model 2?", "thread": "new"})
    thread = Thread.objects.get()
    assert asked.status_code == 302 and asked["Location"] == of(ready.experiment, f"{thread.pk}/")
    waiting = client.get(asked["Location"]).content.decode()
    assert '<noscript><meta http-equiv="refresh"' in waiting and "Stop the answer" in waiting
    respond(thread.messages.last().pk, Scripted(final("Because it is slower.")))
    assert "Because it is slower." in client.get(asked["Location"]).content.decode()


def test_what_cannot_be_asked_is_said_and_what_was_typed_stays(people, ready, thread):
    client = people.client("engineer")
    empty = client.post(of(ready.experiment, "ask/"), {"text": "  ", "thread": "new"})
    assert empty.status_code == 422 and "Write a question first." in empty.content.decode()
    assert not Message.objects.exists()
    asking.ask(thread, people.engineer, "First?")
    second = htmx(client, "post", of(ready.experiment, "ask/"), {"text": "And <second>?", "thread": thread.pk})
    assert second.status_code == 422
    assert "still being written" in second.content.decode() and "And &lt;second&gt;?" in second.content.decode()
    assert "<html" not in second.content.decode()


HOSTILE = (
    "<script>alert(1)</script>", "[x](javascript:alert(1))", "[x](data:text/html,hi)", "[x](//evil.example)",
    "<a href='x' onclick='alert(1)'>x</a>", "<img src=x onerror=alert(1)>", "`a` ⁅0⁆ ⁅99⁆",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_an_answer_stays_text(people, ready, thread, text):
    made = asking.ask(thread, people.engineer, text)
    respond(made.pk, Scripted(final(text)))
    page = people.client("viewer").get(of(ready.experiment, f"{thread.pk}/")).content.decode()
    shown = re.search(rf'id="said-{made.pk}"[^>]*>(.*?)</div>\s*</div>', page, re.DOTALL)[1]
    assert not re.search(r"<(script|img|a)\b", shown)
    assert "<script>alert" not in page


def test_links_of_an_answer_lead_outside_without_telling(people, ready, thread):
    made = asking.ask(thread, people.engineer, "Where is it written?")
    link = "In [the book](https://example.org/a) and [here](/history/). ![picture](https://example.org/i.png)"
    respond(made.pk, Scripted(final(link)))
    page = people.client("viewer").get(of(ready.experiment, f"{thread.pk}/")).content.decode()
    assert '<a href="https://example.org/a" rel="noopener noreferrer" target="_blank">the book</a>' in page
    assert '<a href="/history/">here</a>' in page
    assert "<img" not in page  # nothing is loaded from elsewhere


def test_the_panel_stands_beside_the_proposals(people, ready, answer):
    client = people.client("engineer")
    proposals = client.get(f"/experiments/{ready.experiment.pk}/proposals/").content.decode()
    assert f'hx-get="{of(ready.experiment, "panel/")}"' in proposals
    assert f'href="{of(ready.experiment)}"' in proposals
    panel = htmx(client, "get", of(ready.experiment, "panel/"))
    assert panel.status_code == 200 and "<html" not in panel.content.decode()
    assert "Proposal 1." in panel.content.decode()
    assert client.get(of(ready.experiment, "panel/")).status_code == 302  # a link that somebody copied


def test_a_second_reader_hears_of_what_is_new_and_of_nothing_else(people, ready, thread, answer):
    from dialogue.presentation import state_of

    client = people.client("viewer")
    known = {"thread": thread.pk, "state": state_of(thread)}
    assert htmx(client, "get", of(ready.experiment, "panel/"), known).status_code == 204
    asking.ask(thread, people.engineer, "And then?")
    news = htmx(client, "get", of(ready.experiment, "panel/"), known)
    assert news.status_code == 200 and "And then?" in news.content.decode()


def test_an_answer_that_has_ended_replaces_what_was_streamed(people, thread, answer):
    part = htmx(people.client("engineer"), "get", f"/answers/{answer.pk}/").content.decode()
    assert f'id="m-{answer.pk}"' in part and "data-stream" not in part
    assert part.count("hx-swap-oob") == 3  # what is held, the form to ask, the news
    assert people.client("engineer").get(f"/answers/{answer.pk}/").status_code == 302


def test_a_mesh_of_an_answer_becomes_a_proposal_once(people, ready, answer):
    client = people.client("engineer")
    added = htmx(client, "post", f"/answers/{answer.pk}/offers/2/add/")
    made = Proposal.objects.get(rank=4)
    assert added.status_code == 204 and added["HX-Redirect"].endswith("#proposal-4")
    assert made.added_by == people.engineer and made.data["mesh"]["ici"] == OFFER.mesh["ici"]
    page = client.get(of(ready.experiment)).content.decode()
    assert "Add as a proposal" not in page and made.get_absolute_url().replace("&", "&amp;") in page
    again = client.post(f"/answers/{answer.pk}/offers/2/add/")
    assert again.status_code == 422 and "already proposal 4" in again.content.decode()
    for index in (0, 9):
        assert client.post(f"/answers/{answer.pk}/offers/{index}/add/").status_code == 422


def test_proposals_are_made_again_within_what_is_held(people, ready, thread, answer):
    client = people.client("engineer")
    assert "Propose again with these" in client.get(of(ready.experiment)).content.decode()
    asked = htmx(client, "post", f"/threads/{thread.pk}/propose/")
    assert asked.status_code == 204 and "/proposals/" in asked["HX-Redirect"]
    assert PlanRequest.objects.get().constraints == {"keep_batch": True}
    again = htmx(client, "post", f"/threads/{thread.pk}/propose/")
    assert again.status_code == 422 and "already" in again.content.decode()


def test_what_is_held_is_taken_back(people, ready, thread, answer):
    held = Held.objects.get(kind="constraint")
    page = htmx(people.client("engineer"), "post", f"/held/{held.pk}/release/").content.decode()
    shown = re.search(r'<div class="dlg__held".*?</ul>', page, re.DOTALL)[0]
    assert "remat full" in shown and "Keep the global batch" not in shown
    assert "Propose again with these" not in page  # a fact alone is no constraint
    held.refresh_from_db()
    assert held.removed_by == people.engineer


def test_threads_are_deleted_by_those_who_may(people, ready, thread, answer):
    engineer, reviewer = people.client("engineer"), people.client("reviewer")
    assert "Delete conversation" not in reviewer.get(of(ready.experiment)).content.decode()
    assert reviewer.post(f"/threads/{thread.pk}/delete/").status_code == 403
    assert "Delete conversation" in people.client("administrator").get(of(ready.experiment)).content.decode()
    gone = htmx(engineer, "post", f"/threads/{thread.pk}/delete/")
    assert gone.status_code == 200 and "Which first?" in gone.content.decode()  # offered again
    assert not Thread.objects.exists()


def test_stop_and_retry(people, ready, thread):
    made = asking.ask(thread, people.engineer, "Sure?")
    client = people.client("engineer")
    assert htmx(client, "post", f"/answers/{made.pk}/stop/").status_code == 200
    made.refresh_from_db()
    assert made.status == "stopped"
    again = htmx(client, "post", f"/answers/{made.pk}/retry/").content.decode()
    newest = Message.objects.order_by("-pk").first()
    assert f'data-stream="/answers/{newest.pk}/stream/"' in again
    assert htmx(client, "post", f"/answers/{made.pk}/retry/").status_code == 422


READS = ("dialogue/", "dialogue/{thread}/", "dialogue/panel/")
WRITES = (
    "/experiments/{experiment}/dialogue/ask/", "/threads/{thread}/propose/",
    "/answers/{answer}/stop/", "/answers/{answer}/cards/0/hold/", "/experiments/{experiment}/dialogue/hold/",
    "/answers/{answer}/retry/", "/answers/{answer}/offers/2/add/", "/held/{held}/release/",
    "/threads/{thread}/delete/",
)  # fmt: skip


def test_who_may_read_and_who_may_write(people, ready, thread, answer):
    ids = {
        "experiment": ready.experiment.pk, "thread": thread.pk, "answer": answer.pk, "held": Held.objects.first().pk,
    }  # fmt: skip
    reads = [f"/experiments/{ids['experiment']}/{path.format(**ids)}" for path in READS]
    reads += [f"/answers/{answer.pk}/"]
    for address in reads:
        assert people.client("viewer").get(address).status_code in (200, 302), address
        assert people.client("outsider").get(address).status_code == 404, address
        assert people.client("anonymous").get(address)["Location"].startswith("/sign-in/"), address
        assert people.client("engineer").post(address).status_code == 405, address
    for path in WRITES:
        address = path.format(**ids)
        assert people.client("viewer").post(address, {"text": "x", "title": "x"}).status_code == 403, address
        assert people.client("outsider").post(address, {"text": "x", "title": "x"}).status_code == 404, address
        assert people.client("engineer").get(address).status_code == 405, address
    assert Message.objects.count() == 2 and Thread.objects.count() == 1


def test_a_thread_of_another_experiment_is_not_found_here(people, ready, thread, answer):
    from tests.backend.factories import make_ready

    other = make_ready(people, "another")
    client = people.client("engineer")
    assert client.get(of(other.experiment, f"{thread.pk}/")).status_code == 404
    for wrong in (thread.pk, "9" * 30, "x"):
        assert client.get(of(other.experiment), {"thread": wrong}).status_code == 404
        assert client.post(of(other.experiment, "ask/"), {"text": "x", "thread": wrong}).status_code == 404
