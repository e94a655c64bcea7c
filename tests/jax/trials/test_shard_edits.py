"""`hlomem.jax.shard`: changes of trees, of loops' bodies and of several arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hlomem.jax

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.report.data.sharding.finding import ShardingFinding

jax = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
new_only = pytest.mark.skipif(
    jax.__version_info__ < (0, 12), reason="the partitioner of older releases leaves other values"
)

pytestmark = pytest.mark.usefixtures("eight_devices")

MODEL = '''"""Models."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct


def _mesh(devices, *axes):
    return Mesh(np.array(devices).reshape([8] if len(axes) == 1 else [2, 4]), axes)


def make_emitted_tree(devices):
    mesh = _mesh(devices, "env")
    split, whole = NamedSharding(mesh, P("env")), NamedSharding(mesh, P())

    def play(state, *, keep):
        def step(state, _):
            moved = jnp.tanh(state) * 0.9
            return moved, keep({"state": state, "gain": moved.sum(axis=1)})

        return jax.lax.scan(step, state, None, length=32)

    keep = lambda tree: jax.lax.with_sharding_constraint(tree, whole)
    rollout = jax.jit(functools.partial(play, keep=keep), donate_argnums=0)
    return rollout, (S((512, 64), "float32", sharding=split),)


def make_gathered_result(devices):
    mesh = _mesh(devices, "hosts", "chips")
    spread = NamedSharding(mesh, P(("hosts", "chips")))

    def respond(x, centers):
        return jax.nn.softmax(x @ centers.T), x.sum()

    returned = (NamedSharding(mesh, P("hosts")), NamedSharding(mesh, P()))
    fn = jax.jit(respond, out_shardings=returned)
    centers = S((512, 64), "float32", sharding=NamedSharding(mesh, P()))
    return fn, (S((4096, 64), "float32", sharding=spread), centers)


def make_named_shardings(devices):
    mesh = _mesh(devices, "data")

    def split(tree, spec):
        return jax.tree.map(lambda _: NamedSharding(mesh, spec), tree)

    params = {"w": S((2048, 512), "float32"), "u": S((512, 2048), "float32")}
    shardings = (split(params, P("data")), split(params, P()))
    rows = NamedSharding(mesh, P("data"))

    def step(state, x):
        params, momentum = state
        grads = jax.grad(lambda p: jnp.mean(jnp.tanh(x @ p["w"]) @ p["u"]))(params)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum

    fn = jax.jit(step, in_shardings=(shardings, rows), out_shardings=shardings, donate_argnums=0)
    return fn, ((params, params), S((64, 2048), "float32"))


def _layer(x, p):
    return x + jnp.tanh(x @ p["up"] * p["scale"]) @ p["down"], None


def make_gathered_tree(devices):
    mesh = _mesh(devices, "data")
    array = lambda shape, *axes: S(shape, "float32", sharding=NamedSharding(mesh, P(*axes)))
    whole = NamedSharding(mesh, P())

    def loss(params, x):
        params = jax.lax.with_sharding_constraint(params, whole)
        x, _ = jax.lax.scan(jax.checkpoint(_layer), x, params["layers"])
        return jnp.mean(x + params["bias"])

    up, down = array((16, 128, 512), None, "data"), array((16, 512, 128), None, None, "data")
    layers = {"up": up, "down": down, "scale": array((16, 512))}
    step = jax.jit(lambda params, x: jax.tree.map(jnp.subtract, params, jax.grad(loss)(params, x)))
    return step, ({"layers": layers, "bias": array((128,))}, array((64, 128), "data"))


@dataclass(frozen=True)
class Config:
    mask: P = P(None, "expert")
    heads: int = 4


def _mask(config, x, w):
    chosen = jax.nn.softmax(x @ w)
    mask = chosen[:, :, None] * jnp.tanh(x)[:, None, :]
    mask = jax.lax.with_sharding_constraint(mask, config.mask)
    again = jnp.sort(mask, axis=2) * chosen[:, :, None]
    again = jax.lax.with_sharding_constraint(again, config.mask)
    return jnp.einsum("bed,bed->b", mask, jnp.sort(again, axis=2))


def make_masks(devices):
    mesh = _mesh(devices, "data", "expert")
    array = lambda shape, *axes: S(shape, "float32", sharding=NamedSharding(mesh, P(*axes)))

    def route(w, x):
        with mesh:
            return _mask(Config(), x, w)

    return jax.jit(route), (array((64, 16)), array((1024, 64), "data"))


def _block(config, cond, x, w):
    for name in ("up", "down"):
        x = jnp.tanh(x @ jax.lax.all_gather(w[name], "data", tiled=True) / config.heads + cond)
    return x, None


