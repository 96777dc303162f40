"""What is found, in which order, for whom, and what is said about why."""

from __future__ import annotations

import pytest
from django.db import connection
from django.utils import timezone

from accounts.models import Team
from knowledge import retrieval
from knowledge.embedding.minilm import NAME, EmbeddingError, embed
from knowledge.models import Document, EmbeddingJob, Kind, Passage, Question, stamped
from knowledge.retrieval import MODES, retrieve, similar
from knowledge.services import embedding
from knowledge.services.embedding import EMBEDDINGS, embed_some, stale, sweep, work
from knowledge.services.search import of_rows, passage, search, visible
from tests.backend.services import dead_process
from tests.knowledge.conftest import TEXTS, add_passages

pytestmark = pytest.mark.django_db


def keys(answer) -> list[str]:
    return [found.passage.key for found in answer.found]


@pytest.mark.parametrize("mode", MODES)
def test_the_passage_that_answers_comes_first(passages, mode) -> None:
    assert keys(search(None, "recompute activations to save memory", mode=mode))[0] == "remat"
    assert keys(search(None, "gradients all-reduced over the data axis", mode=mode))[0] == "data"


def test_meaning_finds_what_shares_no_word_with_the_question(passages) -> None:
    question = "HBM exhausted"
    assert keys(search(None, question, mode="text")) == []
    assert "remat" in keys(search(None, question))[:2]


def test_words_find_the_exact_term_first_and_then_those_with_some_of_the_words(passages) -> None:
    found = keys(search(None, "NVLink bandwidth axis", mode="text"))
    assert found[0] == "nvlink"
    assert {"data", "tensor"} <= set(found)  # they hold the axis alone
    assert keys(search(None, '"model axis"', mode="text"))[0] == "tensor"


def test_an_excluded_word_is_in_no_hit(passages) -> None:
    assert "data" in keys(search(None, "axis"))
    for mode in MODES:
        assert "data" not in keys(search(None, "axis -gradients", mode=mode))


def test_collectives_are_found_however_they_are_spelled(passages) -> None:
    for name in ("allreduce", "all_reduce", "All Reduce", "AllReduce"):
        assert keys(search(None, name, mode="text"))[0] == "data"


def test_a_flag_is_no_excluded_word(passages) -> None:
    assert keys(search(None, "--prefetching", mode="text")) == ["input"]


def test_a_hit_says_why_it_is_there(passages) -> None:
    answer = search(None, "activations saves memory", k=6)
    best = answer.found[0].hit
    assert answer.found[0].passage.key == "remat"
    assert best.vector.rank == 1 and 0.3 < best.vector.score <= 1
    assert best.text.rank == 1 and best.text.score > 0
    assert best.score == pytest.approx(1.0)  # first in both lists
    assert set(best.matched) == {"activations", "saves", "memory"}
    assert "".join(fragment.text for fragment in best.excerpt) in TEXTS["remat"][1]
    by_meaning_only = [found.hit for found in answer.found if found.hit.text is None]
    assert by_meaning_only
    assert all(0 <= hit.score < 0.5 and not hit.matched for hit in by_meaning_only)  # at most half of one list
    scores = [found.hit.score for found in answer.found]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("mode", MODES)
def test_pages_of_hits_do_not_overlap(passages, mode) -> None:
    whole = keys(search(None, "chips over the axis", k=6, mode=mode))
    assert keys(of_rows(visible(None), "chips over the axis", 2, offset=2, mode=mode)) == whole[2:4]


@pytest.mark.parametrize(
    "query", ["", "   ", "...", "\0", "'", "it's a & | ! ( ) <-> :* \\ \" axis", "-axis", "x" * 9000, "%s %(a)s"]
)
def test_any_text_is_a_query(passages, query) -> None:
    for mode in MODES:
        answer = search(None, query, mode=mode)
        assert len(answer.found) <= 5 and not answer.notes


def test_nothing_to_search_in(db) -> None:
    assert search(None, "sharding").found == ()


def test_a_filter_that_nothing_can_pass(passages) -> None:
    for mode in MODES:
        assert retrieve(Passage.objects.filter(pk__in=[]), "sharding", mode=mode).hits == ()
        assert retrieve(Passage.objects.none(), "sharding", mode=mode).hits == ()


def test_what_holds_markup_stays_text(passages) -> None:
    add_passages(passages, {"markup": ("Markup", "The mesh is \x02written\x03 in <script> tags & where a<b and c>d.")})
    answer = search(None, "mesh markup written", mode="text")
    excerpt = "".join(fragment.text for fragment in answer.found[0].hit.excerpt)
    assert excerpt == "The mesh is written in <script> tags & where a<b and c>d."
    assert "mesh" in answer.found[0].hit.matched


# Questions


