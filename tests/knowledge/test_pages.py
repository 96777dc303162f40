"""The knowledge base's pages: what owner, teammate, outsider and a wrong method get, and what they show."""

from __future__ import annotations

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from accounts.models import Membership, Role
from knowledge.models import Document, Kind, Passage, State
from knowledge.services import documents
from knowledge.services.embedding import embed_some
from knowledge.services.shipped import load_shipped
from knowledge.tasks import read_document
from tests.knowledge.conftest import TEXTS, add_passages

RUNBOOK = (
    "# Runbook\n\n## Mesh rules\n\nNever more than `8` on the **model** axis. <script>alert(1)</script>\n\n"
    "| axis | most |\n|---|---:|\n| model | 8 |\n\n## Failures\n\nMicro-batch 8 runs out of memory on v5e.\n"
)
HTMX = {"HX-Request": "true"}


def text(answer) -> str:
    return answer.content.decode()


def upload(content: bytes | str = RUNBOOK, name: str = "runbook.md") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content.encode() if isinstance(content, str) else content)


@pytest.fixture
def own(people) -> Document:
    """A document that the engineer added to the team."""
    document = documents.receive(people.team, people.engineer, upload()).document
    read_document(document.pk)
    document.refresh_from_db()
    return document


# Who sees what


@pytest.mark.slow
def test_shipped_passages_are_everybodys_and_those_of_a_team_its_own(people, passages, own):
    key = own.passages.first().key
    for name in ("viewer", "engineer", "administrator", "outsider"):
        client = people.client(name)
        assert "Rematerialization" in text(client.get("/knowledge/"))
        assert client.get("/knowledge/passages/remat/").status_code == 200
        mine = name != "outsider"
        assert ("Mesh rules" in text(client.get("/knowledge/"))) is mine
        assert ("Mesh rules" in text(client.get("/knowledge/?q=model+axis+rules"))) is mine
        assert client.get(f"/knowledge/passages/{key}/").status_code == (200 if mine else 404)
        assert client.get(f"/knowledge/documents/{own.pk}/").status_code == (200 if mine else 404)
        assert client.get(f"/knowledge/documents/{own.pk}/file/").status_code == (200 if mine else 404)
        assert ("runbook" in text(client.get("/knowledge/documents/"))) is mine
    other = text(people.client("outsider").get(f"/knowledge/?document={own.pk}"))
    assert "No passage matches" in other and "runbook" not in other


def test_a_citation_opens_whichever_team_is_chosen(people, passages, own):
    """An experiment of one team opens while another is chosen, and so does what it cites."""
    Membership.objects.create(user=people.outsider, team=people.team, role=Role.VIEWER)
    client, key = people.client("outsider"), own.passages.first().key
    assert "runbook" not in text(client.get("/knowledge/documents/"))  # the other team is chosen
    assert client.get(f"/knowledge/passages/{key}/").status_code == 200
    assert client.get(f"/knowledge/passages/{key}/", headers={"HX-Request": "true"}).status_code == 200
    assert people.api("outsider").get(f"/api/knowledge/passages/{key}/").status_code == 200


# Search and browse


def test_a_result_says_why_it_was_found(people, passages):
    page = people.client("viewer").get("/knowledge/?q=activations+saves+memory")
    first = page.context["page"].rows[0]
    assert first.passage.key == "remat"
    shown = re.sub(r"<[^>]+>|\s+", " ", text(page).split("Why it was found", 2)[1])
    assert re.search(r"Semantic +rank 1 +0\.\d\d", shown) and re.search(r"Keywords +rank 1 +\d+\.\d\d", shown)
    assert re.search(r"Fused +1\.0000", shown)  # first in both lists
    assert "matched: activations, " in re.sub(" +", " ", shown)
    assert "<mark>Activations</mark>" in text(page)