def make_partial(devices):
    mesh = _mesh(devices, "data")
    array = lambda shape, *axes: S(shape, "float32", sharding=NamedSharding(mesh, P(*axes)))

    def loss(w, x):
        body = functools.partial(_block, Config(), 0.5)
        x, _ = jax.lax.scan(body, x, w)
        return jnp.mean(x)

    split = P(None, "data")
    step = jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=(split, P("data")), out_specs=split)
    w = array((8, 256, 256), None, "data")
    return jax.jit(step), ({"up": w, "down": w}, array((64, 256), "data"))


def make_halves(devices):
    mesh = _mesh(devices, "data")
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    def step(params, moments, x):
        grads = jax.grad(lambda p: (jnp.tanh(x @ p["w"]) ** 2).mean())(params)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
        return jax.tree.map(lambda p, m: p - m, params, moments), moments

    placed = lambda to: {"a": None, "w": S((512, 512), "float32", sharding=to)}
    shardings = lambda to: {"a": None, "w": to}
    out = (shardings(split), shardings(whole))
    x = S((64, 512), "float32", sharding=split)
    step = jax.jit(step, donate_argnums=(0, 1), out_shardings=out)
    return step, (placed(split), placed(whole), x)


def _look_up(params, moments, ids):
    def loss(params):
        return jnp.mean(sum(params["tables"][name][ids] for name in params["tables"]) ** 2)

    grads = jax.grad(loss)(params)
    moments = jax.tree.map(lambda m, g: m + g * g, moments, grads)
    return jax.tree.map(lambda p, m, g: p - g / (m + 1), params, moments, grads), moments


def make_tables(devices):
    mesh = _mesh(devices, "data")
    rules = {"user": P("data"), "item": P("data"), "query": P("data"), "ad": P()}
    tables = {name: S((8192, 64), "float32") for name in rules}
    places = jax.tree.map(lambda spec: NamedSharding(mesh, spec), {"tables": rules})
    made = jax.tree.map(lambda s, to: S(s.shape, s.dtype, sharding=to), {"tables": tables}, places)
    ids = S((512,), "int32", sharding=NamedSharding(mesh, P("data")))
    step = jax.jit(_look_up, donate_argnums=(0, 1), out_shardings=(places, places))
    return step, (made, made, ids)


def make_moments(devices):
    mesh = _mesh(devices, "data")
    shapes = [{"w": S((512, 512), "float32"), "b": S((512,), "float32")} for _ in range(2)]
    put = lambda tree, spec: jax.tree.map(
        lambda s: S(s.shape, s.dtype, sharding=NamedSharding(mesh, spec)), tree
    )

    def step(state, x):
        def loss(layers):
            return jnp.mean(functools.reduce(lambda x, p: jnp.tanh(x @ p["w"] + p["b"]), layers, x))

        moments = jax.tree.map(jnp.add, state[1], jax.grad(loss)(state[0]))
        return jax.tree.map(jnp.subtract, state[0], moments), moments

    params = put(shapes, P("data"))
    moments = put(shapes, P())
    x = put(S((64, 512), "float32"), P("data"))
    return jax.jit(step, donate_argnums=0), ((params, moments), x)


def make_constrained_leaves(devices):
    mesh = _mesh(devices, "env")
    array = lambda *shape: S(shape, "float32", sharding=NamedSharding(mesh, P("env")))

    def step(state, _):
        state = jax.tree.map(jnp.tanh, state)
        places = jax.tree.map(lambda _: NamedSharding(mesh, P()), state)
        return state, jax.tree.map(jax.lax.with_sharding_constraint, state, places)

    rollout = jax.jit(lambda state: jax.lax.scan(step, state, None, length=32))
    return rollout, ({"at": array(512, 64), "of": array(512)},)


def _sorted(x, w):
    def layer(x, _):
        x = jnp.sort(jnp.tanh(x @ w), axis=1)
        return x, x.astype(jnp.bfloat16)

    return jax.lax.scan(layer, x.mean(axis=0), None, length=32)[1]


def make_traced_twice(devices):
    where = _mesh(devices, "data")
    x = S((64, 512, 64), "float32", sharding=NamedSharding(where, P("data")))
    w = S((64, 64), "float32", sharding=NamedSharding(where, P()))
    jax.eval_shape(_sorted, x, w)
    return jax.jit(lambda x, w: jnp.cumsum(_sorted(x, w), axis=0).sum(axis=(1, 2))), (x, w)


