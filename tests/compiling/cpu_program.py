"""Prints the HLO of a small sharded program on eight forced CPU devices: mesh a 2, b 4."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("a", "b"))


def local(x: jax.Array, w: jax.Array) -> jax.Array:
    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        whole = jax.lax.all_gather(w, "b", axis=0, tiled=True)
        return jnp.tanh(x @ whole), None

    x, _ = jax.lax.scan(layer, x, w)
    return jax.lax.psum(x, "a")


step = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(P("a"), P(None, "b")), out_specs=P(), check_vma=False))
x = jax.ShapeDtypeStruct((16, 64), jnp.float32, sharding=NamedSharding(mesh, P("a")))
w = jax.ShapeDtypeStruct((5, 64, 64), jnp.float32, sharding=NamedSharding(mesh, P(None, "b")))
sys.stdout.write(step.lower(x, w).compile().as_text())
