"""Files of passages: read strictly, loaded once, versioned, and never lost to what cites them."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from knowledge.models import Document, Passage, Question
from knowledge.passage_file import PassageError, read_all, read_file
from knowledge.services.embedding import stale
from knowledge.services.search import passage, search
from knowledge.services.shipped import Loaded, load_shipped

FRONT = """---
source: "A book"
url: "https://example.org/book"
chapter: "Rooflines"
---

# Rooflines
"""
FIRST = """
## The ridge point
```yaml
id: ridge
section: "1.2"
tags: [intensity]
hardware: [any]
bottlenecks: [compute, memory]
```

Above the ridge point a kernel is
limited by FLOPs.

Below it by bandwidth.

Formula: I = C / W,
in FLOPs per byte.
Applies when: one memory feeds the units.

Not when: the kernel waits for the host.
"""
SECOND = """
## Torus links
```yaml
id: links
section: "2"
source: "A data sheet"
url: "https://example.org/sheet"
tags: []
hardware: [tpu]
bottlenecks: [communication]
```

An axis that wraps has twice the bandwidth.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.md").write_text(FRONT + FIRST + SECOND)
    (tmp_path / "README.md").write_text("How passages are written.")
    return tmp_path


def test_a_passage_is_read_with_all_its_parts(folder: Path) -> None:
    (file,) = read_all(folder)
    ridge, links = file.passages
    assert (file.name, file.title, file.source, file.chapter) == ("a.md", "Rooflines", "A book", "Rooflines")
    assert ridge.text == "Above the ridge point a kernel is\nlimited by FLOPs.\n\nBelow it by bandwidth."
    assert ridge.formula == "I = C / W, in FLOPs per byte."
    assert ridge.applies_when == "one memory feeds the units."
    assert ridge.counter_indications == "the kernel waits for the host."
    assert (ridge.source, ridge.url, ridge.bottlenecks) == (
        "A book",
        "https://example.org/book",
        ("compute", "memory"),
    )
    assert (links.source, links.url, links.formula, links.hardware) == (
        "A data sheet",
        "https://example.org/sheet",
        "",
        ("tpu",),
    )


WRONG = [
    ("# Rooflines", "Rooflines", "a.md:1:", "`# title`"),
    ("---\nsource", "source", "a.md:1:", "---"),
    ('source: "A book"\n', "", "a.md:2:", "source"),
    ('chapter: "Rooflines"', "chapter: [1, 2]", "a.md:2:", "chapter"),
    ('chapter: "Rooflines"', 'chapter: "Rooflines"\nauthor: "x"', "a.md:2:", "author"),
    ("id: ridge\n", "", "a.md:9:", "id"),
    ("id: ridge", "id: The Ridge", "a.md:9:", "id"),
    ("id: ridge", "id: links", "a.md:29:", "taken by a.md:9"),
    ("id: ridge", "id: [", "a.md:9:", "not valid YAML"),
    ("hardware: [any]", "hardware: [abacus]", "a.md:9:", "hardware"),
    ("hardware: [any]", "hardware: []", "a.md:9:", "hardware"),
    ("hardware: [any]", "hardware: any", "a.md:9:", "hardware"),
    ("bottlenecks: [compute, memory]", "bottlenecks: [bandwidth]", "a.md:9:", "bottlenecks"),
    ("section: \"1.2\"", "section: 1.2", "a.md:9:", "section"),
    ("```yaml\nid: ridge", "id: ridge", "a.md:9:", "```yaml"),
    ("[compute, memory]\n```", "[compute, memory]\n", "a.md:9:", ""),
    ("## The ridge point", "## ", "a.md:9:", "title"),
    ("Not when: the", "Formula: the", "a.md:9:", "Formula"),
    ("An axis that wraps has twice the bandwidth.", "", "a.md:29:", "text"),
    ("Not when: the kernel waits", "The kernel waits", "a.md:9:", "statement"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "where", "sentence"), WRONG)
def test_what_is_not_understood_is_refused_with_its_line(folder: Path, right, wrong, where, sentence) -> None:
    path = folder / "a.md"
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong, 1))
    with pytest.raises(PassageError) as raised:
        read_all(folder)
    assert str(raised.value).startswith(where)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_utf8(folder: Path) -> None:
    (folder / "a.md").write_bytes(b"---\n\xff\n---\n")
    with pytest.raises(PassageError, match=r"^a\.md:2:"):
        read_file(folder / "a.md")


@pytest.mark.django_db
def test_loading_again_changes_nothing(folder: Path, django_assert_num_queries) -> None:
    assert load_shipped(folder) == Loaded(2, added=2)
    before = list(Passage.objects.values())
    with django_assert_num_queries(2):  # what is there, and how many
        assert load_shipped(folder) == Loaded(2)
    assert list(Passage.objects.values()) == before


@pytest.mark.django_db
def test_words_are_found_at_once_and_vectors_are_waited_for(folder: Path) -> None:
    load_shipped(folder)
    assert next(found.passage.key for found in search(None, "wraps bandwidth").found) == "links"
    assert stale(Passage).count() == 2


