"""Flags of XLA for tests that compile training steps."""

#: Compiling a small step takes far longer than running it three times; fusion emitters alone take half of it.
COMPILED_QUICKLY = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
)
