"""What a GPU kernel does, inferred from its name and from the framework op that launched it.

NCCL calls its kernels `ncclKernel_*` up to 2.18 and `ncclDevKernel_*` since; RCCL does the same, and serves every kind
of collective by `ncclDevKernel_Generic`.  The kind is then in the trace's own arguments, which stand above any name.
"""

from __future__ import annotations

import re
from functools import lru_cache

from experiments.ingest.op_classes import COLLECTIVE_KERNEL, COLLECTIVE_OP, LIBRARIES

#: Categories, in words that the Analyzer sorts into families.
GEMM, CONVOLUTION, ATTENTION = "gemm", "convolution", "attention"
ELEMENTWISE, REDUCTION, NORMALIZATION = "elementwise", "reduction", "normalization"
EMBEDDING, SCATTER, SORT, OPTIMIZER = "embedding gather", "gather or scatter", "sort", "optimizer elementwise"
TO_DEVICE, TO_HOST = "copy host to device", "copy device to host"
ON_DEVICE, TO_PEER, MEMSET = "copy device to device", "copy to another device", "memset"
OTHER = "other kernel"
#: What computes matmuls.
PRODUCTS = (GEMM, CONVOLUTION, ATTENTION)
#: Copies between host and device: no work of the program on the device.
HOST_COPIES = (TO_DEVICE, TO_HOST)

#: Longest words first.
_KINDS = (
    ("reduce-scatter", re.compile(r"reduce_?scatter|ReduceScatter", re.I)),
    ("all-gather", re.compile(r"all_?gather", re.I)),
    ("all-to-all", re.compile(r"all_?to_?all", re.I)),
    ("all-reduce", re.compile(r"all_?reduce|userbuffers|multimem|lamport|_?shot_", re.I)),
    ("collective-broadcast", re.compile(r"broadcast", re.I)),
    ("send/recv", re.compile(r"send_?recv|\bsend\b|\brecv\b|\bisend\b|\birecv\b", re.I)),
    ("reduce", re.compile(r"reduce", re.I)),
)
_BARRIER = re.compile(r"barrier|init|wait", re.I)

_PATTERNS = (
    (
        ELEMENTWISE,
        re.compile(r"(?<!fmha_)\b(vectorized_|unrolled_|legacy_|templated_)*elementwise_kernel|^triton_poi_"),
    ),
    (REDUCTION, re.compile(r"^triton_(red|per)_")),
    (ATTENTION, re.compile(r"flash|fmha|attention|attn|\bmha_|_mha_|sdpa|^sage_fwd|paged_kv|\bmla_|_mla_", re.I)),
    (
        CONVOLUTION,
        re.compile(
            r"conv(?!ert)|fprop|dgrad|wgrad|winograd|implicit_gemm|cudnn.*engine|im2col|col2im|miopen.*Sp3", re.I
        ),
    ),
    (
        GEMM,
        re.compile(
            r"(?<!fb)gemm|gemv|cutlass|nvjet|cublas|^bmm_|\bCijk_|hipblaslt|xmma|s884|s1688|s16816|wgmma|splitK|matmul|matrix_mult|"
            r"\bdot_kernel|_mm_(?!.*elementwise)|^triton_tem_|grouped_?mm|marlin",
            re.I,
        ),
    ),
    (OPTIMIZER, re.compile(r"multi_?tensor_apply|fused_?adam|distributed_?adam", re.I)),
    (
        NORMALIZATION,
        re.compile(r"layer_?norm|rms_?norm|batch_?norm|group_?norm|bn_(fw|bw)|\bbn_|_norm_kernel|GammaBeta", re.I),
    ),
    (EMBEDDING, re.compile(r"(?<!rotary_)embedding|\btbe_", re.I)),
    (SORT, re.compile(r"sort|topk|top_k|radix", re.I)),
    (
        SCATTER,
        re.compile(
            r"index_?(select|put|add|copy|elementwise|func|kernel)|gather|scatter|_indices|bucketize|jagged|"
            r"permute_?(\dD|sparse|data|multi|pooled|lengths)",
            re.I,
        ),
    ),
    (REDUCTION, re.compile(r"reduce|softmax|cumsum|scan|nll_?loss|pool|cross_?entropy|argmax|cub::|rocprim", re.I)),
    (
        ELEMENTWISE,
        re.compile(
            r"^triton_|elementwise|fill|CatArray|copy|transpose|dropout|rope|rotary|silu|gelu|act_|SubTensorOp|quant",
            re.I,
        ),
    ),
)
#: Where the kernel's own name says nothing, what the framework op does.
_OPS = (
    (ATTENTION, re.compile(r"scaled_dot_product|flash|attention", re.I)),
    (CONVOLUTION, re.compile(r"conv", re.I)),
    (GEMM, re.compile(r"aten::(addmm|mm|bmm|baddbmm|matmul|linear|einsum|_scaled_mm)\b|(?<!fb)gemm", re.I)),
    (NORMALIZATION, re.compile(r"norm(?!al(?!i[sz]))", re.I)),
    (EMBEDDING, re.compile(r"embedding", re.I)),
    (REDUCTION, re.compile(r"softmax|sum|mean|loss|max|min", re.I)),
    (ELEMENTWISE, re.compile(r"aten::(add|mul|sub|div|copy_|fill_|cat|to|_to_copy|zero_)\b", re.I)),
)
_TRITON_PRODUCT = re.compile(r"_(mm|addmm|bmm|matmul|gemm|convolution)(_|$)")
_LENGTH = re.compile(r"\d{1,4}")
_WRAPPERS = re.compile(r"^(Kernel\d?|device_kernel|kernel|kernel_impl|GemmKernel|run_kernel|entry)$")


