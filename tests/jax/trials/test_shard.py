"""`hlomem.jax.shard`: lines of the user's code, and changes that XLA compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import hlomem.jax
from hlomem.base.errors import CommandError

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.report.data.shard import ShardReport

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

pytestmark = pytest.mark.usefixtures("eight_devices")

MODEL = '''"""A model."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct


def _step(params, opt_state, x):
    def loss(params):
        return (jnp.tanh(x @ params["w"]) ** 2).mean()

    grads = jax.grad(loss)(params)
    opt_state = jax.tree.map(lambda m, g: 0.9 * m + g, opt_state, grads)
    return jax.tree.map(lambda p, m: p - m, params, opt_state), opt_state


def make_state(devices):
    mesh = Mesh(np.array(devices), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    params = {"w": S((512, 512), "float32", sharding=split)}
    opt_state = {"w": S((512, 512), "float32", sharding=whole)}
    x = S((64, 512), "float32", sharding=split)
    return jax.jit(_step, donate_argnums=(0, 1)), (params, opt_state, x)


def make_returned(devices):
    mesh = Mesh(np.array(devices), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    params = S((1024, 512), "float32", sharding=split)
    step = jax.jit(lambda params: params * 2 + 1, donate_argnums=0, out_shardings=whole)
    return step, (params,)


def make_constrained(devices):
    mesh = Mesh(np.array(devices), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    @jax.jit
    def spread(x):
        y = jax.lax.with_sharding_constraint(jnp.sort(x, axis=1), whole)
        return jnp.sort(jnp.sin(y), axis=1).sum(axis=1)

    return spread, (S((1024, 1024), "float32", sharding=split),)


def make_placed(devices):
    mesh = Mesh(np.array(devices), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    look_up = jax.jit(
        lambda table, ids: jnp.tanh(table[ids]).mean(1),
        in_shardings=(
            whole,  # of the table
            split,
        ),
        out_shardings=split,
    )
    return look_up, (S((65536, 64), "float32"), S((512, 8), "int32"))


def _fsdp(devices, fsdp, split):
    mesh = Mesh(np.array(devices).reshape(-1, fsdp), ("data", "fsdp"))
    weights = {"w": NamedSharding(mesh, P("fsdp"))}
    batch = NamedSharding(mesh, P(split))

    def step(params, opt_state, x, rate):
        def loss(params):
            hidden = params["w"][x]
            for _ in range(3):
                hidden = jax.lax.with_sharding_constraint(hidden, batch)
                hidden = jnp.tanh(hidden @ params["w"])
            return (hidden**2).mean()

        grads = jax.grad(loss)(params)
        opt_state = jax.tree.map(lambda m, g: 0.9 * m + g, opt_state, grads)
        return jax.tree.map(lambda p, m: p - rate * m, params, opt_state), opt_state

    jitted = jax.jit(
        step,
        in_shardings=(weights, weights, batch),
        out_shardings=(weights, weights),
        static_argnums=3,
        donate_argnums=(0, 1),
    )
    params = opt_state = {"w": S((512, 512), "float32")}
    return jitted, (params, opt_state, S((8192,), "int32"), 0.1)


def make_whole_batch(devices):
    return _fsdp(devices, 8, "data")


def make_split_batch(devices):
    return _fsdp(devices, 8, ("data", "fsdp"))


def make_decode(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "tensor"))
    placed = lambda shape, *axes: S(shape, "float32", sharding=NamedSharding(mesh, P(*axes)))
    weights = [{"w": placed((1024, 2048), None, "tensor")} for _ in range(2)]
    cache = [{"k": placed((8, 512, 64), "data", None, "tensor")} for _ in range(2)]
    encoded = [{"k": placed((8, 1024, 64), "data", None, "tensor")} for _ in range(2)]

    def step(weights, cache, encoded, x):
        new = []
        for w, own, other in zip(weights, cache, encoded):
            new.append({"k": jax.lax.dynamic_update_slice_in_dim(own["k"], x[:, None, :64], 0, 1)})
            score = jnp.einsum("bk,bsk->bs", x[:, :64], other["k"])
            x = x + (score @ w["w"])[:, :1024]
        return new, x

    shardings = jax.tree.map(lambda leaf: leaf.sharding, cache)
    step = jax.jit(step, donate_argnums=1, out_shardings=(shardings, None))
    return step, (weights, cache, encoded, S((8, 1024), "float32"))


def make_plain(devices):
    mesh = Mesh(np.array(devices), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    params = opt_state = {"w": S((512, 512), "float32", sharding=whole)}
    x = S((4096, 512), "float32", sharding=split)
    return jax.jit(_step, donate_argnums=(0, 1)), (params, opt_state, x)


def make_dead(devices):
    mesh = Mesh(np.array(devices), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    @jax.jit
    def distances(x):
        square = jnp.abs(x[:, None] - x[None])
        kept = jax.lax.with_sharding_constraint(square, split)
        return jnp.sort(square if square.ndim == 2 else kept, axis=1)[:, :4]

    return distances, (S((2048,), "float32", sharding=whole),)


def make_handed_back(devices):
    mesh = Mesh(np.array(devices), ("data",))

    def place(tree):
        def one(x):
            spec = P("data") if x.ndim == 2 else P()
            return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

        return jax.tree.map(one, tree)

    def create(key):
        params = {"b": jnp.zeros(512), "w": jax.random.normal(key, (1024, 512))}
        placed = place(params)
        return params, sum(one.size for one in placed.values())

    return jax.jit(create), (S((2,), "uint32", sharding=NamedSharding(mesh, P())),)


AXES = {"rows": "data", "columns": "tensor"}


def make_configured(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("data", "model"))

    def place(*names):
        return NamedSharding(mesh, P(*[one if one in mesh.shape else None for one in names]))

    w = S((2048, 2048), "float32", sharding=place(AXES["rows"], AXES["columns"]))
    x = S((64, 2048), "float32", sharding=NamedSharding(mesh, P("data", "model")))
    return jax.jit(lambda w, x: w - x.T @ (x @ w)), (w, x)


def make_hoisted(devices):
    mesh = Mesh(np.array(devices), ("data",))

    def whole(ws):
        return jax.lax.all_gather(ws.astype("bfloat16"), "data", axis=1, tiled=True)

    def loss(ws, x):
        every = whole(ws)
        body = jax.checkpoint(lambda x, w: (jnp.tanh(x @ w), None))
        return jnp.sum(jax.lax.scan(body, x, every)[0].astype("float32"))

    split = P(None, "data"), P("data")
    grads = jax.shard_map(
        jax.grad(loss), mesh=mesh, in_specs=split, out_specs=split[0], check_vma=False
    )
    ws = S((16, 512, 512), "float32", sharding=NamedSharding(mesh, split[0]))
    return jax.jit(grads), (ws, S((64, 512), "bfloat16", sharding=NamedSharding(mesh, split[1])))


def make_history(devices):
    mesh = Mesh(np.array(devices), ("data",))
    by_row = NamedSharding(mesh, P("data"))

    def run(start, inputs):
        def step(x, u):
            x = jnp.tanh(0.9 * x + u)
            return x, x

        _, history = jax.lax.scan(step, start, inputs)
        history = jax.lax.with_sharding_constraint(history, by_row)
        last, _ = jax.lax.scan(lambda x, y: (jnp.sort(x, axis=1) + y, None), start, history)
        return last

    inputs = S((256, 2048, 8), "float32", sharding=NamedSharding(mesh, P(None, "data")))
    return jax.jit(run), (S((2048, 8), "float32", sharding=by_row), inputs)


def make_pairs(devices):
    mesh = Mesh(np.array(devices), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    def kernel(a, b):
        return jnp.exp(-jnp.abs(a[:, None] - b[None]))

    def predict(points, values, targets):
        matrix = kernel(points, points)
        solved = jax.lax.fori_loop(0, 9, lambda _, x: values - 0.1 * (matrix @ x), values)
        return kernel(targets, points) @ solved

    points = S((2048,), "float32", sharding=whole)
    return jax.jit(predict), (points, points, S((512,), "float32", sharding=split))


RULES = (("rows", "data"), ("columns", "model"))


def make_rows(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("data", "model"))

    def place(*names):
        return NamedSharding(mesh, P(*map(dict(RULES).get, names)))

    w = S((2048, 2048), "float32", sharding=place("rows", "model"))
    x = S((64, 2048), "float32", sharding=place("rows"))
    return jax.jit(lambda w, x: w - x.T @ (x @ w)), (w, x)


def make_loop(devices):
    mesh = Mesh(np.array(devices), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    def loss(w, x):
        x = jax.lax.with_sharding_constraint(x, whole)
        return jnp.mean(jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, 32)[0])

    step = jax.jit(lambda w, x: w - jax.grad(loss)(w, x))
    return step, (S((64, 64), "float32", sharding=whole), S((2048, 64), "float32", sharding=split))


def _pin(mesh, x, *axes):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))


def make_emitted(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
    array = lambda shape, *axes: S(shape, "float32", sharding=NamedSharding(mesh, P(*axes)))

    def layer(x, w):
        hidden = jnp.tanh(x @ w["up"])
        return x + hidden @ w["down"], _pin(mesh, hidden, "data")

    up, down = array((16, 64, 512), None, None, "model"), array((16, 512, 64), None, "model")
    layers = jax.jit(lambda params, x: jax.lax.scan(layer, x, params))
    return layers, ({"up": up, "down": down}, array((256, 64), "data"))


def make_graph(devices):
    mesh = Mesh(np.array(devices), ("graph",))
    array = lambda shape, *axes: S(shape, "float32", sharding=NamedSharding(mesh, P(*axes)))
    graph = {
        "nodes": array((4096, 64), "graph"),
        "edges": array((65536, 8)),
        "senders": S((65536,), "int32", sharding=NamedSharding(mesh, P())),
    }

    def loss(params, graph):
        sent = graph["nodes"][graph["senders"]]
        edges = jnp.tanh(jnp.concatenate([graph["edges"], sent], 1) @ params)
        return jnp.mean(edges**2)

    return jax.jit(jax.grad(loss)), (array((72, 256)), graph)


def make_unknown(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
    known = lambda axis: axis if axis in mesh.axis_names else None
    place = lambda *axes: NamedSharding(mesh, P(*map(known, axes)))

    def loss(w, x):
        logits = jax.lax.with_sharding_constraint(x @ w, place("data", "vocab"))
        return jnp.mean(jax.nn.logsumexp(logits, -1) - logits[:, 0])

    w = S((64, 8192), "float32", sharding=place(None, "model"))
    return jax.jit(jax.grad(loss)), (w, S((1024, 64), "float32", sharding=place("data")))


def make_statistics(devices):
    mesh = Mesh(np.array(devices), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    w = S((512, 1024), "float32", sharding=split)
    rows = S((512, 512), "float32", sharding=whole)
    columns = S((1024, 1024), "float32", sharding=whole)
    state = {"params": {"w": w}, "opt_state": {"rows": {"w": rows}, "columns": {"w": columns}}}

    def step(state, x):
        g = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(state["params"]["w"])
        rows = state["opt_state"]["rows"]["w"] + g @ g.T
        columns = state["opt_state"]["columns"]["w"] + g.T @ g
        w = state["params"]["w"] - g / (rows.mean() * columns.mean())
        return {"params": {"w": w}, "opt_state": {"rows": {"w": rows}, "columns": {"w": columns}}}

    placed = jax.tree.map(lambda one: one.sharding, state)
    return jax.jit(step, donate_argnums=0, out_shardings=placed), (
        state, S((256, 512), "float32", sharding=split))


def make_rollout(devices):
    mesh = Mesh(np.array(devices), ("env",))
    whole = NamedSharding(mesh, P())

    def step(state, key):
        force = jnp.roll(state["x"], 1, 1) + 0.1 * jax.random.normal(key, state["x"].shape)
        v = state["v"] + 0.05 * force
        return {"x": state["x"] + 0.05 * v, "v": v}, (state["x"], jnp.cos(v), force)

    def loss(w, key):
        x, v = jax.random.normal(key, (2, 4096, 64))
        _, kept = jax.lax.scan(step, {"x": x, "v": v}, jax.random.split(key, 16))  # of all
        return jnp.mean(jnp.sin(jnp.concatenate(kept, -1) @ w))

    arguments = S((192, 64), "float32", sharding=whole), S((2,), "uint32", sharding=whole)
    return jax.jit(jax.grad(loss), out_shardings=whole), arguments


def make_mapped(devices):
    mesh = Mesh(np.array(devices), ("data",))
    shapes = {name: {"w": S((512, 512), "float32")} for name in ("params", "opt_state")}
    spec = lambda path: P("data") if path[0].key == "params" else P()
    places = jax.tree_util.tree_map_with_path(lambda at, _: NamedSharding(mesh, spec(at)), shapes)
    state = jax.tree.map(lambda s, to: S(s.shape, s.dtype, sharding=to), shapes, places)
    step = lambda state, x: _step(state["params"], state["opt_state"], x)
    x = S((64, 512), "float32", sharding=NamedSharding(mesh, P("data")))
    return jax.jit(step, donate_argnums=0), (state, x)
'''


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    (folder / "model.py").write_text(MODEL)
    return folder


def _shard(model: Path, name: str, **options: Any) -> ShardReport:
    return hlomem.jax.shard(f"{model}/model.py:{name}", cache=model / "cache", **options)


def _line(text: str) -> int:
    return MODEL[: MODEL.index(text)].count("\n") + 1


def test_an_argument_has_the_line_that_made_it_and_its_change_is_compiled(model: Path) -> None:
    [finding] = _shard(model, "make_state").findings
    assert finding.kind == "optimizer"
    assert finding.source == f"{model}/model.py:{_line('opt_state = {')}"
    assert finding.change.arguments == {"opt_state['w']": "P('data')"}
    # 1 MiB becomes 128 KiB, and the result takes its memory.
    assert finding.got is not None
    assert finding.got == pytest.approx(finding.promised, rel=0.02)


def test_a_result_that_jit_returns_otherwise_is_named_at_jit(model: Path) -> None:
    [finding] = _shard(model, "make_returned").findings
    assert finding.kind == "donated"
    assert finding.source == f"{model}/model.py:{_line('step = jax.jit(lambda')}"
    assert finding.change.results == {"result": "P('data')"}
    assert finding.got is not None
    assert finding.got > 2 << 20


def test_a_constraint_is_replaced_in_the_source(model: Path) -> None:
    first = _shard(model, "make_constrained").findings[0]
    assert first.source == f"{model}/model.py:{_line('y = jax.lax')}"
    assert "+        y = jax.lax.with_sharding_constraint(jnp.sort(x, axis=1)," in first.how
    assert 'NamedSharding(mesh, P("data"))' in first.how
    assert first.got is not None
    assert first.got > 0
    assert (model / "model.py").read_text() == MODEL


def test_an_argument_that_jit_places_is_named_in_in_shardings(model: Path) -> None:
    [finding] = _shard(model, "make_placed").findings
    assert finding.kind == "replicated"
    assert finding.source == f"{model}/model.py:{_line('            whole,  # of')}"
    assert finding.names == ("table",)
    # 16 MiB become 2 MiB.
    assert finding.got is not None
    assert finding.got > 10 << 20


def test_a_model_on_every_device_is_a_choice_where_only_data_are_split(model: Path) -> None:
    assert _shard(model, "make_plain").findings == ()


def test_weights_are_not_held_to_what_is_kept_of_an_input(model: Path) -> None:
    # `encoded` is called as the cache that is returned is, and has another shape.
    assert _shard(model, "make_decode", is_tried=False).findings == ()


def test_a_constraint_that_the_trace_does_not_use_is_named_first(model: Path) -> None:
    first = _shard(model, "make_dead").findings[0]
    assert first.kind == "dropped"
    assert first.source == f"{model}/model.py:{_line('        kept = jax.lax')}"
    assert "+        square = kept = jax.lax.with_sharding_constraint(square, split)" in first.how
    assert first.got is not None
    assert first.got > 8 << 20


def test_a_constraint_that_a_helper_hands_back_to_nobody_is_told_at_the_call(model: Path) -> None:
    first = _shard(model, "make_handed_back").findings[0]
    assert first.kind == "dropped"
    assert first.source == f"{model}/model.py:{_line('        placed = place(params)')}"
    # Seven eighths of 2 MiB, by the constraint of each leaf.
    assert first.got is not None
    assert first.got >= 7 << 18


def test_the_word_is_changed_that_no_axis_is_called(model: Path) -> None:
    first = _shard(model, "make_configured").findings[0]
    assert first.kind == "dropped"
    assert first.source == f"{model}/model.py:{_line('AXES = {')}"
    assert first.why.endswith("the mesh has no axis 'tensor'")
    assert '+AXES = {"rows": "data", "columns": "model"}' in first.how
    # Half of a weight that 4 of 8 devices split, at least.
    assert first.got is not None
    assert first.got >= 2 << 20


def test_a_constraint_is_told_that_splits_another_dimension_than_all_else(model: Path) -> None:
    first = _shard(model, "make_history").findings[0]
    assert first.source == f"{model}/model.py:{_line('        history = jax.lax.with')}"
    assert 'P(None, "data")' in first.how
    # Seven eighths of what the loop that reads it puts elsewhere, and more.
    assert first.got is not None
    assert first.got >= 3 << 20


def test_what_is_made_of_small_inputs_is_told_where_a_helper_is_called(model: Path) -> None:
    first = _shard(model, "make_pairs").findings[0]
    assert first.kind == "replicated"
    assert first.source == f"{model}/model.py:{_line('        matrix = kernel(points')}"
    assert "with_sharding_constraint(kernel(points, points), NamedSharding(mesh, P('data')))" in (
        first.how
    )
    # Seven eighths of 16 MiB.
    assert first.got is not None
    assert first.got >= 14 << 20


def test_a_row_is_told_that_nothing_uses_under_a_name_that_no_row_has(model: Path) -> None:
    first = _shard(model, "make_rows").findings[0]
    assert first.kind == "dropped"
    lines = [_line("RULES = ("), _line('    w = S((2048, 2048), "float32", sharding=place')]
    assert first.source in [f"{model}/model.py:{line}" for line in lines]
    # Half of a weight that 4 of 8 devices split, at least.
    assert first.got is not None
    assert first.got >= 2 << 20


def test_what_is_gathered_before_a_loop_is_gathered_in_it(model: Path) -> None:
    first, *others = _shard(model, "make_hoisted").findings
    assert first.kind == "gathered"
    assert first.source == f"{model}/model.py:{_line('        every = whole(ws)')}"
    assert "all_gather(part, 'data', …)" in first.how
    # Seven eighths of 16 weights of half a MiB.
    assert first.got is not None
    assert first.got >= 7 << 20
    assert not others


def test_a_stack_is_kept_whole_by_the_constraint_before_its_loop(model: Path) -> None:
    first = _shard(model, "make_loop").findings[0]
    assert first.kind == "stack"
    assert first.source == f"{model}/model.py:{_line('        x = jax.lax.with_sharding')}"


def test_a_stack_is_kept_whole_along_the_axis_of_the_weights(model: Path) -> None:
    first = _shard(model, "make_emitted").findings[0]
    assert first.kind == "stack"
    assert first.source == f"{model}/model.py:{_line('_pin(mesh, hidden')}"
    # The mesh is the first argument of the helper, not the value it constrains.
    assert "with_sharding_constraint(hidden, NamedSharding(mesh, P('data', 'model')))" in first.how
    # Three quarters of 16 layers of [128, 512] on each device.
    assert first.got is not None
    assert first.got >= 3 << 20


def test_inputs_are_told_that_leave_what_is_computed_of_them_whole(model: Path) -> None:
    first, *others = _shard(model, "make_graph").findings
    assert first.kind == "replicated"
    assert set(first.names) == {"graph['edges']", "graph['senders']"}
    assert first.got is not None
    assert first.got >= 50 << 20  # 65536 rows of 256 and more on each of 8 devices
    assert not others  # such as the values that are computed of them


def test_a_name_is_told_that_is_no_axis(model: Path) -> None:
    first = _shard(model, "make_unknown").findings[0]
    assert first.kind == "dropped"
    line = _line('        logits = jax.lax.with_sharding_constraint(x @ w, place("data", "vocab"))')
    assert first.source == f"{model}/model.py:{line}"
    assert first.title == "a name without effect: the mesh has no axis 'vocab'"
    assert first.why == "another name splits 1 other array more"
    assert (
        '+        logits = jax.lax.with_sharding_constraint(x @ w, place("data", "model"))'
        in first.how
    )
    assert first.got is not None
    assert first.got >= 8 << 20  # of 16 for the logits alone


def test_statistics_of_an_optimizer_are_held_to_the_model(model: Path) -> None:
    first, *_ = _shard(model, "make_statistics").findings
    assert first.kind == "replicated"
    assert "state['opt_state']['columns']['w']" in first.names
    assert first.got is not None
    assert first.got >= 2 << 20  # of 5; what is added is whole for a while


def test_a_loop_is_told_that_begins_with_whole_arrays(model: Path) -> None:
    first, *others = _shard(model, "make_rollout").findings
    assert first.kind == "stack"
    assert first.source == f"{model}/model.py:{_line('        _, kept = jax.lax.scan')}"
    assert first.got is not None
    assert first.got >= 14 << 20
    assert not others


def test_arguments_that_a_library_maps_are_named_where_their_shardings_are(model: Path) -> None:
    first = _shard(model, "make_mapped", is_tried=False).findings[0]
    assert first.names == ("state['opt_state']['w']",)
    assert first.source == f"{model}/model.py:{_line('    places = jax.tree_util')}"


def test_nothing_is_compiled_twice_if_only_the_plan_is_asked_for(model: Path) -> None:
    [finding] = _shard(model, "make_state", is_tried=False).findings
    assert finding.got is None


def test_a_factory_takes_no_arguments_here(model: Path) -> None:
    with pytest.raises(CommandError, match="has its own arguments"):
        hlomem.jax.shard(f"{model}/model.py:make_state", 1)


def test_the_command_line_compiles_changes(model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hlomem", "shard", "model.py:make_state", "--json"],
        capture_output=True,
        cwd=model,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(model / "cache")},
    )
    assert done.returncode == 0, done.stderr.decode()
    read = json.loads(done.stdout)
    assert read["target"] == "cpu"
    assert read["findings"][0]["got"] > 0


def test_a_batch_that_no_axis_splits_is_told_with_what_is_computed_from_it(model: Path) -> None:
    # The data axis has one device; static arguments have no part in in_shardings.
    report = _shard(model, "make_whole_batch", target="cpu")
    first = report.findings[0]
    assert first.kind == "replicated"
    assert first.got is not None
    assert first.got > report.size / 2
    if jax.__version_info__ >= (0, 12):  # older releases name no axes to XLA: it is a constraint's
        assert (first.names, first.axes) == (("x",), ("fsdp",))
        assert "whole along fsdp" in first.title
    split = _shard(model, "make_split_batch", target="cpu")
    assert not split.findings
    assert split.size == pytest.approx(report.size - first.got, rel=0.01)