def test_filters_narrow_count_and_can_be_taken_away(people, passages, own):
    client = people.client("viewer")
    page = client.get("/knowledge/?hardware=gpu")
    found = {row.passage.key for row in page.context["page"].rows}
    assert "nvlink" in found and "torus" not in found
    counts = {facet.name: {v.value: v.count for v in facet.values} for facet in page.context["facets"]}
    assert counts["hardware"] == {"tpu": 7, "gpu": 7}  # of eight one holds for the other kind only
    assert counts["bottleneck"] == {"communication": 2, "memory": 1, "capacity": 1, "input": 1}
    assert counts["topic"] == {str(passages.pk): 5} and counts["document"] == {str(own.pk): 2}
    both = client.get("/knowledge/?hardware=v5p&bottleneck=communication&q=axis").context["page"]
    assert {row.passage.key for row in both.rows} == {"data", "tensor"} and both.total == 2
    assert "Remove the filter v5p" in text(client.get("/knowledge/?hardware=v5p"))
    assert {row.passage.key for row in client.get(f"/knowledge/?document={own.pk}").context["page"].rows} == {
        f"doc-{own.pk}-1", f"doc-{own.pk}-2",
    }  # fmt: skip


def test_shipped_passages_are_browsed_by_source_and_tag(people):
    load_shipped()
    client = people.client("viewer")
    book = "How to Scale Your Model (Austin et al., 2025)"
    page = client.get("/knowledge/", {"source": book}).context["page"]
    assert page.total == Passage.objects.filter(source=book).count() > 20
    assert {row.passage.source for row in page.rows} == {book}
    tagged = client.get("/knowledge/?tag=memory_capacity").context["page"]
    assert tagged.total and all("memory_capacity" in row.passage.tags for row in tagged.rows)


def test_pages_follow_one_another_without_loss_or_repeat(people, passages):
    many = {f"n{n:02}": (f"Axis {n}", f"Gradients are all-reduced over axis {n}.") for n in range(45)}
    add_passages(passages, many)
    everything = {*many, *TEXTS}
    for query in ("", "q=axis"):
        seen, address = [], f"/knowledge/?{query}"
        while address:
            page = people.client("viewer").get(address).context["page"]
            seen += [row.passage.key for row in page.rows]
            address = f"/knowledge/?{query}&page={page.listed.next_page_number()}" if page.listed.has_next() else ""
        assert len(seen) == len(everything) and set(seen) == everything, query


def test_htmx_gets_the_part_and_a_browser_without_scripts_the_page(people, passages, own):
    client = people.client("viewer")
    for path, part in (
        ("/knowledge/", "Rematerialization"), ("/knowledge/documents/", "runbook"),
        (f"/knowledge/documents/{own.pk}/", "Mesh rules"), ("/knowledge/passages/remat/", "costs FLOPs"),
    ):  # fmt: skip
        whole, piece = client.get(path), client.get(path, headers=HTMX)
        assert "<html" in text(whole) and "<html" not in text(piece)
        assert part in text(whole) and part in text(piece)
        assert "HX-Request" in whole["Vary"]


def test_a_passage_shows_its_neighbours_and_its_vector(people, passages):
    page = people.client("viewer").get("/knowledge/passages/remat/")
    assert "all-MiniLM-L6-v2, 384 dimensions" in text(page)
    assert next(found.passage.key for found in page.context["alike"]) in ("tensor", "data")
    assert 'href="/knowledge/?bottleneck=capacity"' in text(page)


def test_text_of_a_document_is_shown_as_it_was_meant_and_never_runs(people, own):
    page = text(people.client("viewer").get(f"/knowledge/passages/doc-{own.pk}-1/"))
    assert "<code>8</code>" in page and "<strong>model</strong>" in page and "<table>" in page
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page
    assert "style=" not in page.split("Statement")[1].split("</section>")[0]  # the content policy refuses it
    assert "runbook, § Runbook &gt; Mesh rules" in page


# States


def test_passages_without_vectors_are_counted_and_found_by_words(people, passages, own):
    client = people.client("viewer")
    page = client.get("/knowledge/?q=micro-batch+memory")
    assert "2 of 8 passages have no embedding yet" in text(page)
    assert f"doc-{own.pk}-2" in {row.passage.key for row in page.context["page"].rows}
    assert "keyword search only" in text(client.get(f"/knowledge/passages/doc-{own.pk}-2/"))
    assert "0 of 2 passages have embeddings" in text(client.get(f"/knowledge/documents/{own.pk}/"))
    embed_some(Passage)
    assert "no embedding yet" not in text(client.get("/knowledge/"))


# Documents


