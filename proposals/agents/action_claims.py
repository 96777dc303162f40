"""What an answer may not claim to have happened: agents act on nothing, so no sentence says that something was done."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from proposals.agents.grounding_claims import sentences
from proposals.agents.workbench import ProposalState

_DONE = re.compile(
    r"\b(?P<what>approved|rejected|launched|submitted|deployed|merged|deleted|uploaded|scheduled|applied|added|stored)\b",
    re.IGNORECASE,
)
#: Words that make of it a rule, a wish or a condition, and no claim.
_NOT_A_CLAIM = re.compile(
    r"\b(?:not|never|no|none|nobody|cannot|can|could|may|might|must|should|would|will|only|until|unless|once|if|when|"
    r"whether|before|after|to be|needs?|yet|by a rule|broke)\b|n't\b",
    re.IGNORECASE,
)
#: What a program does by itself: `1,204 kernels launched per step`, `the ops are scheduled late`.
_OF_A_PROGRAM = (
    r"(?:kernels?|ops?|operations?|fusions?|instructions?|collectives?|all-\w+|matmuls?|GEMMs?|copy|copies|transfers?|"
    r"streams?|graphs?|memcpys?)\b"
)
_THEY_ARE = re.compile(
    rf"\b{_OF_A_PROGRAM}(?:\s+(?:that|which|is|are|was|were|be|been|being|gets?|have|has|all|\w+ly))*\s+$",
    re.IGNORECASE,
)
_DOES_THEM = re.compile(
    r"\s+(?:(?!(?:and|to|with|for|on|it|them|runs?|jobs?|trials?|proposals?|campaigns?)\b)[\w,.%-]+\s+){0,3}?"
    + _OF_A_PROGRAM,
    re.IGNORECASE,
)
#: Who answers, and not the letter of `i.e.` or `(i)`.
_WHO = re.compile(r"\bI\b|\b[Ww]e\b")
_PROPOSAL = re.compile(r"\bproposals?\s+(\d{1,9})\b", re.IGNORECASE)
_I = re.compile(r"\b(?:I|[Ww]e|have|has|is|are|was|were|been|now|hereby|status)\b")


def claimed_actions(text: str, proposals: Sequence[ProposalState]) -> Iterator[str]:
    """A complaint per sentence that says something was done, which no person did."""
    decided = {item.proposal.rank: item.status for item in proposals}
    for sentence in sentences(text):
        said = sentence.text
        if _NOT_A_CLAIM.search(said) or not _I.search(said):
            continue
        for match in _DONE.finditer(said):
            what = match["what"].lower()
            if what in ("approved", "rejected"):
                named = [int(number) for number in _PROPOSAL.findall(said)]
                if not all([decided.get(number) == what for number in named] or [what in decided.values()]):
                    yield f"“{said.strip()[:120]}” is not so: only a reviewer can have {what} it, on the page."
                    break
            elif _WHO.search(said, 0, match.start()) and not _by_the_program(said, match):
                yield f"“{said.strip()[:120]}” is not so: you cannot act, only a person can."
                break


def _by_the_program(text: str, act: re.Match[str]) -> bool:
    return bool(_THEY_ARE.search(text[: act.start()]) or _DOES_THEM.match(text[act.end() :]))