def ask(key: str, *texts: str) -> None:
    row = Passage.objects.get(key=key)
    row.questions = list(texts)
    row.save()
    Question.objects.bulk_create(stamped(Question(passage=row, text=text) for text in texts))
    embed_some(Question)


def test_a_passage_is_found_by_a_question_that_it_answers(passages) -> None:
    query = "which link joins the cards of a server"
    before = {mode: keys(search(None, query, k=6, mode=mode)) for mode in MODES}
    ask("input", "Which link joins the cards of one server?", "Where do the cards wait?")
    after = {mode: keys(search(None, query, k=6, mode=mode)) for mode in MODES}
    for mode in MODES:
        assert after[mode].index("input") == 0
        assert "input" not in before[mode] or before[mode].index("input") > 0


def test_a_question_is_behind_the_same_filters_as_its_passage(passages) -> None:
    ask("nvlink", "Which link joins the cards of one server?")
    for mode in MODES:
        assert "nvlink" not in keys(
            search(None, "Which link joins the cards of one server?", hardware="tpu", mode=mode)
        )
    Passage.objects.filter(key="nvlink").update(retired_at=timezone.now())
    for mode in MODES:
        assert "nvlink" not in keys(search(None, "Which link joins the cards of one server?", mode=mode))


def test_a_question_of_another_model_is_not_compared(passages) -> None:
    ask("input", "Which link joins the cards of one server?")
    Question.objects.update(embedding_model="another")
    found = search(None, "Which link joins the cards of one server?", k=6, mode="vector")
    assert keys(found)[0] != "input"


def test_a_text_that_says_it_beats_questions_that_are_merely_near(passages) -> None:
    """Documents of a team have no questions."""
    for key in ("torus", "data", "tensor"):
        ask(key, "How are things joined?", "What has a full bandwidth?", "Where is a switch?")
    assert keys(search(None, "inside a node a switch gives every GPU its full bandwidth"))[0] == "nvlink"


# Filters and rights


def test_hardware_keeps_what_holds_for_it_and_for_all(passages) -> None:
    everything = set(TEXTS)
    assert set(keys(search(None, "chips", k=10, hardware="gpu"))) == everything - {"torus"}
    assert set(keys(search(None, "chips", k=10, hardware="tpu"))) == everything - {"nvlink"}
    assert set(keys(search(None, "chips", k=10, hardware="v5p"))) == everything - {"nvlink"}
    assert set(keys(search(None, "chips", k=10, hardware="h100"))) == everything - {"torus"}
    with pytest.raises(ValueError, match="abacus"):
        search(None, "chips", hardware="abacus")


def test_bottleneck_keeps_what_helps_against_it(passages) -> None:
    assert set(keys(search(None, "chips", k=10, bottleneck="communication"))) == {"data", "tensor"}
    assert set(keys(search(None, "chips", k=10, bottleneck="communication", hardware="gpu"))) == {"data", "tensor"}
    assert keys(search(None, "chips", bottleneck="idle")) == []


def test_a_team_finds_the_shipped_passages_and_its_own(passages) -> None:
    ours, theirs = Team.objects.create(name="ours"), Team.objects.create(name="theirs")
    document = Document.objects.create(team=ours, kind=Kind.TEXT, title="Wiki", name="wiki.txt", sha256="2")
    add_passages(document, {"wiki": ("Our gradients", "Gradients are all-reduced in fp32 here.")})
    embed_some(Passage)
    for mode in MODES:
        assert "wiki" in keys(search(ours, "gradients all-reduced", mode=mode))
        assert "data" in keys(search(ours, "gradients all-reduced", mode=mode))
        assert "wiki" not in keys(search(theirs, "gradients all-reduced", mode=mode, k=50))
        assert "wiki" not in keys(search(None, "gradients all-reduced", mode=mode, k=50))
        assert keys(of_rows(visible(ours).filter(document=document), "gradients all-reduced", 5, mode=mode)) == ["wiki"]
        assert keys(of_rows(visible(theirs).filter(document=document), "gradients all-reduced", 5, mode=mode)) == []
    assert passage([ours.pk], "wiki").title == "Our gradients"
    assert passage([theirs.pk], "wiki") is None
    assert passage([theirs.pk], "data").title == "Data parallelism"


@pytest.mark.slow
def test_few_rows_behind_a_filter_are_all_found(passages) -> None:
    """The index gives up after so many neighbours that the filter drops; then the few are compared one by one."""
    document = Document.objects.create(kind=Kind.TEXT, title="Many", name="many", sha256="3")
    add_passages(document, {f"x{n}": ("Gradients", f"Gradients are all-reduced over axis {n}.") for n in range(400)})
    embed_some(Passage)
    few = of_rows(visible(None).filter(document=passages), "gradients all-reduced over an axis", 10, mode="vector")
    assert set(keys(few)) == set(TEXTS)