def _fitting(mesh, shape, axes):
    sizes = dict(mesh.shape)
    kept = [a if a and n % sizes[a] == 0 else None for n, a in zip(shape, axes, strict=True)]
    return NamedSharding(mesh, P(*kept))


def _put(mesh, x, *axes):
    return jax.lax.with_sharding_constraint(x, _fitting(mesh, x.shape, axes))


def make_dropped(devices):
    mesh = _mesh(devices, "data", "model")
    array = lambda shape, *axes: S(shape, "float32", sharding=_fitting(mesh, shape, axes))

    def loss(params, x):
        hidden = _put(mesh, jnp.tanh(x @ params["w"]), "data", "model")
        return jnp.mean(_put(mesh, jnp.tanh(hidden @ params["v"]), "data", "model") ** 2)

    w = array((64, 512), None, "model")
    v = array((512, 8190), None, "model")
    step = jax.jit(lambda params, x: jax.tree.map(jnp.subtract, params, jax.grad(loss)(params, x)))
    return step, ({"w": w, "v": v}, array((64, 64), "data", None))


VOCABULARY = 8186


def _spec_of(mesh, shape, *axes):
    kept = [a if a and n % dict(mesh.shape)[a] == 0 else None for n, a in zip(shape, axes)]
    return P(*kept)


def make_odd_vocabulary(devices):
    mesh = _mesh(devices, "data", "model")
    shapes = {"embed": (VOCABULARY, 64), "up": (64, 512)}
    axes = {"embed": ("model", None), "up": (None, "model")}
    specs = {name: _spec_of(mesh, shapes[name], *axes[name]) for name in shapes}

    def loss(params, x):
        logits = jnp.tanh(x @ params["up"] @ params["up"].T) @ params["embed"].T
        logits = jax.lax.with_sharding_constraint(
            logits, NamedSharding(mesh, _spec_of(mesh, logits.shape, "data", "model")))
        return jnp.mean(jax.nn.logsumexp(logits, axis=1))

    array = lambda shape, spec: S(shape, "float32", sharding=NamedSharding(mesh, spec))
    params = {name: array(shapes[name], specs[name]) for name in shapes}
    step = jax.jit(lambda params, x: jax.tree.map(jnp.subtract, params, jax.grad(loss)(params, x)))
    return step, (params, array((256, 64), P("data")))


def make_coarse_medium(devices):
    mesh = _mesh(devices, "rows", "columns")
    array = lambda *axes: S((512, 256, 16), "float32", sharding=NamedSharding(mesh, P(*axes)))
    medium = {"speed": array("rows"), "loss": array("rows")}  # the medium

    def move(field, medium):
        return medium["loss"] * field + medium["speed"] * jnp.roll(field, 1, 2)

    return jax.jit(move, donate_argnums=0), (array("rows", "columns"), medium)


class Places:
    def __init__(self, mesh):
        self.mesh = mesh

    def fits(self, size, axis):
        return axis is not None and size % self.mesh.shape[axis] == 0

    def array(self, shape, *axes):
        kept = [axis if self.fits(size, axis) else None for size, axis in zip(shape, axes)]
        return S(shape, "float32", sharding=NamedSharding(self.mesh, P(*kept)))


@dataclass
class Experts:
    count: int = 60
    axis: str | None = "data"


def make_odd_experts(devices, experts=Experts()):
    places = Places(_mesh(devices, "data"))
    up = places.array((experts.count, 64, 256), experts.axis, None, None)
    down = places.array((experts.count, 256, 64), experts.axis, None, None)

    def choose(weights, x):
        inner = jnp.tanh(jnp.einsum("btd,edf->btef", x, weights["up"]))
        return jnp.einsum("btef,efd->btd", inner, weights["down"])

    return jax.jit(choose), ({"up": up, "down": down}, places.array((8, 4, 64), "data", None, None))


def make_whole_experts(devices):
    return make_odd_experts(devices, Experts(axis=None))


def make_history(devices):
    mesh = _mesh(devices, "rows", "columns")
    frame = P("rows")  # of a step
    field, kept = NamedSharding(mesh, P("rows", "columns")), NamedSharding(mesh, frame)

    def step(field, _):
        field = jnp.roll(field, 1, 0) * 0.9
        return field, jax.lax.with_sharding_constraint(field, kept)

    run = lambda field: jax.lax.scan(step, field, None, length=16)
    results = field, NamedSharding(mesh, P(None, *frame))
    return jax.jit(run, donate_argnums=0, out_shardings=results), (
        S((512, 512), "float32", sharding=field),
    )


def _rows(users):
    return users + 1  # and nobody


