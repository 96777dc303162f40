"""`asap record`: a small sharded transformer training step, recorded with `jax.profiler` on the devices at hand."""