# Vectors of several models


def test_similar_rows_are_near_in_meaning(passages) -> None:
    remat = Passage.objects.get(key="remat")
    nearest = similar(Passage.objects.all(), remat, k=3)
    assert remat.pk not in [hit.pk for hit in nearest.hits]
    assert nearest.hits[0].pk in set(Passage.objects.filter(key__in=["tensor", "data"]).values_list("pk", flat=True))
    remat.embedding = None
    assert similar(Passage.objects.all(), remat).notes


def test_without_vectors_words_are_found_at_once(passages) -> None:
    add_passages(passages, {"new": ("Zero bubble", "A pipeline schedule splits the backward pass in two.")})
    assert stale(Passage).count() == 1
    assert "new" in keys(search(None, "zero bubble schedule"))[:2]
    embed_some(Passage)
    assert not stale(Passage).exists()
    assert keys(search(None, "zero bubble schedule", mode="vector"))[0] == "new"


def test_a_changed_text_gets_a_new_vector(passages) -> None:
    changed = Passage.objects.get(key="torus")
    changed.text = "Prefetching on the host hides reading of the next batch."
    changed.save(update_fields=["text"])
    assert [row.key for row in stale(Passage)] == ["torus"]
    before = Passage.objects.get(key="torus").embedding
    embed_some(Passage)
    assert list(Passage.objects.get(key="torus").embedding) != list(before)
    assert not stale(Passage).exists()


def test_vectors_of_another_model_are_not_compared_and_replaced_in_slices(passages) -> None:
    add_passages(passages, {f"y{n}": ("More", f"Passage {n} of another kind.") for n in range(60)})
    Passage.objects.update(embedding_model="another", embedding_dimension=7)
    assert search(None, "gradients", mode="vector").found == ()
    assert keys(search(None, "gradients"))[0] == "data"
    assert "knowledge.passage" in sweep()
    embed_some(Passage, for_s=0)
    assert 0 < stale(Passage).count() < 66
    embed_some(Passage)
    assert set(Passage.objects.values_list("embedding_model", "embedding_dimension")) == {(NAME, 384)}
    with connection.cursor() as cursor:  # before a vacuum the index still leads to the old vectors
        cursor.execute("set local enable_indexscan = off")
    assert keys(search(None, "recompute activations", mode="vector"))[0] == "remat"


def test_one_worker_at_a_time_gives_a_model_its_vectors(passages) -> None:
    add_passages(passages, {"new": ("More", "Another passage.")})
    assert "knowledge.passage" in sweep()
    job = EmbeddingJob.objects.get(embedded="knowledge.passage")
    assert EMBEDDINGS.claim(job.pk, "elsewhere/1/2/3/4")
    work(job.pk)
    assert stale(Passage).count() == 1  # a live worker has it
    assert EMBEDDINGS.sweep() == []
    EmbeddingJob.objects.update(worker=dead_process())
    assert EMBEDDINGS.sweep() == [job.pk]
    work(job.pk)
    job.refresh_from_db()
    assert not stale(Passage).exists() and (job.status, job.worker, job.attempts) == ("idle", "", 0)


def test_a_text_that_changes_while_its_vector_is_computed_gets_another(passages, monkeypatch) -> None:
    def edited_meanwhile(texts: list[str]) -> object:
        Passage.objects.filter(key="remat").update(text="Everything is recomputed.", content_hash="new")
        return embed(texts)

    Passage.objects.update(embedding_model="")
    monkeypatch.setattr(embedding, "embed", edited_meanwhile)
    embed_some(Passage)
    assert [row.key for row in stale(Passage)] == ["remat"]
    monkeypatch.undo()
    embed_some(Passage)
    assert not stale(Passage).exists()


def test_the_planner_takes_the_index_of_the_model(passages) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("set local enable_seqscan = off")
        cursor.execute("set local enable_sort = off")
    from knowledge.vector_search import neighbours

    plan = neighbours(visible(None), embed(["gradients"])[0], 5).explain()
    assert "passage_hnsw_minilm" in plan


def test_without_the_model_words_are_found_and_a_note_says_so(passages, monkeypatch) -> None:
    def fail(texts: list[str]) -> None:
        raise EmbeddingError("The weights are gone.")

    retrieval._vector_of.cache_clear()
    monkeypatch.setattr(retrieval, "embed", fail)
    for mode in ("fused", "vector"):
        answer = search(None, "gradients all-reduced", mode=mode)
        assert keys(answer)[0] == "data" and answer.embedder == ""
        assert answer.notes[0].startswith("The weights are gone.")
    assert search(None, "gradients", mode="text").notes == ()


def test_a_mode_that_does_not_exist(passages) -> None:
    with pytest.raises(ValueError, match="telepathy"):
        retrieve(Passage.objects.all(), "x", mode="telepathy")
