"""`optimize(fit=…)`: programs that fit a number, compute the same bits, and need what was said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import getsourcelines
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlomem.base.errors import CommandError
from hlomem.jax import optimize
from hlomem.jax.pass_ import compiler, log
from hlomem.opt.candidate import Candidate
from hlomem.opt.remat.edit import apply_edit
from hlomem.proto.edit import write_module

jax: Any = pytest.importorskip("jax", reason="jax is not installed")
pytest.importorskip("jax.extend.xla", reason="this jax has no hook for passes")
jnp: Any = pytest.importorskip("jax.numpy")
np: Any = pytest.importorskip("numpy")
check_recompute: Any = pytest.importorskip("tools.check_recompute")


@pytest.fixture(autouse=True)
def _new_report() -> Iterator[None]:
    log.forget()
    yield
    log.forget()


def _step(layers: int) -> Callable[[Any, Any], Any]:
    """A training step of a small transformer, its layers unrolled."""

    def norm(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def block(x: Any, weights: Any) -> Any:
        query, key, value = jnp.split(norm(x) @ weights["attention"], 3, -1)
        x = x + jax.nn.softmax(query @ key.transpose(0, 2, 1)) @ value
        return x + jax.nn.gelu(norm(x) @ weights["up"]) @ weights["down"]

    def loss(parameters: Any, x: Any) -> Any:
        for number in range(layers):
            x = block(x, parameters[number])
        return (x**2).mean()

    def step(parameters: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(parameters, x)
        return jax.tree.map(lambda old, by: old - 0.1 * by, parameters, gradient), value

    return step


def _arguments(layers: int, width: int) -> tuple[Any, Any]:
    random = np.random.RandomState(0)

    def make(*shape: int) -> Any:
        return jnp.asarray(random.randn(*shape) * 0.1, jnp.float32)

    weights = [
        {
            "attention": make(width, 3 * width),
            "up": make(width, 4 * width),
            "down": make(4 * width, width),
        }
        for _ in range(layers)
    ]
    return weights, make(4, 32, width)


def _compile(function: Any, arguments: Any, donated: tuple[int, ...]) -> Any:
    return jax.jit(function, donate_argnums=donated).lower(*arguments).compile()


def _run(compiled: Any, arguments: Any) -> list[Any]:
    copies = jax.tree.map(jnp.array, arguments)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*copies))]


def _limit(compiled: Any, share: float) -> int:
    """All that a program takes, with a share of its temporaries."""
    sizes = compiled.memory_analysis()
    rest = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return int(rest + share * sizes.temp_size_in_bytes)


def test_a_training_step_fits_half_of_its_temporaries_with_the_same_bits() -> None:
    step, arguments = _step(3), _arguments(3, 64)
    plain = _compile(step, arguments, ())
    with optimize(fit=_limit(plain, 0.5) + 4096, platforms="cpu"):
        fitted = _compile(step, arguments, ())
    [outcome] = [one for one in log.report().outcomes if one.program == "jit_step"]
    assert outcome.clones
    assert outcome.missing == 0
    assert outcome.flops < outcome.program_flops // 5
    assert "instructions recomputed" in str(outcome)
    assert fitted.memory_analysis().temp_size_in_bytes == outcome.after
    assert outcome.after <= plain.memory_analysis().temp_size_in_bytes // 2 + 4096
    expected, found = _run(plain, arguments), _run(fitted, arguments)
    assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))


def test_a_share_is_of_what_each_program_needs_now() -> None:
    step, arguments = _step(3), _arguments(3, 64)
    plain = _compile(step, arguments, ()).memory_analysis().temp_size_in_bytes
    with optimize(fit=0.5, platforms="cpu") as optimization:
        fitted = _compile(step, arguments, ())
    [outcome] = [one for one in optimization.report().outcomes if one.program == "jit_step"]
    assert not outcome.missing
    assert fitted.memory_analysis().temp_size_in_bytes <= plain // 2


def test_nothing_is_recomputed_of_parts_that_are_left_out() -> None:
    step, arguments = _step(3), _arguments(3, 64)
    with optimize(fit=0.5, platforms="cpu", without="jit(step)") as optimization:
        _compile(step, arguments, ())
    [outcome] = [one for one in optimization.report().outcomes if one.program == "jit_step"]
    assert outcome.missing
    assert not outcome.flops


def test_an_edit_that_is_written_wrongly_never_reaches_xla(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, arguments = _step(2), _arguments(2, 64)
    plain = _compile(step, arguments, ())

    def write_wrongly(
        candidate: Candidate,
    ) -> bytes:
        """The clones are there, and nothing reads them."""
        if candidate.edit is None:
            return write(candidate)
        edit = candidate.edit._replace(operands={})
        return write_module(apply_edit(candidate.base, edit))

    write = compiler.write_candidate
    monkeypatch.setattr(compiler, "write_candidate", write_wrongly)
    with optimize(fit=_limit(plain, 0.5), platforms="cpu"):
        fitted = _compile(step, arguments, ())
    [outcome] = [one for one in log.report().outcomes if one.program == "jit_step"]
    assert outcome.clones == 0
    assert "rejected" in outcome.reason or "nothing was recomputed" in outcome.reason
    assert ".remat" not in fitted.as_text()


def test_a_scanned_step_fits_half_of_its_temporaries_with_the_same_bits() -> None:
    def scanned(ws: Any, x: Any) -> Any:
        def loss(ws: Any) -> Any:
            def layer(x: Any, w: Any) -> Any:
                return x + jax.nn.gelu(x @ w) @ w.T, None

            return (jax.lax.scan(layer, x, ws)[0] ** 2).mean()

        return jax.value_and_grad(loss)(ws)

    random = np.random.RandomState(2)
    shapes = ((6, 128, 256), (256, 128))
    arguments = tuple(jnp.asarray(random.randn(*shape) * 0.1, jnp.float32) for shape in shapes)
    plain = _compile(scanned, arguments, ())
    with optimize(fit=_limit(plain, 0.5) + 4096, platforms="cpu"):
        fitted = _compile(scanned, arguments, ())
    [outcome] = [one for one in log.report().outcomes if one.program == "jit_scanned"]
    assert outcome.stacks
    assert outcome.missing == 0
    assert "stacks of loops recomputed" in str(outcome)
    line = getsourcelines(scanned)[1] + 3  # that of the gelu
    assert f"test_budget.py:{line} (tanh)" in " ".join(outcome.again)
    assert fitted.memory_analysis().temp_size_in_bytes == outcome.after
    expected, found = _run(plain, arguments), _run(fitted, arguments)
    assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))


def test_loops_in_calls_of_their_own_stack_less_with_the_same_bits() -> None:
    def small(w: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            h = jnp.tanh(x + h) * w
            return h, jnp.sin(h)

        return jax.grad(lambda w: jax.lax.scan(cell, xs[0] * w, xs)[1].sum())(w)

    random = np.random.RandomState(3)
    arguments = tuple(jnp.asarray(random.randn(*s), jnp.float32) for s in ((64,), (512, 64)))
    plain = _compile(small, arguments, ())
    with optimize(fit=_limit(plain, 0.7) + 4096, platforms="cpu"):
        fitted = _compile(small, arguments, ())
    [outcome] = [one for one in log.report().outcomes if one.program == "jit_small"]
    assert outcome.stacks
    assert outcome.missing == 0
    assert fitted.memory_analysis().temp_size_in_bytes == outcome.after
    expected, found = _run(plain, arguments), _run(fitted, arguments)
    assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.parametrize("seed", [0, 5, 7, 12])
def test_random_gradients_and_scans_compute_the_same_bits_and_wrong_edits_are_refused(
    seed: int,
) -> None:
    found = check_recompute.check(seed, wrong=2)
    assert not [word for word in found if word.isupper() and found[word]], found


def test_a_donated_argument_stays_donated() -> None:
    step, arguments = _step(2), _arguments(2, 64)
    plain = _compile(step, arguments, (0,))
    with optimize(fit=_limit(plain, 0.6) + 4096, platforms="cpu"):
        fitted = _compile(step, arguments, (0,))
    [outcome] = [one for one in log.report().outcomes if one.program == "jit_step"]
    donated = plain.memory_analysis().alias_size_in_bytes
    assert donated
    assert fitted.memory_analysis().alias_size_in_bytes == donated
    assert outcome.kind == "improved" or "donated" in outcome.reason
    expected, found = _run(plain, arguments), _run(fitted, arguments)
    assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))


def test_a_number_that_cannot_be_met_is_said_to_be_missed_and_nothing_is_raised() -> None:
    step, arguments = _step(1), _arguments(1, 32)
    plain = _compile(step, arguments, ())
    with optimize(fit=1 << 10, platforms="cpu"):
        fitted = _compile(step, arguments, ())
    [outcome] = [one for one in log.report().outcomes if one.program == "jit_step"]
    assert outcome.missing == outcome.total - (1 << 10) > 0
    assert "too much" in str(outcome)
    expected, found = _run(plain, arguments), _run(fitted, arguments)
    assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.parametrize("fit", ["much", -1, "12"])
def test_what_is_no_size_is_refused(fit: Any) -> None:
    with pytest.raises(CommandError):
        optimize(fit=fit, platforms="cpu")


_UNARY = ("tanh", "exp", "sin", "negative", "square", "transpose", "sort", "flip")
_BINARY = ("add", "multiply", "maximum", "matmul", "subtract")
_OPERATION = st.tuples(
    st.sampled_from(_UNARY + _BINARY), st.integers(0, 30), st.integers(0, 30), st.booleans()
)


def _program(operations: list[tuple[str, int, int, bool]]) -> Callable[..., Any]:
    """Operations on what was made before; some results are kept, the first argument is renewed."""

    def function(x: Any, y: Any) -> Any:
        values, results = [x, y], []
        for name, one, other, is_kept in operations:
            first, second = values[-1 - one % len(values)], values[other % len(values)]
            made = getattr(jnp, name)(*((first, second) if name in _BINARY else (first,)))
            made = made / (1 + jnp.abs(made).max())
            values.append(made)
            results += [made] if is_kept else []
        late = [jnp.tanh(value) @ y for value in values[2:]]  # so that values live long
        return x - 0.1 * sum(late, y), [result.sum() for result in results]

    return function


_PROGRAM = st.lists(_OPERATION, min_size=4, max_size=12)


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_PROGRAM, min_size=4, max_size=4), st.floats(0.1, 1), st.booleans())
def test_random_programs_with_random_numbers_compute_the_same(
    programs: list[list[tuple[str, int, int, bool]]], share: float, is_donated: bool
) -> None:
    random = np.random.RandomState(1)
    arguments = tuple(jnp.asarray(random.randn(32, 32), jnp.float32) for _ in range(2))
    functions, donated = [_program(program) for program in programs], (0,) if is_donated else ()
    plain = [_compile(function, arguments, donated) for function in functions]
    limit = _limit(plain[0], share)  # another share of each
    with optimize(fit=limit, min_bytes=1 << 12, platforms="cpu", effort="low"):
        log.forget()
        for function, known in zip(functions, plain, strict=True):
            fitted = _compile(function, arguments, donated)
            _check(known, fitted, log.report().outcomes[-1], arguments)


_LAST_BITS = 1e-6
"""What XLA may round otherwise where buffers lie elsewhere, as a share of the largest number."""


def _check(plain: Any, fitted: Any, outcome: log.Outcome, arguments: Any) -> None:
    """Nothing went wrong, sizes are as said, results are the same but for XLA's rounding."""
    assert outcome.program == "jit_function"
    assert outcome.kind != "failed", outcome.reason
    assert "rejected" not in outcome.reason, outcome.reason
    if outcome.kind == "improved":
        assert fitted.memory_analysis().temp_size_in_bytes == outcome.after
        assert outcome.after < plain.memory_analysis().temp_size_in_bytes
    expected, found = _run(plain, arguments), _run(fitted, arguments)
    for one, other in zip(expected, found, strict=True):
        scale = np.nanmax(np.abs(one), initial=0)
        np.testing.assert_allclose(other, one, rtol=0, atol=_LAST_BITS * scale)


