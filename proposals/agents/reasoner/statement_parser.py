"""What a message states as to be held: constraints, which need a word of necessity, facts of the run, and what is taken
back.  A question states nothing, nor does a doubt or a description; and what must differ from the current configuration
is a change to be computed.

Each part of a clause is read by itself, from the values of `notation`: it has the form of a constraint or of a fact,
or names only values and continues the part before.  Whatever has another form is not held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.config import ExperimentConfig
from proposals.agents.capabilities.configured import SETTINGS
from proposals.agents.capabilities.held import Released, Stated
from proposals.agents.mesh_completion import ROLE_WORDS, axis_of
from proposals.agents.notation import Read, written

#: What may stand before the form, `Memory:` included.
_LEAD = (
    r"^\s*(?:[\w ]{3,24}:\s+)?(?:(?:and|but|so|also|then|ok|okay|please|pls|no|wait|correction|just|always|"
    r"you (?:must|have to)|we|i)\b[\s,:]*)*"
)
_AXES = "|".join(sorted(ROLE_WORDS, key=len, reverse=True))
_CHANGED = r"(?:chang\w*|touch\w*|alter\w*|modif\w*|mov\w*)"
_KEPT = r"(?:stay|stays|be kept|keep|remain|be|have|use|hold|fit|never|not)"
#: An imperative; and who or what must, may not, can only.
_MUST = re.compile(
    _LEAD + rf"(?:keep|hold|fix|pin|freeze|leave|forbid|limit|restrict|use only|only use|no changes? (?:to|of)|no \w+ "
    rf"changes?|(?:do not|don'?t|never) (?:{_CHANGED}|use|add|set|exceed))\b"
    rf"|\b\w+ (?:must|has to|have to|needs to|need to) {_KEPT}\b"
    rf"|\b(?:cannot|can not|can'?t|may not|must not) (?:be )?(?:{_CHANGED}|exceed|use)\b"
    r"|\b(?:can|may|must|will) only\b"
    r"|\b(?:is|are) (?:frozen|fixed|pinned|locked|not negotiable|a (?:hard )?requirement)\b"
    r"|^\s*[\w ]{2,24}\bstays?(?: (?:fixed|put|as (?:it|they) (?:is|are)|the same|at))?[\s\dk,]*[.!]*\s*$",
    re.IGNORECASE,
)
_NEEDS = re.compile(
    _LEAD + r"(?:really |also )?(?:need|require|must have|must use)\b|\b(?:must|has to|have to) be\b|\brequirement\b",
    re.IGNORECASE,
)
#: `it must be 256`: a conclusion; `keep model at 4 seems odd`: a judgement of what would be kept; `need not stay`.
_NO_NECESSITY = re.compile(
    r"\b(?:it|this|that|there|they|these|those|which|what|you) (?:must|has to|have to) (?:be|have)\b"
    r"|(?<!that )(?<!which )(?<!what )(?<!how )(?<!it )(?<!they )\b(?:seems?|looks?|sounds?|feels?|appears?|makes?|is|"
    r"was|were)\b(?! (?:frozen|fixed|pinned|locked|not negotiable|a (?:hard )?requirement)\b)"
    r"|(?:\bnot|n'?t|\bno longer) (?:need|have|has|required)\b|\bneed(?:s|n'?t)? not\b",
    re.IGNORECASE,
)
_LIMITS = (
    (re.compile(r"\b(?:at most|no more than|not more than|up to|maximum|max|<=|≤|limited to|only have|"
        r"(?:we|i) have only|only use|use only|(?:not|never) exceed)\b", re.IGNORECASE), "at_most"),
    (re.compile(r"\b(?:at least|no less than|not below|minimum|>=|≥)\b", re.IGNORECASE), "at_least"),
)  # fmt: skip
#: What there is to use: a limit that binds, whatever follows.
_OWNED = re.compile(r"\b(?:we|i)(?:'ve)? (?:only )?(?:have|get|got|own|can (?:only )?use)\b", re.IGNORECASE)
_HELD = r"(?:constraint|condition|limit|restriction|requirement|fact|margin|assumption|what i (?:said|told))s?\b"
_FORGET = re.compile(
    _LEAD + r"(?:(?:forget|undo|lift|release|take back)\b(?!.*\b(?:instructions?|rules|prompts?)\b)"
    rf"|(?:drop|remove|scrap|clear)\b.*\b{_HELD})|\bmay change again\b|\bis free again\b",
    re.IGNORECASE,
)
#: A fact begins with what it is of; a sentence about something else that happens to hold a value states none.
_FACT = re.compile(
    _LEAD + r"(?:(?:the|our|my) )?(?:(?:model|global batch|batch(?: size)?|optimi[sz]er|precision|remat|sequence "
    r"length|seq[_ ]len|sequences?|context|usable|hbm|memory|micro-?batch\w*)\b[^,;]{0,25}(?:\b(?:is|are|was|has|"
    r"have|uses?)\b|[=:])|(?:set|assume)\b|(?:it'?s|it is|this is)\b|(?:train|run)\b|(?:only )?[\d.]+ ?GB\b"
    r"[^,;]{0,20}\busable\b)",
    re.IGNORECASE,
)  # fmt: skip
#: Who doubts, or tells what others think, states nothing.
_DOUBT = re.compile(
    r"\b(?:i think|i guess|i suppose|maybe|perhaps|probably|likely|apparently|seems?|looks like|afaik|would like|"
    r"you (?:say|said|want|show|claim|use|have|print|keep|hold)|(?:says?|said) that|predicted|measured)\b",
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
    r"would|will|has|have you|show|compare|explain|tell|give|price|predict|try|take|combine|list)\b(?! not| back)"
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
#: Where a clause comes in parts, and the words of a part that names values and nothing else.
_BUT = re.compile(r"\s*but\b", re.IGNORECASE)
_BETWEEN = re.compile(r"(?P<cut>,\s+(?:and\s+)?|;|\s+(?=but\s)|\s+\band\s+(?=(?:we|i|the)\b))", re.IGNORECASE)
_PLAIN = re.compile(
    rf"\b(?:{_AXES}|a|an|the|our|my|is|are|at|of|in|to|and|or|with|per|each|it'?s|model|global|batch|size|seq\w*|"
    r"length|tokens?|context|chips?|gpus?|devices?|ax[ei]s|mesh|remat\w*|recompute|checkpointing|weights?|sharding|"
    r"micro\w*|accumulation|flags?|precision|optimi[sz]er|hbm|memory|free|only|most|least|more|less|than|no|not|max\w*|"
    r"min\w*|up|please|pls|too|also|\w{1,2})\b",
    re.IGNORECASE,
)


def asks(text: str) -> bool:
    """Whether a clause asks or supposes."""
    return bool("?" in text or _ASKS.search(text) or _HYPOTHESIS.search(text))


def statement(read: Read, config: ExperimentConfig) -> Stated | Released | None:
    """What a clause holds or takes back; None where it asks, doubts, supposes, or has no such form.

    config: the current configuration, by whose axes words are read.
    """
    text = read.text.strip()
    if _FORGET.search(text) and "?" not in text:
        return _released(read, config.mesh)
    if asks(text) or _DOUBT.search(text):
        return None
    held: dict[str, Any] = {}
    for part, form in _formed(list(_parts(read)), config):
        if form == "fact":
            held |= _facts(part)
        elif form:
            stated = _constraints(part, config, form == "keep")
            if stated is None:
                return None
            held |= stated
        elif _is_bare(part) and part.values:
            return None
    return Stated(**held, sentence=text[:300]) if held else None


def _parts(read: Read) -> Iterator[Read]:
    """The parts of a clause, cut where no value stands; that behind a `but` begins with it."""
    text, start = read.text, 0
    cuts = [match.span("cut") for match in _BETWEEN.finditer(text)]
    whole = [cut for cut in cuts if not any(v.start < cut[1] and v.end > cut[0] for v in read.values)]
    for end, after in (*whole, (len(text), len(text))):
        values = tuple(
            replace(v, start=v.start - start, end=v.end - start) for v in read.values if start <= v.start < end
        )
        if text[start:end].strip():
            yield Read(values, "", text[start:end])
        start = after


def _is_bare(part: Read) -> bool:
    """Whether a part names values, axes or settings and says nothing of them."""
    return not re.search(r"[^\W\d_]{2,}", _PLAIN.sub(" ", part.rest))


def _formed(parts: list[Read], config: ExperimentConfig) -> list[tuple[Read, str]]:
    """Each part with its form: its own, or, where it says nothing, that of the part before or the first behind it."""
    forms: list[str] = []
    for part in parts:
        first = all(form in ("", "fact") for form in forms) and all(map(_is_bare, parts[: len(forms)]))
        before = "" if not forms or _BUT.match(part.text) else forms[-1]
        own = _necessity(part) or ("fact" if (first or before == "fact") and _FACT.search(part.text) else "")
        forms.append(own or (before if _is_bare(part) else ""))
    known = next((n for n, form in enumerate(forms) if form), None)
    if known is None:  # values alone: facts, where the configuration leaves all of them open
        named = {name for part in parts for name in part.names}
        opens = named <= {*_FACTS, "number", "quantity"} and all(_ran(config, n) is None for n in named & {*_FACTS})
        return [(part, "fact" if opens and all(map(_is_bare, parts)) else "") for part in parts]
    if not _BUT.match(parts[known].text) and all(map(_is_bare, parts[:known])):
        forms[:known] = [forms[known]] * known
    return list(zip(parts, forms, strict=True))


def _necessity(part: Read) -> str:
    """`keep` where a part says that something must stay, `bound` where it says another necessity."""
    text = part.text
    if _NO_NECESSITY.search(text):
        return ""
    if _MUST.search(text):
        return "keep"
    limits = _limit(text, ()) and (_is_bare(part) or _OWNED.search(text))
    no_flags = re.match(_LEAD + r"(?:no|without)\b.*\bflags?\b", text, re.IGNORECASE) and _is_bare(part)
    binds = limits or no_flags or any(form.search(text) for form in (_NEEDS, _WITHIN, _OUT))
    return "bound" if binds else ""


def _facts(part: Read) -> dict[str, Any]:
    facts = {name: part.of(name)[0] for name in _FACTS if part.of(name)}
    usable = re.search(r"\b(?:usable|available)\b", part.text, re.IGNORECASE)
    if usable and part.of("bytes"):
        facts["usable_hbm_gb"] = part.of("bytes")[0] / 1e9
    return facts


def _constraints(part: Read, config: ExperimentConfig, keeps: bool) -> dict[str, Any] | None:
    """What a part holds; None where it needs what does not run, which is a change to be computed."""
    text = part.text
    held: dict[str, Any] = {}
    axes = list(dict.fromkeys(axis for axis in _axes(part, config.mesh) if axis))
    if re.search(r"\b(?:the|our|my) mesh\b", text, re.IGNORECASE) and keeps:
        axes = [axis for axis, _ in config.mesh.ici]
    limited = any(pattern.search(text) for pattern, _ in _LIMITS)
    for key, pattern in _THINGS if keeps or re.search(r"\bflags?\b", text, re.IGNORECASE) else ():
        if re.search(pattern, text, re.IGNORECASE) and not part.of(key.removeprefix("keep_")):
            held[key] = True
    if _WITHIN.search(text) and axes:
        kept = {axis_of(config.mesh, role) or role for role in ("data", "fsdp", "seq", "model", "expert", "pipeline")}
        held["at_most"] = ", ".join(f"{axis}=1" for axis in sorted(kept - set(axes)))
    elif keeps and axes and not part.of("mesh") and not limited:
        held["keep_axes"] = tuple(axes)
    for sizes in part.of("mesh")[:1]:
        by_limit: dict[str, dict[str, int]] = {}
        for axis, size in sizes.ici.items():
            by_limit.setdefault(_limit(text, (size,)), {})[axis] = size
        meshes = {limit: replace(sizes, ici=own) for limit, own in by_limit.items()} or {_limit(text, ()): sizes}
        held |= {limit or "fixed": written(own) for limit, own in meshes.items()}
    if part.of("chips") and _limit(text, part.of("chips")) == "at_most":
        held["at_most_chips"] = part.of("chips")[0]
    if re.search(r"\b(?:memory|hbm)\b", text, re.IGNORECASE):
        if part.of("share") and re.search(r"\b(?:free|headroom|spare|reserve|margin)\b", text, re.IGNORECASE):
            held["memory_free_percent"] = min(part.of("share")[0] * 100, 50.0)
        if part.of("bytes") and limited:
            held["usable_hbm_gb"] = part.of("bytes")[0] / 1e9
    if _OUT.search(text) and part.of("proposal"):
        held["exclude"] = tuple(part.of("proposal"))
    for name in _FACTS:
        for value in part.of(name)[:1]:
            ran = _ran(config, name)
            if ran is None:  # there is nothing that the value could change
                held[name] = value
            elif value == ran and f"keep_{name}" in Stated.model_fields:
                held[f"keep_{name}"] = True
            else:
                return None
    return held


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
