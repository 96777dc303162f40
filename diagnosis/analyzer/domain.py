"""Decides whether the performance model describes what was profiled: a transformer's training step."""

from __future__ import annotations

import re

from diagnosis.analyzer.facts import Facts, OpFacts, total_share
from diagnosis.analyzer.kpis import implied_utilization
from experiments.step_profile import PROFILE, XLA_PROFILES
from formatting import plain, share
from perfmodel.config import missing_facts

#: Convolutions as XLA, PyTorch, cuDNN and MIOpen name them.  XLA on TPUs also calls each matmul a convolution, but
#: keeps the program's own name for it (`dot_general`).
_CONVOLUTION = re.compile(r"conv_general_dilated|aten::\w*conv(olution|[123]d)|(cudnn|miopen)\w*\$?conv", re.IGNORECASE)
#: Kernels that write or read the keys and values of earlier tokens, which only a serving engine keeps.
_KV_CACHE = re.compile(r"reshape_and_cache|paged_?(attention|kv)|kv_?cache|append_paged|mla_decode", re.IGNORECASE)
#: Share of the step from which lookups in embedding tables say what the program is; a language model's take under 1 %.
LOOKUPS = 0.05

_REFUSAL = "The performance model describes training steps of transformers, so no meshes are priced or proposed."


def not_modelled(facts: Facts) -> str:
    """Return why the performance model does not apply, as sentences; empty where it may.

    Only what the profile shows counts: ops without names leave the question open, and the configuration decides.
    """
    reason = _reason(facts) if facts.profile.basis == PROFILE else ""
    return f"{reason} {_REFUSAL}" if reason else ""


def _reason(facts: Facts) -> str:
    attention = total_share(facts.where(lambda op: op.module == "attention" or op.family == "attention kernel"))
    convolutions = facts.where(_is_convolution)
    dense = facts.where(lambda op: op.family == "matmul" or _is_convolution(op))
    of_dense = total_share(convolutions) / total_share(dense) if dense else 0.0
    if of_dense > 0.5 and total_share(convolutions) > attention:
        return f"Convolutions take {share(of_dense)} of the time of matmuls and convolutions: a convolutional network."
    lookups = total_share(facts.where(lambda op: op.module == "embedding" and op.family == "scatter"))
    if lookups > LOOKUPS and not attention:
        return f"Lookups in embedding tables take {share(lookups)} of the step and no op is attention: a recommender."
    cache = next((op for op in facts.ops if _KV_CACHE.search(op.op.name) or _KV_CACHE.search(op.path)), None)
    if cache is not None and not _trains(facts):
        return f"The profile keeps keys and values of earlier tokens ({cache.op.name[:60]}): inference, not training."
    if _is_forward_only(facts) and (facts.config is None or missing_facts(facts.config)):
        return "None of the named ops belongs to a backward pass or an optimizer: inference or a benchmark."
    utilization = implied_utilization(facts.step_time_s, facts.config, facts.chip) or 0.0
    if utilization > 1.0 and not facts.profile.device.kind.strip().upper().startswith("CPU"):
        return (
            f"The configured model and batch need {plain(utilization, 'speedup')} the chips' peak FLOP/s in the "
            "measured step time, so the profile is of another model, batch or precision."
        )
    return ""


def _is_convolution(op: OpFacts) -> bool:
    return bool(_CONVOLUTION.search(op.path) or _CONVOLUTION.search(op.op.name))


def _trains(facts: Facts) -> bool:
    return any(op.phase for op in facts.ops)


def _is_forward_only(facts: Facts) -> bool:
    """Whether ops carry names, and none of them was differentiated or belongs to an optimizer."""
    named = facts.profile.source_kind in (*XLA_PROFILES, "kineto") and any(op.op.op_name for op in facts.ops)
    return named and not _trains(facts)