def _selective_scan(x: Any, weights: Any) -> Any:
    """A state-space layer: chunks in a checkpointed scan, each an associative one."""

    def mix(weights: Any) -> Any:
        u, gate = jnp.split(x @ weights["in"], 2, -1)
        dt = jax.nn.softplus(u @ weights["dt"])
        into, out = jnp.split(u @ weights["bc"], 2, -1)
        decays = jnp.exp(-dt[..., None] * jnp.exp(weights["a"]))
        inputs = dt[..., None] * into[:, :, None] * u[..., None]

        def join(left: Any, right: Any) -> Any:
            return left[0] * right[0], left[1] * right[0] + right[1]

        def chunked(part: Any) -> Any:
            return part.reshape(2, 8, 16, 48, 8).swapaxes(0, 1)

        def chunk(state: Any, parts: Any) -> Any:
            decay, added = jax.lax.associative_scan(join, parts, axis=1)
            states = decay * state[:, None] + added
            return states[:, -1], states

        parts = (chunked(decays), chunked(inputs))
        _, states = jax.lax.scan(jax.checkpoint(chunk), jnp.zeros((2, 48, 8)), parts)
        states = states.swapaxes(0, 1).reshape(2, 128, 48, 8)
        mixed = jnp.einsum("btdn,btn->btd", states, out) * jax.nn.silu(gate)
        return jnp.mean(jnp.square(mixed @ weights["out"] - x))

    return jax.value_and_grad(mix)(weights)


