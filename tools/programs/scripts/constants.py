"""Scoring with tables of constants, closed over or passed as arguments."""

import compiling
import jax
import jax.numpy as jnp
import numpy as np

config = compiling.options(__doc__, passed=False, rows=512, width=1024, tables=3)
random = np.random.default_rng(0)
TABLES = [
    random.random((config.width, config.width), np.float32) - 0.5 for _ in range(config.tables)
]


def score(tables, rows):
    x = sum(jnp.take(table, rows, axis=0) for table in tables)
    return jax.nn.softmax(jnp.sort(x))


def score_closed(rows):
    return score(TABLES, rows)


sharding = compiling.single(config.platform)
rows = jax.ShapeDtypeStruct((config.rows,), jnp.int32, sharding=sharding)
if config.passed:
    tables = compiling.placed(TABLES, sharding)
    compiling.compile_and_report(jax.jit(score).lower(tables, rows), "score")
else:
    compiling.compile_and_report(jax.jit(score_closed).lower(rows), "score_closed")