@lru_cache(maxsize=65536)
def collective_kind(kernel: str, stated: str = "") -> str | None:
    """`all-reduce`, `all-gather`, … of a kernel; None where it is no collective.  stated: the trace's collective name.

    `collective` where it is one and nothing says which.
    """
    if not COLLECTIVE_KERNEL.search(kernel):
        return None
    known = next(kind for pattern, kind in LIBRARIES if pattern.search(kernel))
    return _kind(stated) or known or _kind(kernel) or "collective"


def launched_kind(kernel: str, op: str, *, is_stated: bool = False) -> str | None:
    """The same by role: the launching op counts where the kernel's own name leaves its work open.

    is_stated: the trace names the collective that the kernel belongs to.  NCCL sends and receives for an all-to-all
    too.
    """
    kind = collective_kind(kernel)
    if kind is None and category(kernel) == OTHER and (is_stated or COLLECTIVE_OP.search(op)):
        kind = "collective"
    by_op = _kind(op)
    if kind == "collective" or (kind == "send/recv" and by_op == "all-to-all"):
        return by_op or kind
    return kind


def stated_kind(stated: str) -> str:
    """The same from the trace's `Collective name` alone, e.g. `_allgather_base`."""
    return _kind(stated) or "collective"


def _kind(text: str) -> str | None:
    if not text or _BARRIER.fullmatch(text):
        return None
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), None)


@lru_cache(maxsize=65536)
def category(kernel: str, op: str = "") -> str:
    """Category of a kernel that is no collective; op: the framework op that launched it, empty where not known."""
    if kernel.startswith("triton_") and not kernel.startswith("triton_tem_"):
        return GEMM if _TRITON_PRODUCT.search(kernel) and "fused" not in kernel else _first(kernel, _PATTERNS) or OTHER
    kind = _first(base_name(kernel), _PATTERNS) or _first(kernel, _PATTERNS)
    if kind in (None, ELEMENTWISE, REDUCTION, SCATTER) and op and kind is None:
        kind = _first(op, _OPS)
    return kind or OTHER


def _first(text: str, patterns: tuple[tuple[str, re.Pattern[str]], ...]) -> str | None:
    return next((name for name, pattern in patterns if pattern.search(text)), None)


def copy_category(text: str) -> str:
    """Category of a copy from Kineto's name or kind: `Memcpy HtoD (Pageable -> Device)`, `DtoD`, `CopyHostToDevice`."""
    plain = text.replace("HostToDevice", "HtoD").replace("DeviceToHost", "DtoH").replace("DeviceToDevice", "DtoD")
    for mark, name in (("HtoD", TO_DEVICE), ("DtoH", TO_HOST), ("PtoP", TO_PEER), ("DtoD", ON_DEVICE)):
        if mark in plain:
            return name
    return ON_DEVICE


@lru_cache(maxsize=65536)
def base_name(kernel: str) -> str:
    """A kernel's function without result, arguments, template parameters and namespaces, at most 120 characters.

    Of a wrapper (`cutlass::Kernel2<cutlass_80_tensorop_…>`) the name of what it wraps.
    """
    if kernel.startswith("_Z"):
        kernel = "::".join(_identifiers(kernel)) or kernel
    text = kernel.removeprefix("void ").replace("(anonymous namespace)::", "").replace("[clone .kd]", "").strip()
    head = text.partition("(")[0].partition("<")[0]
    last = head.rpartition("::")[2].strip()
    inner = re.search(r"<\s*([\w:]+)", text)
    if _WRAPPERS.match(last) and inner:
        last = inner.group(1).rpartition("::")[2]
    return (last or text)[:120]


def _identifiers(mangled: str) -> list[str]:
    """`ck`, `device`, `kernel_gemm` of `_ZN2ck6device11kernel_gemm…`: the nested name of a mangled symbol."""
    identifiers: list[str] = []
    at = 3 if mangled.startswith("_ZN") else 2
    while match := _LENGTH.match(mangled, at):
        start = match.end()
        at = start + int(match.group())
        identifiers.append(mangled[start:at])
    return identifiers