def make_odd_users(devices):
    mesh = _mesh(devices, "data", "model")

    def array(shape, *axes):
        many = lambda axis: np.prod([mesh.shape[name] for name in jax.tree.leaves(axis)], dtype=int)
        ways = [many(axis) for axis in axes]
        kept = [axis if size % way == 0 else None for axis, size, way in zip(axes, shape, ways)]
        return S(shape, "float32", sharding=NamedSharding(mesh, P(*kept)))

    table = array((_rows(40_000), 63), ("data", "model"), None)

    def step(table, ids):
        loss = lambda table: jnp.sum(jnp.take(table, ids, axis=0) ** 2)
        return table - jax.grad(loss)(table)

    return jax.jit(step, donate_argnums=0), (table, S((64,), "int32"))


def make_whole_batch(devices):
    mesh = _mesh(devices, "data")
    specs = {"image": P(), "w": P()}
    shapes = {"image": (4096, 256), "w": (256, 256)}
    made = {name: S(shapes[name], "float32", sharding=NamedSharding(mesh, specs[name]))
            for name in shapes}
    loss = lambda w, batch: jnp.mean(jnp.tanh(batch["image"] @ w) ** 2)
    step = jax.jit(lambda params, batch: params["w"] - jax.grad(loss)(params["w"], batch))
    return step, ({"w": made["w"]}, {"image": made["image"]})
