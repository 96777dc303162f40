"""AdamW (arXiv 1711.05101) on float32 weights; its moments lie as the optimizer state is sharded."""

from __future__ import annotations

import jax
import jax.numpy as jnp

LEARNING_RATE, DECAY = 3e-4, 0.1
MEAN_DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.95, 1e-8


def update(weight: jax.Array, gradient: jax.Array, mean: jax.Array, square: jax.Array, count: jax.Array,
           decay: float) -> tuple[jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """New weight and moments.  count: updates so far, this one included."""
    mean = MEAN_DECAY * mean + (1 - MEAN_DECAY) * gradient
    square = SQUARE_DECAY * square + (1 - SQUARE_DECAY) * gradient * gradient
    step = mean / (1 - MEAN_DECAY**count) / (jnp.sqrt(square / (1 - SQUARE_DECAY**count)) + EPSILON)
    return weight - LEARNING_RATE * (step + decay * weight), mean, square
