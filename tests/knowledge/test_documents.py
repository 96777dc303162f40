"""Documents that users add: what is taken, how it is cut and cited, versions, deletion, and files that mean harm."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from hypothesis import given
from hypothesis import strategies as st

from knowledge.documents import DocumentError, markdown, plain, read
from knowledge.documents.kinds import kind_of
from knowledge.documents.limits import LIMITS, Limits
from knowledge.documents.pieces import MOST
from knowledge.models import Document, Passage, State
from knowledge.services import documents
from knowledge.services.embedding import embed_some
from knowledge.services.search import of_rows, passage, search, visible
from knowledge.tasks import read_document
from tests.backend.services import dead_process
from tests.knowledge.files import bomb, encrypted, pdf, with_bookmarks, written

RUNBOOK = """---
title: not text
---
# Runbook

We train on v5p pods.

## Sharding

Put `data` on the major axis.

### Axes

Never more than 8 on the *model* axis.

## Failures

Micro-batch 8 runs out of memory.
"""


def stored(tmp_path: Path, content: bytes | str) -> Path:
    path = tmp_path / "file"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def upload(content: bytes | str, name: str = "runbook.md") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content.encode() if isinstance(content, str) else content)


def added(people, content: bytes | str, name: str = "runbook.md", title: str = "", by: str = "engineer") -> Document:
    """A document as the worker leaves it."""
    received = documents.receive(people.team, getattr(people, by), upload(content, name), title=title)
    read_document(received.document.pk)
    received.document.refresh_from_db()
    return received.document


def keys(answer) -> list[str]:
    return [found.passage.key for found in answer.found]


# What a file is


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.md", b"# A", "markdown"),
        ("a.markdown", b"# A", "markdown"),
        ("a.txt", b"plain", "text"),
        ("noending", "αβγ".encode(), "text"),
        ("bom.txt", b"\xef\xbb\xbfhello", "text"),
        ("paper.txt", b"%PDF-1.7\n...", "pdf"),  # its bytes say so, not its name
        ("late.pdf", b"\n\n%PDF-1.4", "pdf"),
    ],
)
def test_a_file_is_what_its_bytes_say(name, content, kind) -> None:
    assert kind_of(name, content) == kind


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.md", b" \n", "is empty"),
        ("report.pdf", b"PK\x03\x04rest", "Office file"),
        ("report.pdf", b"just words", "but is not a PDF"),
        ("old.doc", b"\xd0\xcf\x11\xe0", "old Office file"),
        ("page.html", b"<!DOCTYPE html><html>", "web page"),
        ("figure.md", b"\x89PNG\r\n", "image"),
        ("latin.txt", "ok\nzähl".encode("latin-1"), "not UTF-8 in line 2"),
        ("wide.txt", "text".encode("utf-16"), "UTF-16"),
        ("binary.txt", b"abc\x00def", "byte 4 is not a text character"),
        ("long.txt", b"x" * (LIMITS.text_bytes + 1), "larger than 5 MB"),
        ("long.pdf", b"%PDF-1.4" + b" " * LIMITS.file_bytes, "larger than 25 MB"),
    ],
)
def test_what_is_none_of_them_is_one_sentence(name, content, words) -> None:
    with pytest.raises(DocumentError, match=words) as caught:
        kind_of(name, content)
    assert str(caught.value).startswith(name) and str(caught.value).endswith(".")


# Text and Markdown


def test_markdown_is_cut_along_its_headings(tmp_path) -> None:
    found = read(stored(tmp_path, RUNBOOK), "runbook.md", "markdown").pieces
    assert [(piece.title, piece.place) for piece in found] == [
        ("Runbook", "§ Runbook"),
        ("Sharding", "§ Runbook > Sharding"),
        ("Axes", "§ Runbook > Sharding > Axes"),
        ("Failures", "§ Runbook > Failures"),
    ]
    assert found[2].text == "Never more than 8 on the *model* axis."
    assert "not text" not in " ".join(piece.text for piece in found)


def test_a_long_section_is_cited_by_lines_too() -> None:
    body = "\n\n".join(f"Paragraph {n} " + "says something about the mesh. " * 12 for n in range(8))
    found = markdown.pieces(f"# Mesh\n\n{body}\n", LIMITS)
    assert len(found) > 1 and found[0].place.startswith("§ Mesh, lines 3–")
    assert {piece.title for piece in found} == {"Mesh"}
    for piece in found:
        first = int(piece.place.split("line")[1].strip("s ").split("–")[0])
        assert f"# Mesh\n\n{body}".split("\n")[first - 1].strip() == piece.text.split("\n")[0].strip()


def test_a_long_code_block_and_a_long_table_stay_what_they_are() -> None:
    code = "\n".join(f"axis_{n} = mesh.shape['data'] * {n}" for n in range(120))
    rows = "\n".join(f"| axis {n} | {n} chips beside each other |" for n in range(120))
    found = markdown.pieces(f"# A\n\n```python\n{code}\n```\n\n# B\n\n| axis | size |\n|---|---|\n{rows}\n", LIMITS)
    blocks = [piece.text for piece in found if piece.title == "A"]
    tables = [piece.text for piece in found if piece.title == "B"]
    assert len(blocks) > 1 and all(text.startswith("```python\n") and text.endswith("\n```") for text in blocks)
    assert len(tables) > 1 and all(text.startswith("| axis | size |\n|---|---|\n| axis ") for text in tables)


def test_text_is_cited_by_line() -> None:
    long = "A sentence of a long paragraph. " * 40
    found = plain.pieces(f"First line.\r\nSecond line. {long}\n\n\n{long}\n\n{long}\n\nLast.", LIMITS)
    assert [piece.place for piece in found][:2] == ["lines 1–2", "line 5"]
    assert found[0].text.startswith("First line.\nSecond line.")
    assert found[-1].place == "lines 7–9" and found[-1].text.endswith("Last.")  # a short rest joins what precedes it


@given(st.text(max_size=6000) | st.text(alphabet="ab .\n#`|-*>", max_size=9000))
def test_any_text_is_cut_into_bounded_passages_and_loses_no_word(content) -> None:
    written_words = "".join(content.split())
    assert "".join("".join(p.text for p in plain.pieces(content, LIMITS)).split()) == written_words
    for found in (plain.pieces(content, LIMITS), markdown.pieces(content, LIMITS)):
        assert all(0 < len(piece.text) <= MOST and len(piece.place) <= 300 for piece in found)


def test_too_much_text_is_refused(tmp_path) -> None:
    path = stored(tmp_path, "\n\n".join("word " * 100 for _ in range(400)))
    with pytest.raises(DocumentError, match="add it in parts"):
        read(path, "long.txt", "text", Limits(passages=20))


# PDF

FIRST = ["Data parallelism copies the weights to every chip and averages the gradients", "once a step.", "",
         "It stops paying when the batch per chip falls below the ridge point."]  # fmt: skip
SECOND = ["Tensor parallelism splits each matrix over the chips of an axis and gathers the acti-",
          "vations of every layer."]  # fmt: skip


def test_a_pdf_is_cited_by_page(tmp_path) -> None:
    found = read(stored(tmp_path, pdf([FIRST * 10, SECOND * 10])), "paper.pdf", "pdf")
    assert found.pages == 2 and found.note == ""
    assert found.pieces[0].place == "page 1"
    assert found.pieces[-1].place in ("page 2", "pages 1–2")
    words = " ".join(piece.text for piece in found.pieces)
    assert "averages the gradients once a step." in words  # lines are joined
    assert "gathers the activations of every layer." in words  # and hyphens of line ends go


def test_bookmarks_name_the_sections_of_a_pdf(tmp_path) -> None:
    content = pdf([["1 Data parallelism", *FIRST], ["More of the same on this page here."], ["2 Tensors", *SECOND]])
    marked = with_bookmarks(content, [("Data parallelism", 0, 0), ("Tensors", 2, 0)])
    found = read(stored(tmp_path, marked), "paper.pdf", "pdf").pieces
    assert [piece.place for piece in found] == ["§ Data parallelism, pages 1–2", "§ Tensors, page 3"]
    assert [piece.title for piece in found] == ["Data parallelism", "Tensors"]


def test_a_bookmark_whose_title_is_not_on_its_page_claims_nothing(tmp_path) -> None:
    content = with_bookmarks(pdf([FIRST, SECOND]), [("Book", 0, 0), ("Unseen", 1, 1)])
    found = read(stored(tmp_path, content), "paper.pdf", "pdf").pieces
    assert not any("Unseen" in piece.place for piece in found)


def test_running_heads_are_left_out(tmp_path) -> None:
    pages = [[f"Our cluster guide   {n}", f"Page {n} speaks of axis {n} and of nothing else.", "Confidential"]
             for n in range(1, 7)]  # fmt: skip
    words = " ".join(piece.text for piece in read(stored(tmp_path, pdf(pages)), "guide.pdf", "pdf").pieces)
    assert "Our cluster guide" not in words and "Confidential" not in words
    assert all(f"axis {n}" in words for n in range(1, 7))


def test_a_pdf_that_only_forbids_printing_is_read_and_one_with_a_password_is_not(tmp_path) -> None:
    assert "averages" in read(stored(tmp_path, encrypted(pdf([FIRST]), "")), "open.pdf", "pdf").pieces[0].text
    with pytest.raises(DocumentError, match=r"locked\.pdf is protected by a password"):
        read(stored(tmp_path, encrypted(pdf([FIRST]), "secret")), "locked.pdf", "pdf")


def test_a_scanned_pdf_asks_for_text_recognition(tmp_path) -> None:
    with pytest.raises(DocumentError, match=r"scanned images\. Run text recognition"):
        read(stored(tmp_path, pdf([[], []])), "scan.pdf", "pdf")


def test_pages_without_text_are_named(tmp_path) -> None:
    found = read(stored(tmp_path, pdf([FIRST, [], SECOND])), "paper.pdf", "pdf")
    assert found.note == "Page 2 contains no text."


LOOP = written([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 9 /Kids [2 0 R] >>"])
NO_PAGES = written([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 0 /Kids [] >>"])
NESTED = b"%PDF-1.4\n1 0 obj\n" + b"[" * 200_000 + b"\nendobj\ntrailer\n<< /Root 1 0 R >>\nstartxref\n9\n%%EOF"


@pytest.mark.parametrize(
    "content",
    [b"%PDF-1.4\n%%EOF", b"%PDF-" + b"\x9f" * 5000, pdf([FIRST])[:400], LOOP, NO_PAGES, NESTED],
    ids=["nothing", "noise", "cut off", "pages in a circle", "no pages", "nested"],
)
def test_a_damaged_pdf_is_one_sentence(tmp_path, content) -> None:
    with pytest.raises(DocumentError) as caught:
        read(stored(tmp_path, content), "paper.pdf", "pdf", Limits(wall_s=60))
    assert "paper.pdf" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_processes")
def test_a_bomb_ends_within_its_limits(tmp_path) -> None:
    content = bomb()
    assert len(content) < 1_000_000
    with pytest.raises(DocumentError, match=r"No page of bomb\.pdf could be read: it .* unpacks to more"):
        read(stored(tmp_path, content), "bomb.pdf", "pdf", Limits(memory_bytes=600_000_000))


def test_many_pages_are_refused_before_they_are_read(tmp_path) -> None:
    with pytest.raises(DocumentError, match="has 12 pages; at most 10 are read"):
        read(stored(tmp_path, pdf([["x"]] * 12)), "book.pdf", "pdf", Limits(pages=10))


def test_what_takes_too_long_is_stopped(tmp_path) -> None:
    path = stored(tmp_path, "# A\n\n" + "word " * 500_000)
    with pytest.raises(DocumentError, match="took too long"):
        read(path, "slow.md", "markdown", Limits(wall_s=0))


# In the database


@pytest.mark.slow
def test_a_document_becomes_passages_that_are_found_and_cited_by_place(people, passages) -> None:
    document = added(people, RUNBOOK)
    assert (document.state, document.kind, document.title) == (State.READY, "markdown", "runbook")
    embed_some(Passage)
    for mode in ("fused", "vector", "text"):
        best = (
            of_rows(visible(people.team).filter(document=document), "how large may the model axis be", 5, mode=mode)
            .found[0]
            .passage
        )
        assert best.place == "§ Runbook > Sharding > Axes"
        assert best.source == "runbook" and best.key == f"doc-{document.pk}-3"
    assert "doc" not in " ".join(keys(search(None, "micro-batch out of memory", k=50)))


def test_a_worker_reads_it_after_the_upload(people, django_capture_on_commit_callbacks) -> None:
    with django_capture_on_commit_callbacks() as later:
        received = documents.receive(people.team, people.engineer, upload(RUNBOOK))
    assert received.outcome == "added" and received.document.state == State.READING and len(later) == 1
    read_document(received.document.pk)
    read_document(received.document.pk)  # delivered twice
    read_document(received.document.pk + 1000)  # deleted meanwhile
    assert received.document.passages.count() == 4


def test_the_same_file_twice_is_one_document(people) -> None:
    first = added(people, RUNBOOK)
    again = documents.receive(people.team, people.administrator, upload(RUNBOOK, "other.md"), title="Another")
    assert again.outcome == "known" and again.document == first and "already exists as “runbook”" in again.sentence
    assert Document.objects.count() == 1
    assert len(list(documents.original(first).parent.iterdir())) == 1  # its second copy is not kept
    theirs = documents.receive(people.outsider.memberships.get().team, people.outsider, upload(RUNBOOK))
    assert theirs.outcome == "added"  # another team's is its own


def test_a_new_version_takes_the_place_of_the_old_one_whose_citations_still_open(people) -> None:
    first = added(people, RUNBOOK)
    second = added(people, RUNBOOK.replace("more than 8", "more than 4"))
    assert (first.version, second.version) == (1, 2)
    hits = search(people.team, "model axis", k=20, mode="text").found
    assert {found.passage.document_id for found in hits} == {second.pk}
    cited = passage([people.team.pk], f"doc-{first.pk}-3")
    assert cited is not None and cited.retired_at is not None and "more than 8" in cited.text
    listed = {document.pk: document.replaced for document in documents.owned(people.team)}
    assert listed == {first.pk: True, second.pk: False}


def test_an_old_version_can_be_brought_back(people) -> None:
    first = added(people, RUNBOOK)
    added(people, RUNBOOK + "More.\n")
    back = documents.receive(people.team, people.engineer, upload(RUNBOOK))
    assert back.outcome == "restored" and back.document.pk == first.pk and back.document.version == 3
    assert {f.passage.document_id for f in search(people.team, "model axis", mode="text").found} == {first.pk}


def test_a_new_version_that_cannot_be_read_replaces_nothing(people) -> None:
    first = added(people, RUNBOOK, title="Guide")
    broken = added(people, pdf([[]]), "guide.pdf", title="Guide")
    assert broken.state == State.FAILED and "scanned" in broken.error
    assert {f.passage.document_id for f in search(people.team, "model axis", mode="text").found} == {first.pk}
    assert not any(document.replaced for document in documents.owned(people.team))


def test_a_file_that_could_not_be_read_is_tried_again(people) -> None:
    broken = added(people, pdf([[]]), "scan.pdf")
    again = documents.receive(people.team, people.engineer, upload(pdf([[]]), "scan.pdf"))
    assert again.outcome == "again" and again.document.pk == broken.pk and again.document.state == State.READING


def test_deleting_the_newest_version_brings_the_one_before_back(people) -> None:
    first = added(people, RUNBOOK)
    second = added(people, RUNBOOK + "More.\n")
    path = documents.original(second)
    before = documents.delete(second, by=people.engineer)
    assert before == first and not Passage.objects.filter(key__startswith=f"doc-{second.pk}-").exists()
    assert {f.passage.document_id for f in search(people.team, "model axis", mode="text").found} == {first.pk}
    assert path.exists()  # until the transaction commits


def test_a_deleted_document_takes_its_file_along(people, django_capture_on_commit_callbacks) -> None:
    document = added(people, RUNBOOK)
    path = documents.original(document)
    with django_capture_on_commit_callbacks(execute=True):
        documents.delete(document, by=people.engineer)
    assert not path.exists() and not Passage.objects.exists()


def test_who_may_delete(people) -> None:
    document = added(people, RUNBOOK)
    may = {name: documents.may_delete(getattr(people, name), document) for name in
           ("engineer", "viewer", "reviewer", "administrator", "outsider")}  # fmt: skip
    assert may == {"engineer": True, "viewer": False, "reviewer": False, "administrator": True, "outsider": False}


def test_what_a_dead_worker_left_is_queued_again(people) -> None:
    received = documents.receive(people.team, people.engineer, upload(RUNBOOK))
    assert documents.READING.sweep() == []  # it may still be on its way
    Document.objects.update(created_at="2020-01-01T00:00:00Z")
    assert documents.READING.sweep() == [received.document.pk]
    assert documents.READING.sweep() == []
    assert documents.READING.claim(received.document.pk, "elsewhere/1/2/3/4")
    read_document(received.document.pk)
    received.document.refresh_from_db()
    assert received.document.state == State.READING  # a live worker has it
    Document.objects.update(worker=dead_process())
    assert documents.READING.sweep() == [received.document.pk]
    read_document(received.document.pk)
    received.document.refresh_from_db()
    assert received.document.state == State.READY and received.document.attempts == 0


def test_a_document_that_kills_its_workers_fails_with_a_sentence(people) -> None:
    received = documents.receive(people.team, people.engineer, upload(RUNBOOK))
    Document.objects.update(worker=dead_process(), attempts=3)
    read_document(received.document.pk)
    received.document.refresh_from_db()
    assert received.document.state == State.FAILED and "died in each of" in received.document.error


def test_a_file_that_vanished_says_so(people) -> None:
    received = documents.receive(people.team, people.engineer, upload(RUNBOOK))
    documents.original(received.document).unlink()
    read_document(received.document.pk)
    received.document.refresh_from_db()
    assert received.document.state == State.FAILED and "no longer exists" in received.document.error


def test_names_of_files_are_only_names(people) -> None:
    document = added(people, RUNBOOK, "../../etc/\u202epasswd\x07.md")
    assert document.name == "passwd.md" and document.title == "passwd"
    assert documents.original(document).parent.name == "documents"