'''


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    (folder / "model.py").write_text(MODEL)
    return folder


def _first(model: Path, name: str) -> ShardingFinding:
    report = hlomem.jax.shard(f"{model}/model.py:{name}", cache=model / "cache")
    return report.findings[0]


def _at(model: Path, text: str) -> str:
    return f"{model}/model.py:{MODEL[: MODEL.index(text)].count(chr(10)) + 1}"


@new_only
def test_a_tree_that_a_loop_stacks_whole_is_named_where_that_is_asked_for(model: Path) -> None:
    first = _first(model, "make_emitted_tree")
    assert first.kind == "stack"
    # What only places is called once; the spec that decides is chosen where it is defined.
    assert first.source == _at(model, "    keep = lambda tree")
    assert _at(model, "            return moved, keep(") in [link.line for link in first.chain]
    # The leaves have one dimension and two: the first is split.
    assert "with_sharding_constraint(tree, NamedSharding(mesh, P('env')))" in first.how
    # 32 steps of [512, 64], of which one device keeps an eighth.
    assert first.got is not None
    assert first.got >= 3 << 20


def test_a_constraint_that_gathers_a_tree_is_left_out(model: Path) -> None:
    first = _first(model, "make_gathered_tree")
    assert first.kind == "gathered"
    assert first.source == _at(model, "        params = jax.lax.with_sharding")
    # No one sharding is that of every leaf.
    assert "+        params = params" in first.how
    assert first.got is not None
    assert first.got >= 4 << 20


def test_constraints_without_the_axis_of_the_inputs_are_changed_together(model: Path) -> None:
    first = _first(model, "make_masks")
    assert first.kind == "replicated"
    assert first.source == _at(model, '    mask: P = P(None, "expert")')
    assert '+    mask: P = P("data", "expert")' in first.how
    assert first.got is not None
    assert first.got > 0


def test_a_loop_whose_body_is_partly_applied_is_recomputed(model: Path) -> None:
    first = _first(model, "make_partial")
    assert first.kind == "gathered"
    assert first.source == _at(model, "        x = jnp.tanh(x @ jax.lax.all_gather")
    # 8 layers of two whole [256, 256].
    assert first.got is not None
    assert first.got >= 2 << 20


def test_results_among_which_is_none_are_given_other_shardings(model: Path) -> None:
    first = _first(model, "make_halves")
    assert first.kind == "optimizer"
    assert first.change.results == {"result[1]['w']": "P('data')"}
    assert first.got is not None
    assert first.got > 0


def test_what_an_optimizer_keeps_of_a_whole_parameter_is_told_with_it(model: Path) -> None:
    first = _first(model, "make_tables")
    assert first.kind == "replicated"
    assert first.names == ("params['tables']['ad']", "moments['tables']['ad']")
    assert first.source == _at(model, '    rules = {"user"')
    # Seven eighths of two tables of 2 MiB.
    assert first.got is not None
    assert first.got >= 3 << 20


def test_small_arguments_of_the_same_tree_do_not_hide_the_line(model: Path) -> None:
    first = _first(model, "make_moments")
    assert first.kind == "optimizer"
    assert first.source == _at(model, "    moments = put(shapes, P())")


@new_only
def test_a_constraint_that_is_mapped_over_a_tree_is_put_on_the_tree(model: Path) -> None:
    first = _first(model, "make_constrained_leaves")
    assert first.kind == "stack"
    assert first.source == _at(model, "        return state, jax.tree.map(jax.lax")
    assert "+        places = " in first.how  # which that line puts on the tree


def test_a_constraint_without_a_mesh_is_none_while_a_factory_traces(model: Path) -> None:
    report = hlomem.jax.shard(f"{model}/model.py:make_traced_twice", cache=model / "cache")
    compiled = [one for one in report.findings if one.change.has_mesh]
    assert compiled
    assert all(one.got is not None for one in compiled)


def test_an_axis_that_a_helper_leaves_out_is_dropped(model: Path) -> None:
    first = _first(model, "make_dropped")
    assert first.kind == "dropped"
    assert first.names[0] == "params['v']"
    assert first.source == _at(model, "    v = array((512, 8190)")
    assert first.got is not None
    assert first.got >= 8 << 20


def test_a_size_that_no_axis_divides_is_made_one_that_they_do(model: Path) -> None:
    first = _first(model, "make_odd_vocabulary")
    assert (first.kind, first.names[0]) == ("dropped", "params['embed']")
    assert first.source == _at(model, "VOCABULARY = 8186")
    assert "-VOCABULARY = 8186\n+VOCABULARY = 8188" in first.how
    assert "8188 instead of 8186: what is added has to count for nothing" in first.why
    # Logits of [128, 8186] on each device, in parts of a quarter, and the gradient of a table.
    assert first.got is not None
    assert first.got >= 4 << 20


def test_data_that_is_split_less_than_an_array_of_its_sizes_is_told(model: Path) -> None:
    first = _first(model, "make_coarse_medium")
    assert first.kind == "replicated"
    assert first.source == _at(model, '    medium = {"speed"')
    assert set(first.names) == {"medium['speed']", "medium['loss']"}
    assert set(first.change.arguments.values()) == {"P('rows', 'columns')"}
    # Two volumes of 8 MiB: a half of each on a device, then an eighth.
    assert first.got is not None
    assert first.got >= 6 << 20


def test_weights_that_a_method_leaves_whole_are_dropped(model: Path) -> None:
    first = _first(model, "make_odd_experts")
    assert first.kind == "dropped"
    assert first.source == _at(model, "    count: int = 60")
    assert set(first.names) == {"weights['up']", "weights['down']"}
    assert first.got is not None
    assert first.got >= 5 << 20


def test_weights_that_were_to_be_whole_are_not_dropped(model: Path) -> None:
    # So large a part of the memory is told, but nothing was left out.
    assert _first(model, "make_whole_experts").kind == "replicated"


def test_a_result_that_a_loop_stacks_is_told_with_what_it_stacks(model: Path) -> None:
    first = _first(model, "make_history")
    assert first.kind == "stack"
    assert first.source == _at(model, '    frame = P("rows")')
    assert dict(first.change.results) == {"result[1]": "P(None, 'rows', 'columns')"}
    assert '+    frame = P("rows", "columns")' in first.how
    # Sixteen fields of 1 MiB: a half of them on a device, then an eighth.
    assert first.got is not None
    assert first.got >= 6 << 20


def test_a_size_is_rounded_up_where_it_is_computed(model: Path) -> None:
    first = _first(model, "make_odd_users")
    assert first.kind == "dropped"
    assert first.source == _at(model, "    return users + 1")
    assert "+    return -(-(users + 1) // 8) * 8  # and nobody" in first.how
    assert first.got is not None
    assert first.got >= 8 << 20


def test_inputs_that_the_only_axis_does_not_split_are_told_before_what_they_make(
    model: Path,
) -> None:
    report = hlomem.jax.shard(f"{model}/model.py:make_whole_batch", cache=model / "cache")
    first = report.findings[0]
    assert first.names == ("batch['image']",)
    assert first.source == _at(model, '    specs = {"image": P()')


@new_only
def test_a_result_that_is_gathered_to_be_returned_is_told(model: Path) -> None:
    first = _first(model, "make_gathered_result")
    assert first.kind == "replicated"
    assert first.source == _at(model, '    returned = (NamedSharding(mesh, P("hosts"))')
    assert first.change.results == {"result[0]": "P(('hosts', 'chips'))"}
    # [4096, 512] on two hosts' chips: a half, then an eighth.
    assert first.got is not None
    assert first.got >= 3 << 20


def test_shardings_that_are_a_variable_have_the_line_that_assigns_it(model: Path) -> None:
    first = _first(model, "make_named_shardings")
    assert first.source == _at(model, "    shardings = (split(params")
