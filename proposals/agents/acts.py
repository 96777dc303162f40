"""What an answer may not claim to have happened: agents act on nothing, so no sentence says that something was done."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from proposals.agents.grounding_claims import sentences
from proposals.agents.workbench import Standing

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
_PROPOSAL = re.compile(r"\bproposals?\s+(\d{1,9})\b", re.IGNORECASE)
_I = re.compile(r"\b(?:I|we|have|has|is|are|was|were|been|now|hereby|status)\b")


def claimed_acts(text: str, proposals: Sequence[Standing]) -> Iterator[str]:
    """A complaint per sentence that says something was done, which no person did."""
    decided = {item.proposal.rank: item.status for item in proposals}
    for sentence in sentences(text):
        match = _DONE.search(sentence.text)
        if match is None or _NOT_A_CLAIM.search(sentence.text) or not _I.search(sentence.text):
            continue
        what = match["what"].lower()
        named = [int(number) for number in _PROPOSAL.findall(sentence.text)]
        if what in ("approved", "rejected"):
            backed = [decided.get(number) == what for number in named] or [what in decided.values()]
            if all(backed):
                continue
            yield f"“{sentence.text.strip()[:120]}” is not so: only a reviewer can have {what} it, on the page."
        elif re.search(rf"\b(?:I|we)\b.*\b{what}\b", sentence.text, re.IGNORECASE):
            yield f"“{sentence.text.strip()[:120]}” is not so: you cannot act, only a person can."