def test_an_engineer_adds_a_document_and_follows_it(people):
    client = people.client("engineer")
    answer = client.post("/knowledge/documents/", {"file": upload(), "title": "House rules"})
    document = Document.objects.get()
    assert answer.status_code == 302 and answer["Location"] == f"/knowledge/documents/{document.pk}/"
    assert (document.team, document.uploaded_by, document.title) == (people.team, people.engineer, "House rules")
    waiting = text(client.get(answer["Location"]))
    assert "is being read" in waiting and 'hx-trigger="every 1s"' in waiting and "reload" in waiting
    assert 'hx-trigger="every 2s"' in text(client.get("/knowledge/documents/"))
    read_document(document.pk)
    done = text(people.client("viewer").get(answer["Location"]))
    assert "2 passages" in done and "§ Runbook &gt; Failures" in done
    assert "every 2s" not in text(client.get("/knowledge/documents/"))
    again = client.post("/knowledge/documents/", {"file": upload(name="copy.md")}, follow=True)
    assert "already exists as “House rules”" in text(again) and Document.objects.count() == 1


def test_the_original_is_a_download_under_its_name(people, own):
    answer = people.client("viewer").get(f"/knowledge/documents/{own.pk}/file/")
    assert b"".join(answer.streaming_content).decode() == RUNBOOK
    assert 'attachment; filename="runbook.md"' in answer["Content-Disposition"]
    assert answer["Content-Type"].startswith("text/markdown")


def test_a_replaced_version_says_so_and_its_citations_still_open(people, own):
    newer = documents.receive(people.team, people.engineer, upload(RUNBOOK + "More.\n")).document
    read_document(newer.pk)
    client = people.client("viewer")
    assert "A newer version has replaced this document" in text(client.get(f"/knowledge/documents/{own.pk}/"))
    assert "replaced this passage" in text(client.get(f"/knowledge/passages/doc-{own.pk}-1/", headers=HTMX))
    found = client.get("/knowledge/?q=micro-batch").context["page"].rows
    assert {row.passage.document_id for row in found} == {newer.pk}
    assert "of this title becomes current again" in text(
        people.client("engineer").get(f"/knowledge/documents/{newer.pk}/delete/")
    )


def test_whoever_added_a_document_or_an_administrator_deletes_it(people, own):
    path = f"/knowledge/documents/{own.pk}/delete/"
    for name, status in (("viewer", 403), ("reviewer", 403), ("outsider", 404)):
        assert people.client(name).get(path).status_code == status
        assert people.client(name).post(path).status_code == status
    assert path not in text(people.client("viewer").get(f"/knowledge/documents/{own.pk}/"))
    assert path in text(people.client("engineer").get(f"/knowledge/documents/{own.pk}/"))
    assert "cannot be undone" in text(people.client("administrator").get(path))
    assert Document.objects.filter(pk=own.pk).exists()  # asking deletes nothing
    assert people.client("engineer").post(path)["Location"] == "/knowledge/documents/"
    assert not Document.objects.filter(pk=own.pk).exists() and not Passage.objects.filter(document=own.pk).exists()


def test_shipped_documents_stay(people, passages):
    path = f"/knowledge/documents/{passages.pk}/delete/"
    assert people.client("administrator").post(path).status_code == 403
    page = text(people.client("administrator").get(f"/knowledge/documents/{passages.pk}/"))
    assert "Shipped with ASAP Web" in page and "Delete" not in page


def test_many_documents_come_in_pages(people):
    Document.objects.bulk_create(
        Document(team=people.team, kind=Kind.TEXT, title=f"Note {n}", name="n.txt", sha256=str(n), state=State.READY)
        for n in range(30)
    )
    client = people.client("viewer")
    assert "1–25 of 30" in text(client.get("/knowledge/documents/"))
    assert len(client.get("/knowledge/documents/?page=2").context["listed"].object_list) == 5
    assert client.get("/knowledge/documents/?page=x").status_code == 200


def test_the_navigation_leads_there(people, passages):
    assert 'href="/knowledge/" aria-current="page"' in text(people.client("viewer").get("/knowledge/"))


# REST


