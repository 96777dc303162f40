"""Facts and constraints in the user's words, and those that the words take back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from perfmodel.catalogue import get_model, load_catalogue
from perfmodel.config import ConfigError, ExperimentConfig
from proposals.agents.reasoner.axes import TAIL, axis_of, words_for
from proposals.agents.reasoner.figures import count, size_bytes
from proposals.agents.reasoner.meshes import MeshWords
from proposals.constraints import MOST_MARGIN, Constraints
from proposals.facts import setting

#: Share of memory kept free where it is said to be tight and no share is named.
TIGHT = 0.1


@dataclass(frozen=True)
class Told:
    """What the words hold fast (keys of `Constraints.to_json`), facts by configuration path, and what they take back.

    exclude: numbers of proposals that are ruled out.  ambiguous: (words, names of the models they may mean).
    chips: a number of chips that was asked for.  sentences: by key or path, what was said.
    """

    constraints: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    exclude: tuple[int, ...] = ()
    ambiguous: tuple[tuple[str, tuple[str, ...]], ...] = ()
    sentences: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.constraints or self.facts or self.dropped or self.exclude or self.ambiguous)

    def and_(self, other: Told) -> Told:
        constraints = dict(self.constraints)
        for key, value in other.constraints.items():
            before = constraints.get(key)
            if isinstance(before, dict):
                value = {**before, **value}
            elif isinstance(before, list):
                value = [*before, *(item for item in value if item not in before)]
            constraints[key] = value
        return replace(
            self,
            constraints=constraints,
            facts={**self.facts, **other.facts},
            dropped=tuple(dict.fromkeys((*self.dropped, *other.dropped))),
            exclude=(*self.exclude, *other.exclude),
            ambiguous=(*self.ambiguous, *other.ambiguous),
            sentences={**self.sentences, **other.sentences},
        )


_HYPOTHETICAL = re.compile(
    r"\b(?:what if|how about|what about|suppose|assuming|assume|would|could|if (?:i|we|you|the|it)|imagine|"
    r"say we|try|tried)\b"
)
_QUESTION = re.compile(
    r"^(?:and |but |so |then |ok |okay |also |well )*(?:what|which|why|how|when|where|who|is|are|does|do "
    r"you|do we|did|can|could|should|"
    r"would|will|has|have you|show|compare|explain|tell|price|predict|evaluate|estimate|try)\b"
)
HOLDING = re.compile(
    r"\b(?:keep|keeps|kept|hold|fix|fixed|must|has to|have to|needs? to|stays?|leave|lock|locked|pinned|"
    r"freeze|frozen|unchanged|"
    r"do not (?:touch|change|alter|modify)|not (?:touch|change)|without (?:touching|changing)|"
    r"no changes? (?:to|of|in)|never change|hands off|not negotiable|non-negotiable|can not (?:be "
    r")?(?:change|touch)\w*)\b"
)
_BACK = re.compile(
    r"\b(?:forget|drop|remove|undo|lift|release|take back|scrap|clear|reset|cancel|never ?mind|no longer|"
    r"not any ?more|ignore|"
    r"may change again|can change again|is flexible|are flexible|is free again|can be changed|may change|"
    r"is allowed to change)\b"
)
_THINGS = re.compile(
    r"\b(?:constraint|constraints|fact|facts|condition|conditions|requirement|requirements|restriction|limit|"
    r"margin|assumption|"
                     r"what i (?:said|told)|everything|batch|seq|sequence|remat|flags?|memory|model|data|"
                     r"chips|that)\b")  # fmt: skip
_STATES = re.compile(
    r"\b(?:is|are|was|were|use|uses|using|have|has|train|trains|training|run|runs|with|only|it is|about)\b"
)
_NEGATIVE = re.compile(
    r"\b(?:can not|must not|do not want|do not|never|not allowed to|may not|no way to) (?:use|have|do|run|"
    r"allow|want|afford)\b"
)
_MARGIN = re.compile(
    r"\b(\d{1,2})\s?(?:%|percent)\s?(?:of )?(?:the |my |our )?(?:memory |hbm |headroom|free|margin|spare|"
    r"reserve)"
)
_TIGHT = re.compile(
    r"\b(?:memory|hbm)\b.{0,20}\b(?:tight|scarce|short|nearly full|almost full|close to (?:the|its) limit|"
    r"near (?:the|its) limit|"
    r"at (?:the|its) limit|near full|a concern|critical)\b|\b(?:tight|short|low) (?:on|of) (?:memory|hbm)\b|"
    r"\bnear (?:the )?(?:memory|hbm) limit\b|\b(?:nearly|almost|about to|close to)\b.{0,15}\b(?:oom|out of memory)\b"
)
_LIMIT = re.compile(
    r"\b(?:at most|no more than|not more than|maximum(?: of)?|up to|below|only have|only got|limited to|<=|"
    r"≤)\s(?P<n>\d[\d,]*)\s(?:chips|tpus|gpus|devices)\b"
    r"|\bonly (?:have |got )?(?P<m>\d[\d,]*) (?:chips|tpus|gpus)\b"
)
HBM = re.compile(r"(\d+(?:\.\d+)?\s?[gt]i?b)\b")
_SAID = (
    (r"\bbatch", "keep_batch", HOLDING),
    (r"\bremat\b|\brecompute", "keep_remat", HOLDING),
    (r"\bweights?[- _]shard|\bweights? (?:stay|as they)|\bfsdp as", "keep_weight_sharding", HOLDING),
    (r"\bmicro[- ]?batch|\baccumulation", "keep_micro_batches", HOLDING),
    (r"\bflags?\b", "no_flags", re.compile(
        rf"{HOLDING.pattern}|\bno (?:new |other |xla |more |extra )?(?:xla )?flags?\b|\bwithout (?:any "
        rf")?(?:xla )?flags\b")),
)  # fmt: skip


def read(
    clause: str,
    config: ExperimentConfig,
    settings: Mapping[str, Any],
    mesh: MeshWords,
    numbers: tuple[int, ...],
    held: Constraints,
    facts: Mapping[str, Any],
) -> Told:
    """What one clause of plain words tells.  settings, mesh, numbers: what it names; held, facts: what stands."""
    if _BACK.search(clause) and _THINGS.search(clause) and not re.search(r"\?|^(?:what|why|how)\b", clause):
        if taken := _taken_back(clause, config, held, facts):
            return taken
        if re.search(r"\b(?:constraint|condition|fact|restriction|everything)s?\b", clause):
            return Told()
    asks = clause.rstrip().endswith("?") or _QUESTION.search(clause)
    if asks or _HYPOTHETICAL.search(clause):
        return Told()
    found = Told(*_constraints(clause, config, settings, mesh, numbers))
    found = replace(found, exclude=numbers if _rules_out(clause) else ())
    told, ambiguous = _facts(clause, config, settings)
    found = replace(found, facts=told, ambiguous=ambiguous)
    return replace(found, sentences=dict.fromkeys((*found.constraints, *found.facts), clause))


def held_fast(key: str, sentence: str) -> Told:
    """What is told by a sentence that means this constraint without naming it."""
    key, value = ("memory_margin", TIGHT) if key == "memory_tight" else (key, True)
    return Told(constraints={key: value}, sentences={key: sentence})


def _rules_out(clause: str) -> bool:
    return bool(
        re.search(
            r"\b(?:rule out|exclude|leave out|not an option|out of the question|impossible for us|can not do)\b", clause
        )
    )


def _constraints(
    clause: str, config: ExperimentConfig, settings: Mapping[str, Any], mesh: MeshWords, numbers: tuple[int, ...]
) -> tuple[dict[str, Any]]:
    found: dict[str, Any] = {}
    holding = bool(HOLDING.search(clause))
    for pattern, key, form in _SAID:
        if re.search(pattern, clause) and form.search(clause) and not (key == "keep_batch" and "micro" in clause):
            found[key] = True
    if "keep_batch" in found and re.search(r"\bmicro", clause):
        found["keep_micro_batches"] = True
    if _rules_out(clause) and mesh.ici and not numbers:
        found["excluded"] = [{"ici": {**dict(config.mesh.ici), **mesh.ici}}]
        return (found,)
    names = "|".join(re.escape(word) for word in words_for(config.mesh))
    for match in re.finditer(
        rf"\b({names}){TAIL}\s(?:axis )?(?:(?:must|should|can|may|has to|is|stay|stays|be|not)\s)*"
        r"(at most|no more than|not more than|maximum|not above|not exceed|up to|<=|≤|at least|no less "
        r"than|minimum|not below|>=|≥)\s?(?:of )?(\d+)",
        clause,
    ):
        low = match[2] in ("at least", "no less than", "minimum", "not below", ">=", "≥")
        if axis := axis_of(config.mesh, match[1]):
            found.setdefault("at_least" if low else "at_most", {})[axis] = int(match[3])
    for match in re.finditer(
        rf"\b(at most|no more than|at least) (\d+)(?:-| )?(?:way )?(?:on )?(?:the )?({names}){TAIL}\b", clause
    ):
        if axis := axis_of(config.mesh, match[3]):
            found.setdefault("at_least" if match[1] == "at least" else "at_most", {})[axis] = int(match[2])
    bounded = {axis for key in ("at_least", "at_most") for axis in found.get(key, {})}
    if mesh.ici and (holding or re.search(r"\b(?:please|allowed|only)\b", clause)) and not bounded:
        found["fixed"] = dict(mesh.ici)
    elif holding and not settings and not bounded:
        axes = [
            axis_of(config.mesh, m[1])
            for m in re.finditer(rf"\b({names}){TAIL}\b(?!\s?(?:length|len|batch|is \d))", clause)
        ]
        if re.search(r"\b(?:the|my|our) mesh\b", clause):
            axes = [axis for axis, _ in config.mesh.ici]
        kept = [axis for axis in dict.fromkeys(axes) if axis is not None]
        if kept and not (_about_model(clause) and kept == ["model"]):
            found["keep_axes"] = kept
    if _NEGATIVE.search(clause) and not mesh.ici:
        for match in re.finditer(rf"\b({names}){TAIL}\b", clause):
            if axis := axis_of(config.mesh, match[1]):
                found.setdefault("fixed", {})[axis] = 1
    if margin := _MARGIN.search(clause):
        found["memory_margin"] = min(int(margin[1]) / 100.0, MOST_MARGIN)
    elif _TIGHT.search(clause) and not re.search(
        r"\bnot? (?:a |very |that |so )?(?:tight|concern|near|close|critical)\b", clause
    ):
        found["memory_margin"] = TIGHT
    if limit := _LIMIT.search(clause):
        found["at_most_chips"] = count(limit["n"] or limit["m"])
    return ({key: value for key, value in found.items() if _possible(key, value)},)


def _possible(key: str, value: Any) -> bool:
    """Whether a constraint can hold at all: none of zero chips, or of an axis of size 0."""
    try:
        Constraints.from_json({key: value})
    except ConfigError:
        return False
    return True


def _about_model(clause: str) -> bool:
    """Whether `model` means what is trained and not the axis."""
    return (
        bool(re.search(r"\bmodel (?:is|name|size|has)\b|\bthe model (?:must|stays)\b.*\d+b\b", clause))
        and "axis" not in clause
    )


def _facts(
    clause: str, config: ExperimentConfig, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[tuple[str, tuple[str, ...]], ...]]:
    found: dict[str, Any] = {}
    training = config.training
    states = _STATES.search(clause) or HOLDING.search(clause)
    for key, value in settings.items():
        # `batch = 256` alone tells what nobody knew, and otherwise asks what it would do.
        new = states or (re.search(r"[=:]", clause) and getattr(training, key) is None)
        if new and key != "xla_flags" and getattr(training, key) != value:
            found[f"training.{key}"] = value
    ambiguous: tuple[tuple[str, tuple[str, ...]], ...] = ()
    names = models_named(clause)
    if len(names) == 1:
        if config.model is None or config.model.name != names[0]:
            found["model.name"] = names[0]
    elif names:
        alike = same_shape(names)
        if alike:
            found["model.name"] = names[-1]
        ambiguous = ((_size_words(clause), names),)
    if re.search(r"\b(?:hbm|memory|usable)\b", clause) and (size := HBM.search(clause)):
        value = size_bytes(size[1]) or 0.0
        if 1e9 <= value <= 1e13:
            found["hardware.overrides.hbm_bytes"] = value
    return found, ambiguous


def _size_words(clause: str) -> str:
    match = _SIZE.search(clause)
    return match[0] if match else clause


_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s?(?:b|billion)\b(?:[- ](?:parameters?|params|model))?")
_FAMILIES = (
    "llama",
    "gemma",
    "qwen",
    "mistral",
    "mixtral",
    "deepseek",
    "gpt",
    "kimi",
    "nemotron",
    "maxtext",
    "megatron",
    "alpa",
)


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """A pattern per model of the catalogue: its name with any hyphens and spaces between letters and figures."""
    found = []
    for name in sorted(load_catalogue(), key=len, reverse=True):
        parts = re.findall(r"[a-z]+|\d+(?:\.\d+)?", name)
        found.append((name, re.compile(r"(?<![\w.])" + r"[\s\-_.v]*".join(map(re.escape, parts)) + r"(?![\w.]*\d)")))
    return tuple(found)


def models_named(clause: str) -> tuple[str, ...]:
    """Models of the catalogue that words may mean: one by its name, several by a size alone (`70B`)."""
    for name, pattern in _patterns():
        if pattern.search(clause.lower()):
            return (name,)
    size = _SIZE.search(clause)
    family = next((each for each in _FAMILIES if re.search(rf"\b{each}", clause)), "")
    about = family or re.search(r"\b(?:model|parameters?|params|it is|train|training|weights)\b", clause)
    if size is None or not about:
        return ()
    ending = re.compile(rf"-{re.escape(size[1])}b\b")
    return tuple(name for name in load_catalogue() if ending.search(name) and name.startswith(family))


def same_shape(names: tuple[str, ...]) -> bool:
    """Whether the models differ in nothing that a step's time follows much: all but the vocabulary."""
    shapes = {(m.layers, m.d_model, m.d_ff, m.heads, m.kv_heads, m.experts) for m in map(get_model, names)}
    return len(shapes) == 1