def test_a_number_that_cannot_be_met_costs_no_memory() -> None:
    shapes = {"in": (48, 96), "dt": (48, 48), "a": (48, 8), "bc": (48, 16), "out": (48, 48)}
    weights = {name: jnp.zeros(shape) for name, shape in shapes.items()}
    arguments = (jnp.zeros((2, 128, 48)), weights)
    plain = _compile(_selective_scan, arguments, ())
    with optimize(platforms="cpu"):
        alone = _compile(_selective_scan, arguments, ())
    with optimize(fit=_limit(plain, 0.25), platforms="cpu"):
        fitted = _compile(_selective_scan, arguments, ())
    outcome = log.report().outcomes[-1]
    assert outcome.missing
    assert outcome.floor
    assert outcome.after == fitted.memory_analysis().temp_size_in_bytes
    assert outcome.after <= alone.memory_analysis().temp_size_in_bytes


def _norm(x: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def _gated(x: Any, weights: Any) -> Any:
    x = _norm(x)
    x = jax.nn.silu(x @ weights["up"])
    return x @ weights["down"]


def _scanned(weights: Any, x: Any) -> Any:
    x, _ = jax.lax.scan(lambda x, layer: (_gated(x, layer), None), x, weights)
    return (x**2).mean()


def test_the_lines_of_what_a_loop_computes_again_are_the_users() -> None:
    first = getsourcelines(_gated)[1]
    lines = {
        "rsqrt": getsourcelines(_norm)[1] + 1,
        "silu": first + 2,
        "logistic": first + 2,
        "div": first + 2,
    }
    weights = {"up": jnp.zeros((4, 64, 256)), "down": jnp.zeros((4, 256, 64))}
    with optimize(platforms="cpu", recompute=0.1) as optimization:
        _compile(jax.grad(_scanned), (weights, jnp.zeros((8, 32, 64))), ())
    [outcome] = optimization.report().improved
    assert outcome.stacks
    found = [place for place in outcome.again if any(f"{name}" in place for name in lines)]
    assert found
    for place in found:
        [line] = {line for name, line in lines.items() if name in place}
        assert place.startswith(f"test_budget.py:{line} "), outcome.again


def test_a_number_that_nothing_helps_to_meet_is_said_with_the_reason() -> None:
    outcome = log.Outcome("f", "cpu", "improved", 2_000_000, 1_999_900, bound=1_900_000)
    said = str(outcome._replace(total=2_100_000, limit=1_000_000))
    assert said.startswith("f (cpu): about as before, temporaries 1.91 MiB → 1.91 MiB")
    assert "no order does with less than 1.81 MiB, no value whose recomputation" in said
