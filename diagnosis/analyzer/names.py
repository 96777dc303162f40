"""What names tell: the module of the model an op belongs to, the phase of the step, the family of its category."""

from __future__ import annotations

import re
from functools import lru_cache

from experiments.passes import OPTIMIZER, pass_of

#: In order of precedence where one path segment matches several.
_MODULES = (
    ("experts", re.compile(r"moe|expert|router|gating_dispatch|megablox|gmm|ragged_dot|mixture", re.I)),
    (
        "attention",
        re.compile(
            r"attn|attention|\bqkv|qkv\b|[qkv]_proj|o_proj|flash|splash|ring_att|rotary|\brope|_rope|\bmha\b|\bmqa\b|"
            r"\bgqa\b|\bmla\b|\bdkv\b|\bdq\b|\bkv_",
            re.I,
        ),
    ),
    (
        "MLP",
        re.compile(
            r"mlp|\bffn?(?=\b|_|\d)|feed_?forward|gate_proj|up_proj|down_proj|\bwi_?\d?\b|\bwo\b|swiglu|geglu|ffw", re.I
        ),
    ),
    ("loss", re.compile(r"loss|xent|cross_entropy|logits|lm_head|unembed|log_softmax|logsumexp", re.I)),
    ("embedding", re.compile(r"embed|\bwte\b|\bwpe\b|vocab", re.I)),
    (
        "optimizer",
        re.compile(
            r"adam|optimizer|optax|apply_grad|apply_updates|\bupdater?\b(?!-slice)|sgd\b|\blion\b|muon|clip_by_global_norm|"
            r"global_norm|weight_decay",
            re.I,
        ),
    ),
    ("norm", re.compile(r"norm(?!al(?!i[sz]))|\brms\b|\bln_?\d?\b", re.I)),
    ("input", re.compile(r"infeed|input_pipeline|data_loader|host_to_device", re.I)),
)
_SEPARATOR = re.compile(r"[/;]")
#: Wrappers of JAX around the part of a path that names something.
_WRAPPER = re.compile(
    r"^(jit|pjit|jvp|vjp|transpose|checkpoint|remat|shard_map|vmap|xmap|custom_vjp_call|closed_call)\("
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_FAMILIES = (
    ("attention kernel", re.compile(r"^attention$", re.I)),
    ("input", re.compile(r"infeed|host recv|recv from host|host-to-device|h2d", re.I)),
    ("output", re.compile(r"outfeed|host send|send to host|device-to-host|d2h", re.I)),
    ("host", re.compile(r"host callback|host compute|debug|callback", re.I)),
    ("matmul", re.compile(r"convolution|\bdot\b|dot[ _-]|gemm|matmul|matrix mult|cublas|einsum|triton.?gemm", re.I)),
    (
        "data movement",
        re.compile(
            r"data formatting|data-formatting|\bcopy|transpose|reshape|bitcast|concatenate|\bpad\b|slice|reverse|"
            r"broadcast|data movement|async-(start|done)|memcpy|memset|formatting",
            re.I,
        ),
    ),
    ("scatter", re.compile(r"scatter|gather|\bsort\b|top-?k", re.I)),
    ("reduction", re.compile(r"\breduce|reduction|normali[sz]ation|softmax|input fusion|variadic", re.I)),
    ("elementwise", re.compile(r"loop fusion|elementwise|element-wise|output fusion|select|rng|iota|convert", re.I)),
    ("custom call", re.compile(r"custom.?call|custom fusion|pallas|mosaic|ffi", re.I)),
    (
        "control",
        re.compile(r"while|conditional|\bcall\b|tuple|parameter|constant|program|partition-id|replica-id", re.I),
    ),
    ("idle", re.compile(r"^idle$", re.I)),
)
_ATTENTION_KERNEL = re.compile(
    r"flash|splash|fused_?attn|attention|\brpa\b|\bmha\b|_dkv|\bdkv\b|\bdq\b|_dq\b|ring_att", re.I
)
_MATMUL_KERNEL = re.compile(
    r"matmul|matrix.?mult|gemm|einsum|\bdot\b|\bgmm\b|megablox|dot_general|cublas|convolution", re.I
)


@lru_cache(maxsize=65536)
def module(path: str, fallback: str = "") -> str:
    """Module of an op from its framework path, deepest matching part first; from its own name where it has no path."""
    segments = [segment for segment in _SEPARATOR.split(path) if segment]
    for segment in reversed(segments):
        # jvp(loss_fn) wraps a whole model: the loss itself is named without a wrapper further down.
        if not _WRAPPER.match(segment) and (part := segment_module(segment)):
            return part
    if "transpose(jvp" not in path and any(_MODULES[5][1].search(segment) for segment in segments):
        return "optimizer"
    return segment_module(fallback) if fallback else ""


@lru_cache(maxsize=65536)
def segment_module(segment: str) -> str:
    return next((name for name, pattern in _MODULES if pattern.search(segment)), "")


@lru_cache(maxsize=65536)
def phase(path: str) -> str:
    """Pass of the step (`experiments.passes`), the optimizer's also where only its module tells; else empty."""
    return pass_of(path) or (OPTIMIZER if module(path) == "optimizer" else "")


@lru_cache(maxsize=4096)
def normal_category(category: str) -> str:
    """XProf's category with the same words in the same form: lower case, ``all reduce`` and ``AllReduce`` as one."""
    text = _CAMEL.sub("-", category.strip())
    return " ".join(text.lower().replace("_", "-").split()) or "unknown"


@lru_cache(maxsize=65536)
def family(category: str, name: str, opcode: str, primitive: str = "") -> str:
    """matmul, attention kernel, elementwise, reduction, data movement, scatter, custom call, input, output, host,
    control, idle or other.  primitive: last part of the framework path.  Collectives are distinguished before this is
    asked.
    """
    custom = "custom" in category or opcode == "custom-call"
    if custom and _ATTENTION_KERNEL.search(name):
        return "attention kernel"
    if custom and (_MATMUL_KERNEL.search(name) or primitive.startswith(("dot_general", "conv_general"))):
        return "matmul"
    for text in (category, opcode):
        if not text:
            continue
        for kind, pattern in _FAMILIES:
            if pattern.search(text):
                return kind
    if _ATTENTION_KERNEL.search(name):
        return "attention kernel"
    for kind, pattern in _FAMILIES:
        if pattern.search(name):
            return kind
    if "fusion" in category or "fusion" in name:
        return "elementwise"
    return "other"
