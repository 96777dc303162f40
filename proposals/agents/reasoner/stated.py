"""What a message states as to be held: constraints in the imperative or as a necessity, facts of the run, and what is
taken back.  A question states nothing, a doubt neither; and what must differ from what ran is a change to be computed.

A strict form each, read from the values of `notation`; whatever has another form is not held.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfmodel.config import ExperimentConfig
from proposals.agents.capabilities.configured import SETTINGS
from proposals.agents.capabilities.held import Released, Stated
from proposals.agents.filling import ROLE_WORDS, axis_of
from proposals.agents.notation import Read, written

_LEAD = r"^(?:(?:and|but|so|also|then|ok|okay|please|pls|no|wait|constraint|correction|hard requirement)\b[\s,:]*)*"
_AXES = "|".join(sorted(ROLE_WORDS, key=len, reverse=True))
#: What stays as it is: an imperative, or a condition with `must` or `cannot`.
_KEEP = re.compile(
    _LEAD + r"(?:keep|hold|fix|pin|freeze|leave|(?:do not|don'?t|never) (?:touch|change|alter|modify)|no changes? "
    r"(?:to|of))\b"
    r"|\b(?:must|has to|have to|needs? to) (?:stay|stays|be kept|remain|not change)\b"
    r"|\b(?:cannot|can not|can'?t|may not|must not) (?:be )?(?:chang\w*|touch\w*|alter\w*)\b"
    r"|\b(?:is|are) (?:frozen|fixed|pinned|locked|not negotiable|hard[- ]wired)\b|\bstays?\b(?! on| with)",
    re.IGNORECASE,
)
_NEEDS = re.compile(r"\b(?:need|require|must have|must be|has to be|have to be|must use|requirement)\b", re.IGNORECASE)
_LIMITS = (
    (re.compile(r"\b(?:at most|no more than|not more than|up to|maximum|max|<=|≤|limited to|only have|"
        r"(?:we|i) have only|only use|use only)\b", re.IGNORECASE), "at_most"),
    (re.compile(r"\b(?:at least|no less than|not below|minimum|>=|≥)\b", re.IGNORECASE), "at_least"),
)  # fmt: skip
_HELD = r"(?:constraint|condition|limit|restriction|requirement|fact|margin|assumption|what i (?:said|told))s?\b"
_FORGET = re.compile(
    _LEAD + rf"(?:(?:forget|undo|lift|release|take back)\b|(?:drop|remove|scrap|clear)\b.*\b{_HELD})"
    r"|\bmay change again\b|\bis free again\b",
    re.IGNORECASE,
)
#: A fact begins with what it is of; a sentence about something else that happens to hold a value states none.
_FACT = re.compile(
    _LEAD + r"(?:(?:the|our|my) )?(?:(?:model|global batch|batch(?: size)?|optimi[sz]er|precision|remat|sequence "
    r"length|seq[_ ]len|sequences?|context|usable|hbm|memory|micro-?batch\w*)\b[^,;]{0,25}(?:\b(?:is|are|was|has|"
    r"have|uses?)\b|[=:])|(?:set|assume)\b|we (?:train|run)\b)",
    re.IGNORECASE,
)  # fmt: skip
#: Who doubts, or tells what others think, states nothing.
_DOUBT = re.compile(
    r"\b(?:i think|i guess|i suppose|maybe|perhaps|probably|likely|apparently|seems?|looks like|afaik|would like|"
    r"you (?:say|said|want|show|claim|use|have|print)|(?:says?|said) that|predicted|measured)\b",
    re.IGNORECASE,
)
_WITHIN = re.compile(r"\b(?:within|only)\b[\w\s,&]*\baxes\b|\baxes\b[\w\s]*\bonly\b", re.IGNORECASE)
_OUT = re.compile(r"\b(?:rule out|exclude|leave out|not an option|out of the question)\b", re.IGNORECASE)
_HYPOTHESIS = re.compile(
    r"\b(?:what if|what about|how about|suppose|assum(?:e|ing)|would|could|imagine|should|if "
        r"(?:i|we|you|the|it|heads))\b", re.IGNORECASE
)  # fmt: skip
_ASKS = re.compile(
    r"\?\s*$|^(?:and |but |so |then |ok |also "
    r")*(?:what|which|why|how|when|where|who|is|are|does|do|did|can|could|should|"
    r"would|will|has|have you|show|compare|explain|tell|give|price|predict|try|combine|list)\b(?! not)"
    r"|\b(?:give|tell|show) me\b|\b(?:which|what|how (?:much|many|far|long))\b|\bworth it\b",
    re.IGNORECASE,
)
_THINGS = (
    ("keep_batch", r"\bbatch(?!es)"), ("keep_remat", r"\bremat|\brecompute|\bcheckpointing"),
    ("keep_weight_sharding", r"\bweight[- _]?sharding|\bweights?\b"),
    ("keep_micro_batches", r"\bmicro[- ]?batch|\baccumulation"), ("no_flags", r"\bflags?\b"),
)  # fmt: skip
_TOLD = {
    "keep_batch": ("training.global_batch",), "keep_remat": ("training.remat",),
    "keep_micro_batches": ("training.grad_accum",), "keep_weight_sharding": ("training.weight_sharding",),
}  # fmt: skip
_FACTS = ("model_name", "batch", "seq_len", "micro_batches", "remat", "precision", "weight_sharding")


def asks(text: str) -> bool:
    """Whether a clause asks or supposes."""
    return bool("?" in text or _ASKS.search(text) or _HYPOTHESIS.search(text))


def statement(read: Read, config: ExperimentConfig) -> Stated | Released | None:
    """What a clause holds or takes back; None where it asks, doubts, supposes, or has no such form.

    config: what ran, by whose axes words are read.
    """
    text, axes_of = read.text.strip(), config.mesh
    if _FORGET.search(text) and "?" not in text:
        return _released(read, axes_of)
    if asks(text) or _DOUBT.search(text):
        return None
    facts: dict[str, Any] = {}
    axes = [axis for axis in _axes(read, axes_of) if axis]
    keeps = bool(_KEEP.search(text))
    if keeps:
        facts |= {key: True for key, pattern in _THINGS if re.search(pattern, text, re.IGNORECASE)}
        facts = {key: True for key in facts if not read.of(key.removeprefix("keep_"))}
        if re.search(r"\b(?:the|our|my) mesh\b", text, re.IGNORECASE):
            axes = [axis for axis, _ in axes_of.ici]
        if (
            axes
            and not read.of("mesh")
            and not _WITHIN.search(text)
            and not any(pattern.search(text) for pattern, _ in _LIMITS)
        ):
            facts["keep_axes"] = tuple(dict.fromkeys(axes))
    if _WITHIN.search(text) and axes:
        kept = {axis_of(axes_of, role) or role for role in ("data", "fsdp", "seq", "model", "expert", "pipeline")}
        facts["at_most"] = ", ".join(f"{axis}=1" for axis in sorted(kept - set(axes)))
    for sizes in read.of("mesh")[:1]:
        by_limit: dict[str, dict[str, int]] = {}
        for axis, size in sizes.ici.items():
            by_limit.setdefault(_limit(text, (size,)), {})[axis] = size
        meshes = {limit: replace(sizes, ici=own) for limit, own in by_limit.items()} or {_limit(text, ()): sizes}
        for limit, own in meshes.items():
            if limit or keeps or _NEEDS.search(text):
                facts[limit or "fixed"] = written(own)
    if read.of("chips") and _limit(text, read.of("chips")) == "at_most":
        facts["at_most_chips"] = read.of("chips")[0]
    if re.search(r"\b(?:no|not|never|without)\b.*\bflags?\b", text, re.IGNORECASE):
        facts["no_flags"] = True
    if re.search(r"\b(?:memory|hbm)\b", text, re.IGNORECASE):
        if read.of("share") and re.search(r"\b(?:free|headroom|spare|reserve|margin)\b", text, re.IGNORECASE):
            facts["memory_free_percent"] = min(read.of("share")[0] * 100, 50.0)
        if read.of("bytes") and re.search(r"\b(?:usable|only|is|of)\b", text, re.IGNORECASE):
            facts["usable_hbm_gb"] = read.of("bytes")[0] / 1e9
    if _OUT.search(text) and read.of("proposal"):
        facts["exclude"] = tuple(read.of("proposal"))
    for name, values in ((name, read.of(name)) for name in _FACTS):
        if not values or name in facts:
            continue
        # Where the configuration leaves it open, there is nothing that a value could change: it is a fact.
        if _ran(config, name) is None or (_FACT.search(text) and not keeps and not _NEEDS.search(text)):
            facts[name] = values[0]
        elif keeps or _NEEDS.search(text):  # what ran is kept; another value is a change, and none of these constraints
            if values[0] != _ran(config, name) or f"keep_{name}" not in Stated.model_fields:
                return None
            facts[f"keep_{name}"] = True
    return Stated(**facts, sentence=text[:300]) if facts else None


def _limit(text: str, sizes: Sequence[int]) -> str:
    """`at_most` or `at_least` where the part of the text with one of the sizes says so; empty for neither."""
    written_as = re.compile(r"(?<!\d)(?:" + "|".join(map(str, sizes)) + r")(?!\d)")
    near = next((part for part in re.split(r"[,;]|\band\b", text) if sizes and written_as.search(part)), text)
    return next((name for pattern, name in _LIMITS if pattern.search(near)), "")


def _ran(config: ExperimentConfig, name: str) -> Any:
    key = SETTINGS.get(name)
    return getattr(config.training, key) if key else (config.model.name if config.model else None)


def _axes(read: Read, mesh: Any) -> list[str | None]:
    # An input or data pipeline, and a data loader, are no axes.
    words = re.findall(
        rf"(?<!\binput )(?<!\bdata )\b({_AXES}|{'|'.join(re.escape(a) for a, _ in mesh.ici) or 'data'})\b"
        r"(?!\s?(?:length|len\b|pipeline|load|set))",
        read.text,
        re.IGNORECASE,
    )
    return [*read.of("axis"), *(axis_of(mesh, word) for word in words)]


def _released(read: Read, mesh: Any) -> Released:
    text = read.text
    named = [key for key, pattern in _THINGS if re.search(pattern, text, re.IGNORECASE)]
    what = [*named, *(path for key in named for path in _TOLD.get(key, ()))]
    if re.search(r"\bmemory\b|\bhbm\b|\bmargin\b", text, re.IGNORECASE):
        what += ["memory_margin", "hardware.overrides.hbm_bytes"]
    if re.search(r"\bchips?\b|\bgpus?\b", text, re.IGNORECASE):
        what.append("at_most_chips")
    if re.search(r"\blength\b|\bcontext\b", text, re.IGNORECASE):
        what.append("training.seq_len")
    axes = [axis for axis in _axes(read, mesh) if axis]
    if axes and not what:
        return Released(what=("keep_axes", "fixed", "at_least", "at_most"), axis=axes[0])
    if re.search(r"\bmodel\b", text, re.IGNORECASE) and not axes:
        what.append("model.name")
    return Released(what=tuple(what))
