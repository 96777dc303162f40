"""Training settings in words: batch, sequence length, remat, weight sharding, micro-batches, precision, flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from perfmodel.config import Training
from perfmodel.workload import REMAT
from proposals.agents.reasoner.figures import COUNT, WORDS, count

_LINK = (
    r"\s*(?:=|:|\bis\b|\bof\b|\bto\b|\bat\b|\bsize\b|\bwas\b|\bwere\b|\bbe\b|\bstays?\b|\bfixed\b|\bmust\b|\bwould\b|"
    r"\bdoubled\b|\bhalved\b|\braised\b|\bincreased\b|\bset\b|\bchanged\b|\breduced\b|\blowered\b|\bcut\b|\bgrown\b|→|->|\s)*\s*"
)
_BATCH = r"(?:global_batch(?:_size)?|global[- ]?batch(?:[- ]size)?|batch(?:[- ]sizes?)?)"
_LENGTH = r"(?:seq_len|max_target_length|(?:sequence|seq|context)[- ](?:length|len|window)|context)"
_NUMBER = rf"({COUNT})"
_ACCUM = r"(?:grad_accum|grad(?:ient)?[- ]accum(?:ulation)?(?:[- ]steps)?|accumulation(?: steps)?)"
_NOT_MICRO = r"(?<!micro[- _])(?<!micro)(?<!per[- _]device[- _])"


def _remat(word: str) -> str | None:
    word = word.strip()
    return {"no": "none", "off": "none", "everything": "full", "all": "full", "selective": "minimal"}.get(word) or (
        word if word in REMAT else None
    )


def _sharding(word: str) -> str | None:
    word = word.replace("-", "").replace(" ", "")
    return {
        "fsdp": "fsdp", "zero3": "fsdp", "fullysharded": "fsdp", "zero1": "zero1", "zero2": "zero1",
        "replicated": "none", "unsharded": "none", "none": "none",
    }.get(word)  # fmt: skip


_Read = Callable[[re.Match[str]], Any]
_NAMED: tuple[tuple[str, str, _Read], ...] = (
    ("global_batch", rf"{_NOT_MICRO}\b{_BATCH}{_LINK}{_NUMBER}(?! ?(?:gb|%|tokens))", lambda m: count(m[1])),
    ("global_batch", rf"(?<![\w.]){_NUMBER} (?:global batch(?: size)?|sequences per step)\b", lambda m: count(m[1])),
    ("seq_len", rf"\b{_LENGTH}{_LINK}{_NUMBER}(?! ?(?:gb|%))", lambda m: count(m[1])),
    ("seq_len", rf"(?<![\w.]){_NUMBER}(?: tokens?)?[- ](?:long )?(?:context|sequence length|seq_len)\b",
     lambda m: count(m[1])),
    ("remat", rf"\bremat(?: policy)?{_LINK}(none|minimal|full|offload|off|no|selective|everything)\b",
     lambda m: _remat(m[1])),
    ("remat", r"\b(no|full|minimal|selective|offload(?:ed)?|without) (?:activation )?remat(?:ting|erial\w+)?\b",
     lambda m: "none" if m[1] in ("no", "without") else "offload" if m[1].startswith("off") else _remat(m[1])),
    ("remat", r"\b(?:turn|switch)(?:ed|ing)? (?:remat off|off remat)\b|\bremat (?:turned |switched )?off\b",
     lambda m: "none"),
    ("weight_sharding", (
        rf"\b(?:weights? ?_?sharding|weights?(?: are)?){_LINK}(fsdp|zero-?[123]|fully sharded|replicated|"
        rf"unsharded|none)\b"
    ),
     lambda m: _sharding(m[1])),
    ("weight_sharding", (
        r"\b(?:with|use|used|using|try|switch to|go|if|about) (zero-?[123]|fully sharded|replicated)(?: "
        r"weights| sharding)?\b"
    ),
     lambda m: _sharding(m[1])),
    ("weight_sharding", r"\b(fsdp|zero-?[123]|fully sharded|replicated|unsharded) weights\b",
     lambda m: _sharding(m[1])),
    ("grad_accum", rf"\b{_ACCUM}{_LINK}(\d+|{'|'.join(WORDS)})\b", lambda m: count(m[1])),
    ("grad_accum", r"\b(?:no) gradient accumulation\b", lambda m: 1),
    ("grad_accum", r"\b(\d+) (?:gradient )?accumulation steps\b", lambda m: int(m[1])),
    ("grad_accum", r"\b(\d+) micro[- ]?batches\b", lambda m: int(m[1])),
    ("micro_batch", rf"\bmicro[-_ ]?batch(?:es)?(?: size)?{_LINK}(\d+)\b", lambda m: int(m[1])),
    ("precision", rf"\b(?:precision{_LINK}|in |with |use |to |using |try )(bf16|fp8|mxfp8|nvfp4|int8|fp16|fp32)\b",
     lambda m: m[1]),
    ("optimizer", rf"\boptimi[sz]er{_LINK}(adamw?|adafactor|sgd|lion|shampoo|muon)\b", lambda m: m[1]),
)  # fmt: skip
_SCALED = (
    (rf"\b(halve|half|double|twice|quadruple)(?:d|ing)? (?:of )?(?:the )?(?:our )?{_BATCH}\b", "global_batch"),
    (rf"\b(halve|half|double|twice|quadruple)(?:d|ing)? (?:of )?(?:the )?(?:our )?{_LENGTH}\b", "seq_len"),
)
_FACTOR = {"halve": 0.5, "half": 0.5, "double": 2, "twice": 2, "quadruple": 4}
_FLAG = re.compile(r"--xla_[\w]+(?:=[\w.\-]+)?")
#: From here on a number after `seq` or `context` is a length and no number of shards.
LENGTH_FROM = 512


def read(text: str, training: Training, chips: int) -> tuple[dict[str, Any], str]:
    """The settings that plain words name, by configuration key, and the words with `<set>` in their place.

    chips: of a slice; `seq 8192` is a length, `seq 8` the size of an axis.
    """
    found: dict[str, Any] = {}
    for key, pattern, value in _NAMED:
        if key in found:
            continue
        for match in re.finditer(pattern, text):
            got = value(match)
            if got is None or (key == "seq_len" and _is_shards(match[0], got, chips)):
                continue
            found[key] = got
            text = f"{text[: match.start()]} <set> {text[match.end() :]}"
            break
    text = _lengths(text, found, chips)
    for pattern, key in _SCALED:
        scaled = re.search(pattern, text)
        before = getattr(training, key)
        if scaled and before and key not in found:
            found[key] = int(before * _FACTOR[scaled[1]])
            text = f"{text[: scaled.start()]} <set> {text[scaled.end() :]}"
    if flags := _FLAG.findall(text):
        found["xla_flags"] = [*training.xla_flags, *(flag for flag in flags if flag not in training.xla_flags)]
        text = _FLAG.sub(" <set> ", text)
    return found, re.sub(r"\s+", " ", text).strip()


def _is_shards(text: str, value: int, chips: int) -> bool:
    """`context 2` is an axis; `context length 2` is not."""
    return not re.search(r"length|len|window", text) and value < LENGTH_FROM and chips % value == 0


def _lengths(text: str, found: dict[str, Any], chips: int) -> str:
    match = re.search(rf"\b(?:seq|sequence|sequences){_LINK}{_NUMBER}", text)
    if match is None or "seq_len" in found:
        return text
    value = count(match[1])
    if value is None or (value < LENGTH_FROM or (value <= chips and chips % value == 0)):
        return text
    found["seq_len"] = value
    return f"{text[: match.start()]} <set> {text[match.end() :]}"


def unknown_before(changes: Mapping[str, Any], training: Training) -> tuple[str, ...]:
    """Keys that would change though nobody knows what they are now, so that no gain can be told."""
    return tuple(key for key in ("global_batch", "seq_len") if key in changes and getattr(training, key) is None)
