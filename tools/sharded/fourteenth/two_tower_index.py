# mypy: ignore-errors
"""Fault: replicated. The refreshed item index is returned whole on every device, although it is computed by rows and the
search takes it by rows: every device holds all items' vectors instead of an eighth."""
import functools
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

ITEMS = 131072
TEXT, IMAGE, OUT = 384, 256, 256
CATEGORIES = 2048


class ItemTower(nn.Module):
    hidden: tuple = (1024, 512)
    out: int = OUT

    @nn.compact
    def __call__(self, text, image, category):
        cat = nn.Embed(CATEGORIES, 64, name="category")(category)
        x = jnp.concatenate([text.astype(jnp.float32), image.astype(jnp.float32), cat], -1)
        for i, width in enumerate(self.hidden):
            h = nn.gelu(nn.Dense(width, name=f"dense_{i}")(x))
            x = nn.LayerNorm(name=f"norm_{i}")(h)
        return nn.Dense(self.out, name="project")(x)


class QueryTower(nn.Module):
    out: int = OUT

    @nn.compact
    def __call__(self, query):
        x = nn.LayerNorm()(nn.gelu(nn.Dense(1024)(query)))
        return nn.Dense(self.out)(x)


def normalize(v):
    return v * jax.lax.rsqrt(jnp.sum(v * v, -1, keepdims=True) + 1e-12)


def refresh_index(tower, params, catalog):
    """Vectors of all items, and statistics for the dashboards."""
    vectors = tower.apply({"params": params}, catalog["text"], catalog["image"], catalog["category"])
    norms = jnp.linalg.norm(vectors, axis=-1)
    index = jnp.where(catalog["active"][:, None], normalize(vectors), 0.0)
    counts = jnp.zeros(CATEGORIES).at[catalog["category"]].add(catalog["active"].astype(jnp.float32))
    stats = {"norm_mean": norms.mean(), "norm_max": norms.max(), "active": catalog["active"].sum(), "by_category": counts}
    return index, stats


def search(tower, k, params, index, queries):
    """Top k of every device's rows, merged."""
    q = normalize(tower.apply({"params": params}, queries))
    scores = q @ index.T
    return jax.lax.top_k(scores, k)


def shardings(mesh):
    rows = NamedSharding(mesh, P("items", None))
    row = NamedSharding(mesh, P("items"))
    everywhere = NamedSharding(mesh, P())
    catalog = {"text": rows, "image": rows, "category": row, "active": row}
    return rows, everywhere, catalog


def build_search(mesh, k=100):
    rows, everywhere, _ = shardings(mesh)
    return jax.jit(functools.partial(search, QueryTower(), k),
                   in_shardings=(everywhere, rows, everywhere), out_shardings=everywhere)


def build_refresh(mesh):
    rows, everywhere, catalog = shardings(mesh)
    return jax.jit(
        functools.partial(refresh_index, ItemTower()),
        in_shardings=(everywhere, catalog),
        out_shardings=(everywhere, everywhere),  # FAULT
    )


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("items",))
    catalog = {
        "text": jax.ShapeDtypeStruct((ITEMS, TEXT), jnp.bfloat16),
        "image": jax.ShapeDtypeStruct((ITEMS, IMAGE), jnp.bfloat16),
        "category": jax.ShapeDtypeStruct((ITEMS,), jnp.int32),
        "active": jax.ShapeDtypeStruct((ITEMS,), jnp.bool_),
    }
    one = jax.tree.map(lambda s: jnp.zeros((1, *s.shape[1:]), s.dtype), catalog)
    params = jax.eval_shape(ItemTower().init, jax.random.key(0), one["text"], one["image"], one["category"])["params"]
    return build_refresh(mesh), (params, catalog)