def _taken_back(clause: str, config: ExperimentConfig, held: Constraints, facts: Mapping[str, Any]) -> Told | None:
    data = held.to_json()
    if re.search(r"\b(?:everything|all|any|constraints|conditions|facts|requirements)\b", clause) and not re.search(
        r"\ball-", clause
    ):
        both = [*(data if "fact" not in clause else ()), *(facts if "constraint" not in clause else ())]
        return Told(dropped=tuple(both)) if both else None
    dropped: list[str] = []
    kept: dict[str, Any] = {}
    words = (
        (r"\bbatch", ("keep_batch", "training.global_batch")), (r"\bremat", ("keep_remat", "training.remat")),
        (r"\bweights?\b", ("keep_weight_sharding", "training.weight_sharding")), (r"\bflag", ("no_flags",)),
        (r"\bmicro|accumul", ("keep_micro_batches", "training.grad_accum", "training.micro_batch")),
        (r"\bmemory|\bhbm|\bmargin", ("memory_margin", "hardware.overrides.hbm_bytes")),
        (r"\bchips\b", ("at_most_chips",)),
        (r"\b(?:length|context|seq_len)\b", ("training.seq_len",)), (r"\bmodel\b|\d+b\b", ("model.name",)),
        (r"\bmesh", ("excluded",)),
    )  # fmt: skip
    for pattern, keys in words:
        if re.search(pattern, clause):
            dropped += [key for key in keys if key in data or key in facts]
    names = "|".join(re.escape(word) for word in words_for(config.mesh))
    named = {axis_of(config.mesh, m[1]) for m in re.finditer(rf"\b({names}){TAIL}\b", clause)} - {None}
    for key in ("keep_axes", "fixed", "at_least", "at_most"):
        value = data.get(key)
        if not value or not named & set(value):
            continue
        dropped.append(key)
        rest = (
            [a for a in value if a not in named]
            if isinstance(value, list)
            else {a: n for a, n in value.items() if a not in named}
        )
        if rest:
            kept[key] = rest
    if not dropped and re.search(r"\b(?:that|it|this|the|my)\b", clause) and len(data) + len(facts) == 1:
        dropped = [*data, *facts]
    return (
        Told(constraints=kept, dropped=tuple(dict.fromkeys(dropped)), sentences=dict.fromkeys(kept, clause))
        if dropped
        else None
    )


def describe(told: Told, config: ExperimentConfig) -> Iterator[str]:
    """One sentence per thing that was told."""
    yield from Constraints.from_json(dict(told.constraints)).describe() if told.constraints else ()
    for path, value in told.facts.items():
        yield fact_sentence(path, value, config)


def fact_sentence(path: str, value: Any, config: ExperimentConfig) -> str:
    words = {
        "model.name": f"The model is {value}.",
        "training.global_batch": f"The global batch is {value} sequences.",
        "training.seq_len": f"Sequences have {value} tokens.",
        "training.remat": f"The remat policy is {value}.",
        "training.weight_sharding": f"The weights are sharded as `{value}`.",
    }
    if path == "hardware.overrides.hbm_bytes":
        return f"A program can fill {value / 1e9:.4g} GB of a chip's HBM."
    name = setting(path.removeprefix("training."))
    return words.get(path, f"{name[:1].upper()}{name[1:]} is {value}.")