@pytest.mark.django_db
def test_a_changed_passage_counts_up_and_the_others_stay(folder: Path) -> None:
    load_shipped(folder)
    Passage.objects.update(embedding_model="all-MiniLM-L6-v2", embedding_dimension=384, embedding=[1.0] * 384)
    for row in Passage.objects.all():
        Passage.objects.filter(pk=row.pk).update(embedded_hash=row.content_hash)
    ridge, links = Passage.objects.get(key="ridge"), Passage.objects.get(key="links")
    path = folder / "a.md"
    path.write_text(path.read_text().replace("has twice the bandwidth", "carries twice as much"))
    assert load_shipped(folder) == Loaded(2, changed=1)
    changed = Passage.objects.get(key="links")
    assert (changed.pk, changed.version, changed.text) == (links.pk, 2, "An axis that wraps carries twice as much.")
    assert [row.key for row in stale(Passage)] == ["links"]
    assert Passage.objects.get(key="ridge").version == ridge.version == 1
    assert Document.objects.get().version == 2
    assert search(None, "carries twice", mode="text").found[0].passage.key == "links"


@pytest.mark.django_db
def test_questions_come_with_their_passage_and_change_with_it(folder: Path) -> None:
    asked = folder / "questions.json"
    load_shipped(folder)
    asked.write_text('{"questions": {"links": ["Is a torus faster?", "Why close the ring?"]}}')
    assert load_shipped(folder) == Loaded(2, changed=1)
    assert search(None, "torus faster", mode="text").found[0].passage.key == "links"
    ring = Question.objects.get(text="Why close the ring?")
    asked.write_text('{"questions": {"links": ["Why close the ring?", "Does it wrap?"]}}')
    assert load_shipped(folder) == Loaded(2, changed=1)
    assert Passage.objects.get(key="links").version == 3
    assert {row.text for row in Question.objects.all()} == {"Why close the ring?", "Does it wrap?"}
    assert Question.objects.get(text="Why close the ring?").pk == ring.pk  # with its vector
    asked.unlink()
    assert load_shipped(folder) == Loaded(2, changed=1)
    assert not Question.objects.exists() and not search(None, "faster", mode="text").found


@pytest.mark.parametrize(
    ("written", "where"),
    [
        ("[1, 2]", "questions.json:1:"),
        ('{"questions":\n{"links": ["a"}}', "questions.json:2:"),
        ('{"questions": {"links": [7]}}', "questions.json:1:"),
        ('{"questions": {"link": ["a"]}}', "questions.json:1: there is no passage link."),
    ],
)
def test_questions_that_are_not_understood_are_refused(folder: Path, written: str, where: str) -> None:
    (folder / "questions.json").write_text(written)
    with pytest.raises(PassageError) as raised:
        read_all(folder)
    assert str(raised.value).startswith(where)


@pytest.mark.django_db
def test_a_passage_that_is_gone_is_not_found_but_can_be_opened(folder: Path) -> None:
    load_shipped(folder)
    path = folder / "a.md"
    whole = path.read_text()
    path.write_text(FRONT + FIRST)
    assert load_shipped(folder) == Loaded(1, retired=1)
    assert search(None, "wraps bandwidth", mode="text", k=50).found[0].passage.key == "ridge"
    assert "links" not in [found.passage.key for found in search(None, "axis that wraps", mode="text").found]
    assert passage([], "links").retired_at is not None
    assert load_shipped(folder) == Loaded(1)
    path.write_text(whole)
    assert load_shipped(folder).passages == 2
    assert passage([], "links").retired_at is None


@pytest.mark.django_db
def test_a_passage_moves_to_another_file_and_stays_itself(folder: Path) -> None:
    load_shipped(folder)
    links = Passage.objects.get(key="links")
    (folder / "a.md").write_text(FRONT + FIRST)
    (folder / "b.md").write_text(FRONT.replace("Rooflines", "Links") + SECOND)
    load_shipped(folder)
    moved = Passage.objects.get(key="links")
    assert moved.pk == links.pk and moved.document.name == "b.md" and moved.retired_at is None
    (folder / "b.md").unlink()
    assert load_shipped(folder) == Loaded(1, retired=1)
    assert load_shipped(folder) == Loaded(1)


@pytest.mark.django_db
def test_a_wrong_file_leaves_the_database_as_it_is(folder: Path) -> None:
    load_shipped(folder)
    (folder / "b.md").write_text("# Nothing\n")
    with pytest.raises(PassageError, match=r"^b\.md:1:"):
        load_shipped(folder)
    assert Passage.objects.filter(retired_at=None).count() == 2


@pytest.mark.django_db
def test_the_command_loads_what_ships(capsys, folder: Path) -> None:
    call_command("load_knowledge")
    shipped = capsys.readouterr().out
    assert shipped.endswith("added, 0 changed, 0 retired\n") and int(shipped.split()[0]) >= 150
    (folder / "a.md").write_text("# Nothing\n")
    with pytest.raises(CommandError, match=r"/a\.md:1:"):
        call_command("load_knowledge", folder=folder)
