"""Small programs made at random, for checks that values computed again change nothing.

`make_program(seed)` gives a function of two matrices and a stack of them, and which arguments are
given for good. Operations on what was made before follow one another; of some programs the gradient
is taken, of some the operations are the body of a `jax.lax.scan`, whose residuals XLA then stacks.
The same seed gives the same program.
"""

from __future__ import annotations

from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")

UNARY = ("tanh", "exp", "sin", "negative", "square", "transpose", "cumsum", "flip", "logistic")
BINARY = ("add", "multiply", "maximum", "matmul", "subtract")
SIDE = 128
LAYERS = 5


class RandomProgram(NamedTuple):
    """A function of two matrices and a stack of matrices."""

    kind: str
    function: Callable[..., Any]
    donated: tuple[int, ...]
    share: float
    """Of its temporaries, to fit it to."""


def make_program(seed: int) -> RandomProgram:
    """The program of a seed."""
    chance = Random(seed)  # noqa: S311 - no secrets
    kind = chance.choice(("plain", "gradient", "gradient", "scanned", "scanned", "twice scanned"))
    steps = [_step(chance) for _ in range(chance.randint(3, 8))]
    others = [_step(chance) for _ in range(chance.randint(2, 4))]
    functions = {
        "plain": _plain(steps),
        "gradient": _gradient(lambda x, y, ws: sum(_apply(steps, [x, y, ws[0]]))),
        "scanned": _gradient(lambda x, y, ws: _scan(steps, x, y, ws)),
        "twice scanned": _gradient(
            lambda x, y, ws: _scan(others, _scan(steps, x, y, ws), y, ws[::-1])
        ),
    }
    donated = (0,) if chance.random() < 0.3 else ()
    return RandomProgram(kind, functions[kind], donated, chance.uniform(0.3, 0.9))


def _step(chance: Random) -> tuple[str, int, int]:
    return chance.choice(UNARY + BINARY), chance.randrange(30), chance.randrange(30)


def _apply(steps: list[tuple[str, int, int]], given: list[Any]) -> list[Any]:
    """All values, those given first; each is kept small, so that none is infinite."""
    values = list(given)
    for name, one, other in steps:
        first, second = values[-1 - one % len(values)], values[other % len(values)]
        if name == "logistic":
            made = jax.nn.sigmoid(first)
        else:
            operands = (first, second) if name in BINARY else (first,)
            made = jnp.cumsum(first, 0) if name == "cumsum" else getattr(jnp, name)(*operands)
        values.append(made / (1 + jnp.abs(lax.stop_gradient(made)).max()))
    return values


def _plain(steps: list[tuple[str, int, int]]) -> Callable[..., Any]:
    def function(x: Any, y: Any, ws: Any) -> Any:
        values = _apply(steps, [x, y, ws[0]])[3:]
        late = [jnp.tanh(value) @ y for value in values]  # so that values live long
        return x - 0.1 * sum(late, y), [value.sum() for value in values[::2]]

    return function


def _scan(steps: list[tuple[str, int, int]], x: Any, y: Any, ws: Any) -> Any:
    return lax.scan(lambda x, w: (sum(_apply(steps, [x, y, w])) / 9, None), x, ws)[0]


def _gradient(loss: Callable[..., Any]) -> Callable[..., Any]:
    def function(x: Any, y: Any, ws: Any) -> Any:
        return jax.value_and_grad(lambda *given: (loss(*given) ** 2).mean(), (0, 1, 2))(x, y, ws)

    return function


def arguments() -> tuple[Any, Any, Any]:
    """Two matrices and a stack, the same for every program."""
    numpy: Any = import_module("numpy")
    chance = numpy.random.default_rng(3)
    shapes = ((SIDE, SIDE), (SIDE, SIDE), (LAYERS, SIDE, SIDE))
    first, second, stack = (chance.normal(size=shape).astype("float32") for shape in shapes)
    return first, second, stack
