"""Records training steps of transformers' models on one GPU: `python record_transformers.py FOLDER`, on a machine with
PyTorch and transformers, which this repository does not install.

Writes FOLDER/runs.json with step times without the profiler and the allocator's peak, and a PyTorch trace per run;
`python -m evaluation.single_gpu` compares with predictions what was kept of them in evaluation/data/h200.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule
from transformers import AutoConfig, AutoModelForCausalLM

LLAMA_8B_LAYER = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 32768, "tie_word_embeddings": True,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama1b": ("llama", {
        "num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True,
    }),
    "wide": ("llama", {"num_hidden_layers": 6, **LLAMA_8B_LAYER}),
    "compiled": ("llama", {"num_hidden_layers": 6, **LLAMA_8B_LAYER}),
    "qwen3": ("qwen3", {
        "num_hidden_layers": 28, "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True,
    }),
    "mixtral": ("mixtral", {
        "num_hidden_layers": 8, "hidden_size": 2048, "intermediate_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 32000, "tie_word_embeddings": False,
        "num_local_experts": 8, "num_experts_per_tok": 2,
    }),
}  # fmt: skip
#: Model, remat policy, sequences, tokens of each.
RUNS = (
    ("llama1b", "full", 4, 2048), ("llama1b", "none", 4, 2048), ("llama1b", "full", 8, 2048),
    ("llama1b", "none", 2, 2048), ("llama1b", "full", 2, 4096), ("llama1b", "none", 6, 2048),
    ("wide", "full", 4, 2048), ("wide", "none", 4, 2048), ("wide", "full", 8, 2048), ("wide", "none", 2, 2048),
    ("wide", "none", 2, 4096), ("wide", "none", 8, 2048), ("wide", "full", 16, 2048),
    ("qwen3", "full", 4, 2048), ("qwen3", "none", 4, 2048), ("qwen3", "full", 8, 2048), ("qwen3", "none", 2, 2048),
    ("qwen3", "full", 2, 8192), ("qwen3", "none", 10, 2048), ("qwen3", "none", 12, 2048),
    ("mixtral", "full", 4, 2048), ("mixtral", "none", 4, 2048), ("mixtral", "full", 16, 2048),
    ("mixtral", "none", 8, 2048), ("mixtral", "full", 2, 8192),
    ("compiled", "full", 8, 2048), ("compiled", "none", 8, 2048), ("compiled", "none", 4, 2048),
)  # fmt: skip
WARM_UP, STEPS, PROFILED = 3, 10, 3


def record(folder: Path, name: str, remat: str, batch: int, seq_len: int) -> dict[str, Any]:
    """One run: float32 weights, autocast to bf16, scaled-dot-product attention, fused AdamW."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    family, shape = MODELS[name]
    with torch.device("cuda"):
        config = AutoConfig.for_model(family, **shape, max_position_embeddings=seq_len, use_cache=False)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").float()
    model.train()
    if remat == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if name == "compiled":
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, shape["vocab_size"], (batch, seq_len), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()

    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(WARM_UP + STEPS):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated()
    key = f"hf-{name}-{remat}-b{batch}-s{seq_len}"
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=0, warmup=2, active=PROFILED, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(folder / f"{key}.pt.trace.json.gz")),
        record_shapes=True,
        profile_memory=True,
    ) as profiler:
        for _ in range(2 + PROFILED):
            step()
            profiler.step()
    return {"key": key, "step_times_s": times[WARM_UP:], "peak_bytes": peak}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    done = []
    for run in RUNS:
        try:
            done.append(record(folder, *run))
        except torch.OutOfMemoryError as error:
            done.append({"key": "hf-{}-{}-b{}-s{}".format(*run), "error": str(error)})
        gc.collect()
        torch.cuda.empty_cache()
        (folder / "runs.json").write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
