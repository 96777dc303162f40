"""A proposal from its case: sentences, and what it cites of the knowledge base and of the history.

Support for its changes comes first, then for the verdict.  A passage says itself what it may be cited for, and when
(`supports`, knowledge/passages/README.md); one without such a line is for search only.  Precedents cite themselves
(`precedents`).  Pages open a passage in place by its id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from formatting import plain, span
from history.similarity import Alike
from knowledge.passage_file import ShippedPassage, read_all
from knowledge.supports import Support
from proposals.plan import BOOK, Citation, ProposalPlan
from proposals.proposer import words
from proposals.proposer.case import Case, Changed
from proposals.proposer.facts import Facts, value_of
from proposals.proposer.precedents import citation_of

#: Passages of one proposal, at most.
MOST = 4
#: Trials of its flags that a proposal cites, the most telling.
MOST_TRIALS = 4
#: Letters of a passage that a citation carries along; the page shows it whole.
EXCERPT = 320
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
#: Parts of the step in which a verdict's time stands, where they are not called as it is.
_OF_VERDICT = {"memory": ("hbm",), "communication": ("ici", "dcn")}


def proposal_of(case: Case) -> ProposalPlan:
    """The proposal of a case, without what only its neighbours and its terms tell."""
    of = words.worded(case)
    citations = cite(case, of)
    if case.precedent is not None:
        citations += (replace(case.precedent.citation(), supports=_bears(case.bears)),)
    if case.warning is not None:
        risk = f" {case.warns.reason[0].upper()}{case.warns.reason[1:]}." if case.warns is not None else ""
        text = f"The risk: a very similar run failed.{risk}"
        citations += (replace(case.warning.citation(), supports=text),)
    of_policies = [record for records in case.policies.values() for record in records[:1]]
    trials = case.effect.trials[:MOST_TRIALS] if case.effect else ()
    known = {citation.key for citation in citations}
    told = [record for record in (*trials, *of_policies) if record.id not in known]
    citations += tuple(replace(citation_of(record), supports="A measured part of this change.") for record in told)
    ratio = case.precedent.time_ratio if case.precedent is not None else None
    return ProposalPlan(
        rank=case.rank,
        kind=case.kind,
        title=words.title(case, of),
        mesh=case.mesh.to_json(),
        changes=case.changes,
        predicted=case.predicted,
        confidence=case.probability,
        runs=case.runs,
        reasoning=tuple(words.reasoning(case, of)),
        expected_impact=tuple(words.expected_impact(case, of)),
        trade_offs=tuple(words.trade_offs(case, of)),
        citations=citations,
        raises=tuple(words.said("Raises", of)),
        lowers=tuple(words.lowers(case, of)),
        findings=tuple(finding.rule for finding in case.answered),
        violations=case.broken,
        doublings=case.doublings,
        utility=case.utility,
        disputed=case.disputed,
        parts=case.parts,
        precedent_speedup=1 / ratio if ratio else None,
        flags=case.effect.summary if case.effect else {},
        policies=case.policy_effects,
    )


def _bears(alike: Alike | None) -> str:
    """Return why a record is a precedent, and the effect expected of it here."""
    if alike is None:
        return "Covers the whole change."
    text, effect = f"Covers the whole change: {alike.reason}.", alike.expected
    if effect is None:
        return text
    within = span(effect.low80, effect.high80, "speedup")
    return f"{text} Expected from this record alone: {plain(effect.speedup, 'speedup')} (80 % interval {within})."


@cache
def citable() -> tuple[tuple[ShippedPassage, Support], ...]:
    """Every line that says what a passage supports, in the order of the files."""
    passages = (passage for file in read_all() for passage in file.passages)
    return tuple((passage, support) for passage in passages for support in passage.supports)


def cite(case: Case, of: Facts) -> tuple[Citation, ...]:
    """A passage for each axis and setting that changes, the largest predicted effect first, then one for the verdict,
    where the proposal acts on it: beside the first proposal, and where nothing else is cited.

    None is cited twice: where nothing else bears on a change, the passage that is cited already says so for it, too.
    """
    cited: dict[str, Citation] = {}
    for item in (*case.changed, *_answered(case)):
        fits = supporting(item, of)
        if not fits or (item.subject == "verdict" and cited and case.rank > 1):
            continue
        fresh = [fit for fit in fits if fit[0].id not in cited]
        passage, support = fits[0] if item.subject == "verdict" or not fresh else fresh[0]
        line = f"{item.words}: {support.words}."
        if passage.id in cited:
            before = cited[passage.id]
            cited[passage.id] = replace(before, supports=f"{before.supports} {line}")
        elif len(cited) < MOST:
            cited[passage.id] = replace(citation(passage, passage.id), supports=line)
    return tuple(cited.values())


def _answered(case: Case) -> Iterator[Changed]:
    """What a proposal answers beside its changes: that nothing should change, and the verdict, if it acts on it."""
    if case.keeps:
        yield Changed("keep", "any", "Keep the current configuration", 0.0)
    primary = case.diagnosis.bottleneck.primary
    if case.keeps or case.falls(*_OF_VERDICT.get(primary, (primary,))):
        text = words.verdict_words(primary)
        yield Changed("verdict", primary, text[0].upper() + text[1:], 0.0)


def supporting(item: Changed, of: Facts) -> list[tuple[ShippedPassage, Support]]:
    """What may be cited for one change: first what helps against the verdict, then what asks most of the run, then in
    the order of the files."""
    kind, verdict = value_of(of, "kind"), value_of(of, "verdict")
    fits = [
        (passage, support)
        for passage, support in citable()
        if support.bears_on(item.subject, item.direction)
        and {kind, "any"} & set(passage.hardware)
        and support.holds(lambda name: value_of(of, name))
    ]
    return sorted(fits, key=lambda fit: (verdict not in fit[0].bottlenecks, -len(fit[1].conditions)))


def citation(passage: Any, key: str) -> Citation:
    """`book` with its section, or `knowledge` with the source of the passage; key: under which its page finds it."""
    if passage.source.startswith(BOOK):
        return Citation("book", passage.section, passage.title, excerpt_of(passage.text), passage.url, key)
    work = re.split(r"[,;:]", passage.source)[0]
    return Citation("knowledge", work, passage.title, excerpt_of(passage.text), passage.url, key)


def excerpt_of(text: str, most: int = EXCERPT) -> str:
    """Return the first sentences, as far as they fit into `most` characters; the first one whole."""
    excerpt = ""
    for sentence in _SENTENCE.split(" ".join(text.split())):
        if excerpt and len(excerpt) + len(sentence) > most:
            break
        excerpt = f"{excerpt} {sentence}".strip()
    return excerpt