def test_the_api_searches_with_why(people, passages, own):
    found = people.api("viewer").get("/api/knowledge/search/?q=activations saves memory&k=3").json()
    assert found["embedder"] == "all-MiniLM-L6-v2" and found["notes"] == [] and found["mode"] == "fused"
    best = found["results"][0]
    assert best["passage"]["key"] == "remat" and best["passage"]["document_title"] == "Sharding"
    assert best["why"]["vector"]["rank"] == best["why"]["text"]["rank"] == 1
    assert best["why"]["score"] == pytest.approx(1.0) and "memory" in best["why"]["matched"]
    keys = [
        r["passage"]["key"] for r in people.api("viewer").get("/api/knowledge/search/?q=micro-batch").json()["results"]
    ]
    assert f"doc-{own.pk}-2" in keys
    for name in ("outsider", "teamless"):
        answer = people.api(name).get("/api/knowledge/search/?q=micro-batch&k=50").json()
        assert not any(r["passage"]["key"].startswith("doc-") for r in answer["results"])
        assert people.api(name).get(f"/api/knowledge/search/?q=x&document={own.pk}").json()["results"] == []
        assert people.api(name).get(f"/api/knowledge/search/?q=x&team={people.team.pk}").status_code == 404


@pytest.mark.parametrize(
    ("query", "words"),
    [("", "q is missing"), ("q=x&mode=telepathy", "telepathy"), ("q=x&hardware=abacus", "abacus"),
     ("q=x&bottleneck=coffee", "coffee"), ("q=x&k=many", "k must be a whole number")],
)  # fmt: skip
def test_the_api_says_what_is_wrong(people, passages, query, words):
    answer = people.api("viewer").get(f"/api/knowledge/search/?{query}")
    assert answer.status_code == 400 and words in answer.json()["detail"]


def test_the_api_reads_passages(people, passages, own):
    api = people.api("viewer")
    listed = api.get("/api/knowledge/passages/?limit=3").json()
    assert listed["count"] == 8 and len(listed["results"]) == 3
    assert api.get(f"/api/knowledge/passages/?document={own.pk}").json()["count"] == 2
    assert api.get("/api/knowledge/passages/?hardware=gpu").json()["count"] == 7
    one = api.get(f"/api/knowledge/passages/doc-{own.pk}-1/").json()
    assert one["place"] == "§ Runbook > Mesh rules" and one["team"] == people.team.pk
    assert people.api("outsider").get(f"/api/knowledge/passages/doc-{own.pk}-1/").status_code == 404
    assert (
        people.api("outsider").get(f"/api/knowledge/passages/doc-{own.pk}-1/?team={people.team.pk}").status_code == 404
    )
    assert people.api("outsider").get("/api/knowledge/passages/").json()["count"] == 6
    assert people.api("anonymous").get("/api/knowledge/passages/").status_code == 401
    assert api.post("/api/knowledge/passages/").status_code == 405


def test_the_api_adds_follows_and_deletes_documents(people):
    api = people.api("engineer")
    made = api.post("/api/knowledge/documents/", {"file": upload(), "title": "Rules"}, format="multipart")
    assert made.status_code == 202 and made.json()["outcome"] == "added" and made.json()["state"] == "reading"
    path = f"/api/knowledge/documents/{made.json()['id']}/"
    read_document(made.json()["id"])
    found = people.api("viewer").get(path).json()
    assert (found["state"], found["passages"], found["embedded"], found["replaced"]) == ("ready", 2, 0, False)
    same = api.post("/api/knowledge/documents/", {"file": upload()}, format="multipart")
    assert same.status_code == 200 and same.json()["outcome"] == "known" and same.json()["id"] == found["id"]
    for name, status in (("viewer", 403), ("outsider", 404), ("anonymous", 401)):
        assert people.api(name).delete(path).status_code == status
    assert people.api("outsider").get(path).status_code == 404
    assert people.api("viewer").get("/api/knowledge/documents/").json()["count"] == 1
    assert people.api("outsider").get("/api/knowledge/documents/").json()["count"] == 0
    assert people.api("administrator").delete(path).status_code == 204
    assert not Passage.objects.exists()


@pytest.mark.parametrize(
    ("name", "content", "status"),
    [("a.pdf", b"no pdf", 400), ("a.md", b"", 400), ("a.pdf", b"%PDF-" + b"0" * 25_000_001, 413)],
)
def test_the_api_refuses_what_it_cannot_take(people, name, content, status):
    answer = people.api("engineer").post(
        "/api/knowledge/documents/", {"file": upload(content, name)}, format="multipart"
    )
    assert answer.status_code == status and answer.json()["detail"].startswith(name)
