"""The text of a module that writes shardings in many ways, one a factory."""

MODEL = '''"""Ways to write a sharding."""
import functools
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
WHOLE = P()
ROWS = P("x")
VOCABULARY = 1001
RULES = [
    (r"attention/.*", P("x")),
    (r"experts/w$", P(None, "x")),
    (r".*", P()),
]
WORDS = {"batch": "x", "hidden": None, "heads": "y"}
CACHE = ("batch", "kv", None)


def array(mesh, shape, spec):
    return S(shape, "float32", sharding=NamedSharding(mesh, spec))


def meshed(devices):
    return Mesh(np.array(devices).reshape(4, 2), ("x", "y"))


def make_table(devices):
    mesh = meshed(devices)
    table = {
        "user": ROWS,
        "item": WHOLE,
        "word": ROWS,
    }
    tables = {name: array(mesh, (512, 64), spec) for name, spec in table.items()}
    return jax.jit(lambda tables: jax.tree.map(jnp.sin, tables)), (tables,)


def make_rules(devices):
    mesh = meshed(devices)
    spec = lambda name: next(spec for rule, spec in RULES if re.match(rule, name))
    names = ("attention/w", "expert/w")
    return jax.jit(lambda *ws: [jnp.sin(w) for w in ws]), tuple(
        array(mesh, (64, 64), spec(name)) for name in names
    )


def make_dead(devices):
    mesh = meshed(devices)
    rules = (
        (r"experts/(in|gate)$", P("x")),
        (r"experts/down$", P(None, "x")),
        (r".*", P()),
    )
    spec = lambda name: next(spec for rule, spec in rules if re.search(rule, name))
    made = {name: array(mesh, (64, 64), spec(f"experts/{name}")) for name in ("in", "gate", "out")}
    return jax.jit(lambda tree: jax.tree.map(jnp.sin, tree)), ({"experts": made},)


def make_anchored(devices):
    mesh = meshed(devices)
    rules = [(r"layer/w", P("x"))]

    def spec(name):
        for rule, its in rules:
            if re.match(rule, name):  # anchored
                return its
        return P()

    names = ("layer/w", "mu/layer/w")
    return jax.jit(lambda *ws: [jnp.sin(w) for w in ws]), tuple(
        array(mesh, (64, 64), spec(name)) for name in names
    )


def make_named(devices):
    mesh = meshed(devices)
    state = {"params": {"w": (64, 64)}, "ema": {"w": (64, 64)}}
    split = lambda path: P("x") if path[0].key in SPLIT else P()
    is_shape = lambda one: isinstance(one, tuple)
    placed = jax.tree_util.tree_map_with_path(
        lambda path, shape: array(mesh, shape, split(path)), state, is_leaf=is_shape
    )
    return jax.jit(lambda state: jax.tree.map(jnp.sin, state)), (placed,)


SPLIT = {"params"}


def make_logical(devices):
    mesh = meshed(devices)
    spec = lambda names: P(*[WORDS.get(name) for name in names])
    return jax.jit(jnp.sin), (array(mesh, (64, 8, 16), spec(CACHE)),)


def make_unmatched(devices):
    mesh = meshed(devices)
    words = {
        "embed": None,
        "heads": "y",
        "feed_forward": "x",
    }
    spec = lambda *names: P(*[words.get(name) for name in names])
    specs = [spec("embed", "mlp"), spec("embed", "heads"), spec(*DOWN)]
    return jax.jit(lambda *ws: [jnp.sin(w) for w in ws]), tuple(
        array(mesh, (64, 64), one) for one in specs
    )


DOWN = ("mlp", "embed")


PLACES = (
    ("frame", "x"),
    ("row", None),
    ("column", None),
    ("pixel", "x"),
)


def make_misplaced(devices):
    mesh = Mesh(np.array(devices), ("x",))

    def put(image, row="row"):
        names = ("frame" if row == "row" else None, row, "column")
        spec = P(*[dict(PLACES).get(name) for name in names])
        return jax.lax.with_sharding_constraint(image, NamedSharding(mesh, spec))

    decode = lambda image: put(put(jnp.sin(image))[..., 1:], row="pixel")
    return jax.jit(decode), (S((18, 64, 64), "float32"),)


def make_lost(devices):
    mesh = meshed(devices)
    words = {"batch": "x", "embed": None}
    weight = lambda *names: array(mesh, (64, 64), P(*[words.get(name) for name in names]))
    made = {"first": weight("lines", "embed"), "second": weight("lines", "embed")}  # twice
    made["tokens"] = weight("batch", "embed")
    return jax.jit(lambda tables: jax.tree.map(jnp.sin, tables)), (made,)


def make_renamed(devices):
    mesh = meshed(devices)
    words = {
        "inner": "x",
        "embed": None,
    }
    weight = lambda names: array(mesh, (64, 64), P(*[words.get(name) for name in names]))
    made = {"up": weight(("embed", "ffn")), "down": weight(("ffn", "embed"))}
    return jax.jit(lambda tables: jax.tree.map(jnp.sin, tables)), (made,)


class Table(NamedTuple):
    rows: int
    placement: str = "rows"

    def spec(self):
        return {"rows": P("x"), "whole": P()}[self.placement]


TABLES = {
    "user": Table(4096),
    "item": Table(2048, placement="whole"),
    "day": Table(8, placement="whole"),
}


def make_placed(devices):
    mesh = meshed(devices)
    made = {name: array(mesh, (its.rows, 64), its.spec()) for name, its in TABLES.items()}
    return jax.jit(lambda tables: jax.tree.map(jnp.sin, tables)), (made,)


class Layouts:
    def __init__(self, mesh):
        self.fields = NamedSharding(mesh, P("x", "y"))
        self.maps = NamedSharding(mesh, P("x"))


def make_mapped(devices):
    layouts = Layouts(meshed(devices))
    step = jax.jit(
        lambda fields, maps: fields + maps.sum(),
        out_shardings=layouts.maps,  # the field
    )
    field = S((64, 64, 64), "float32", sharding=layouts.fields)
    return step, (field, S((4, 64), "float32", sharding=layouts.maps))


def make_kept_by_name(devices):
    mesh = meshed(devices)
    keep = jax.checkpoint_policies.save_any_names_but_these("scores")

    def gather(w):
        full = jax.lax.with_sharding_constraint(w, NamedSharding(mesh, P()))
        return checkpoint_name(full, "kernel")

    @functools.partial(jax.checkpoint, policy=keep)
    def layer(x, w):
        scores = checkpoint_name(jnp.sin(x), "scores")
        return jnp.tanh((x + scores) @ gather(w)), None

    loss = lambda w, x: jax.lax.scan(layer, x, w)[0].sum()
    weights = array(mesh, (4, 64, 64), P(None, "x"))
    return jax.jit(jax.grad(loss)), (weights, array(mesh, (8, 64), P("x")))


def make_unused(devices):
    mesh = meshed(devices)
    words = {
        "expert": "x",
        "act_expert": "x",
    }
    split = lambda *names: NamedSharding(mesh, P(*[words.get(name) for name in names]))

    def apply(first, second, x):
        x = jax.lax.with_sharding_constraint(x, split("act_expert", None))
        return jnp.tanh(first * x), second * x

    axes = (("experts", "embed"), ("experts", "mlp"))
    weights = [S((8, 64), "float32", sharding=split(*names)) for names in axes]
    return jax.jit(apply), (*weights, S((8, 64), "float32"))


def make_odd(devices):
    mesh = meshed(devices)
    size = VOCABULARY
    spec = P("x") if size % 4 == 0 else P()
    return jax.jit(jnp.sin), (array(mesh, (size, 64), spec),)


def make_regathered(devices):
    mesh = meshed(devices)
    policy = jax.checkpoint_policies.everything_saveable

    def body(x, w):
        return jnp.tanh(x @ jax.lax.all_gather(w, "x", tiled=True)), None

    def layers(ws, x):
        return jax.lax.scan(jax.checkpoint(body, policy=policy), x, ws)[0]

    specs = (P(None, "x"), P("x"))
    mapped = jax.shard_map(layers, mesh=mesh, in_specs=specs, out_specs=P("x"))
    return jax.jit(jax.grad(lambda ws, x: mapped(ws, x).sum())), (
        array(mesh, (4, 64, 64), specs[0]), array(mesh, (8, 64), specs[1]))


def make_kept(devices):
    mesh = meshed(devices)
    saved = [
        "out",
        "weights",
    ]
    policy = jax.checkpoint_policies.save_only_these_names(*saved)

    def body(x, w):
        w = checkpoint_name(jnp.tanh(w), "weights")
        return checkpoint_name(jnp.tanh(x @ w), "out"), None

    def loss(ws, x):
        return jax.lax.scan(jax.checkpoint(body, policy=policy), x, ws)[0].sum()

    return jax.jit(jax.grad(loss)), (array(mesh, (4, 64, 64), P()), array(mesh, (8, 64), P("x")))


LARGE = 1 << 14


def make_sized(devices):
    mesh = meshed(devices)
    spec = lambda rows: P("x") if rows >= LARGE else P()
    rows = {"user": 1 << 15, "item": 1 << 13, "day": 64}
    tables = {name: array(mesh, (count, 64), spec(count)) for name, count in rows.items()}
    return jax.jit(lambda tables: jax.tree.map(jnp.sin, tables)), (tables,)


def make_ranked(devices):
    mesh = meshed(devices)

    def spec(shape):
        if len(shape) == 2:
            return P("x")
        return P()

    shapes = {"embedding": (512, 64), "layers": (4, 512, 64), "bias": (64,)}
    tables = {name: array(mesh, shape, spec(shape)) for name, shape in shapes.items()}
    return jax.jit(lambda tables: jax.tree.map(jnp.sin, tables)), (tables,)


def make_prefixed(devices):
    mesh = meshed(devices)
    spec = lambda name: P("x") if not name.startswith("opt") else P()
    names = ("params", "opt_mu")
    return jax.jit(lambda *ws: [jnp.sin(w) for w in ws]), tuple(
        array(mesh, (64, 64), spec(name)) for name in names
    )


def make_repeated(devices):
    mesh = meshed(devices)
    spec = lambda name: P() if name == EXTRA else P("x")
    tables = {name: array(mesh, (64, 64), spec(name)) for name in ("user", "item")}
    state = ({"sums": dict(tables)}, S((), "int32"))
    return jax.jit(lambda tables, state: (tables, state)), (tables, state)


EXTRA = "item"


def make_excepted(devices):
    mesh = meshed(devices)
    kept = (
        "norm",
        "head",
    )
    spec = lambda name: P() if any(part in name for part in kept) else P("x")
    shapes = {"head": (512, 64), "layer": (512, 64), "norm": (64,)}
    tables = {name: array(mesh, shapes[name], spec(name)) for name in ("head", "layer", "norm")}
    return jax.jit(lambda tables: jax.tree.map(jnp.sin, tables)), (tables,)


LOGICAL = (
    ("tokens", "x"),
    ("length", None),
    ("width", "y"),
)


def make_narrow_batch(devices):
    mesh = meshed(devices)
    spec = lambda rules, *names: P(*[rules[name] for name in names])
    batch = array(mesh, (64, 64), spec(dict(LOGICAL), "tokens", "length"))
    weights = array(mesh, (4096,), spec(dict(LOGICAL), "width"))
    return jax.jit(lambda batch, w: (batch.sum(), w + 1)), (batch, weights)


TILES, BANDS = ("x", "y"), ("x", None)


def laid_out(mesh, *axes):
    def wrap(function):
        def inner(value):
            sharding = NamedSharding(mesh, P(*axes))
            return jax.lax.with_sharding_constraint(function(value), sharding)

        return inner

    return wrap


def make_decorated(devices):
    mesh = meshed(devices)

    @laid_out(mesh, *TILES)
    def advance(field):
        return field * 2

    @laid_out(mesh, *BANDS)
    def snapshot(field):
        return field + 1

    @laid_out(mesh, *BANDS)
    def small(field):
        return field[:4] + 1

    def step(field):
        field = advance(field)
        return field, snapshot(field), small(field)

    return jax.jit(step), (array(mesh, (64, 64), P(*TILES)),)


COLUMNS = P("x", "y")
SLABS = P(("x", "y"))
PENCILS = {
    "first": P("x"),
    "any": P(),
}


def make_slabs(devices):
    mesh = meshed(devices)
    columns, slabs = NamedSharding(mesh, COLUMNS), NamedSharding(mesh, SLABS)
    step = jax.jit(
        lambda field: (field + 1, field.sum()),
        out_shardings=(slabs, NamedSharding(mesh, P())),  # chosen
    )
    return step, (S((64, 64), "float32", sharding=columns),)


def make_pencils(devices):
    mesh = meshed(devices)
    to = lambda field, layout: jax.lax.with_sharding_constraint(
        field, NamedSharding(mesh, PENCILS[layout]))

    def step(field):
        field = to(field * 2, "any")  # on the way
        return to(field + 1, "first")

    return jax.jit(step), (array(mesh, (64, 64), PENCILS["first"]),)


def make_tree(devices):
    mesh = meshed(devices)
    by_row = dict.fromkeys(("up", "down"), NamedSharding(mesh, P("x")))
    by_column = jax.tree.map(lambda one: NamedSharding(mesh, P(None, *one.spec)), by_row)
    step = jax.jit(
        lambda tree: jax.tree.map(jnp.sin, tree),
        in_shardings=(by_row,),
        out_shardings=by_column,  # of all
    )
    return step, (dict.fromkeys(("up", "down"), S((64, 64), "float32")),)


def make_pair(devices):
    mesh = meshed(devices)
    rows, whole = P("x"), P()
    places = {
        "users": (rows, rows),
        "items": (whole, whole),
        "rate": (whole, whole),
    }
    made = {name: [array(mesh, (64, 64), one) for one in pair] for name, pair in places.items()}
    return jax.jit(lambda made: jax.tree.map(jnp.sin, made)), (made,)


def named(tree, spec):
    return [(one, spec) for one in tree]


def unnamed(tree):
    return [(one, P()) for one, _ in tree]


def make_unnamed(devices):
    mesh = meshed(devices)
    weights = named([S((64, 64), "float32"), S((64,), "float32")], P("x"))
    moments = unnamed(weights)  # without their names
    state = {"weights": weights, "moments": moments}
    place = lambda pairs: [array(mesh, one.shape, spec) for one, spec in pairs]
    placed = {name: place(pairs) for name, pairs in state.items()}
    return jax.jit(lambda state: jax.tree.map(jnp.sin, state)), (placed,)


BATCH = {
    "tokens": "x",
    "model": "y",
}


def make_batch(devices):
    mesh = meshed(devices)
    split = NamedSharding(mesh, P(BATCH["tokens"]))

    def step(x, w):
        return jnp.tanh(jax.lax.with_sharding_constraint(x @ w, split))

    weights = NamedSharding(mesh, P(BATCH["model"]))
    shapes = S((64, 64), "float32"), S((64, 64), "float32")
    return jax.jit(step, in_shardings=(split, weights)), shapes


def make_slots(devices):
    mesh = meshed(devices)
    split, slots = NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P("x"))
    step = jax.jit(
        lambda token, cache: (token + 1, cache * 2),
        in_shardings=(slots, split),
        out_shardings=(
            slots,
            slots,  # returned
        ),
    )
    return step, (S((8,), "int32"), S((8, 64, 64), "float32"))


def make_shared(devices):
    mesh = meshed(devices)
    spec = P(None, "y")
    return jax.jit(lambda a, b: (a + 1, b + 1)), (
        array(mesh, (64, 64), spec), array(mesh, (64, 64), spec))
'''
