"""A jaxpr as one list of steps, with what `jax.jit` and its like call written out.

In: a jaxpr of JAX. Out: steps whose values are numbered, so that the same function called twice has
values of its own each time. For rules that follow a value through helpers of `jax.numpy`.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hlomem.jax.compile.frames import is_users

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}
"""Operations that only call, and where the function is."""

Value: TypeAlias = "int | Any"
"""The number of a value, or a literal of JAX."""


class Step(NamedTuple):
    """An operation that computes."""

    equation: Any
    inputs: tuple[Value, ...]
    outputs: tuple[int, ...]
    call: Any = None
    """The outermost call that it is written out of, which JAX may trace once for several lines."""

    @property
    def name(self) -> str:
        return str(self.equation.primitive.name)

    @property
    def params(self) -> dict[str, Any]:
        found: dict[str, Any] = self.equation.params
        return found

    @property
    def line(self) -> str:
        """The innermost line of the user's code that asks for it; empty if there is none."""
        for equation in (self.equation, self.call):
            trace = getattr(getattr(equation, "source_info", None), "traceback", None)
            for frame in getattr(trace, "frames", ()):
                if is_users(frame.file_name):
                    return f"{frame.file_name}:{frame.line_num}"
        return ""

    def shape(self, position: int = 0) -> tuple[int, ...]:
        """The dimensions of an input."""
        return tuple(self.equation.invars[position].aval.shape)

    @property
    def result_shape(self) -> tuple[int, ...]:
        return tuple(self.equation.outvars[0].aval.shape)


class Outside(NamedTuple):
    """The jaxpr around the body of a loop, or a function that is recomputed."""

    flat: FlatJaxpr
    values: tuple[Value, ...]
    """The first arguments of the body, as they are known there."""


class FlatJaxpr:
    """The steps of a jaxpr."""

    def __init__(self, jaxpr: Any, outside: Outside | None = None) -> None:
        self._outside = outside
        self._numbers = count()
        self.constants: list[tuple[int, Any]] = []
        self.steps: list[Step] = []
        inner, values = getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())
        env: dict[Any, Value] = {}
        for variable, value in zip(inner.constvars, values, strict=False):
            env[variable] = next(self._numbers)
            self.constants.append((env[variable], value))
        self.arguments = [env.setdefault(one, next(self._numbers)) for one in inner.invars]
        self.results = self._write_out(inner, env)

    def _write_out(self, jaxpr: Any, env: dict[Any, Value], call: Any = None) -> list[Value]:
        """Append the steps of a jaxpr whose arguments are known; its results."""

        def of(one: Any) -> Value:
            return one if hasattr(one, "val") else env.setdefault(one, next(self._numbers))

        for equation in jaxpr.eqns:
            inputs = tuple([of(one) for one in equation.invars])
            name = _CALLS.get(equation.primitive.name, "")
            if name in equation.params:
                called = equation if call is None else call
                results = self._called(equation.params[name], inputs, called)
                env.update(zip(equation.outvars, results, strict=True))
            else:
                outputs = tuple([next(self._numbers) for _ in equation.outvars])
                env.update(zip(equation.outvars, outputs, strict=True))
                self.steps.append(Step(equation, inputs, outputs, call))
        return [of(one) for one in jaxpr.outvars]

    def _called(self, jaxpr: Any, inputs: Sequence[Value], call: Any) -> list[Value]:
        inner, values = getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())
        env: dict[Any, Value] = dict(zip(inner.invars, inputs, strict=True))
        for variable, value in zip(inner.constvars, values, strict=False):
            env[variable] = next(self._numbers)
            self.constants.append((env[variable], value))
        return self._write_out(inner, env, call)

    @cached_property
    def makers(self) -> dict[int, Step]:
        """The step that computes a value."""
        return {one: step for step in self.steps for one in step.outputs}

    @cached_property
    def readers(self) -> dict[int, list[Step]]:
        """The steps that read a value."""
        found: dict[int, list[Step]] = defaultdict(list)
        for step in self.steps:
            for one in dict.fromkeys([one for one in step.inputs if isinstance(one, int)]):
                found[one].append(step)
        return found

    def outside_of(self, value: int) -> tuple[FlatJaxpr, Value] | None:
        """The value of an argument outside, if it is the same in each iteration; or else None."""
        if self._outside is None or value not in self.arguments:
            return None
        flat, values = self._outside
        at = self.arguments.index(value)
        return (flat, values[at]) if at < len(values) else None

    def is_result(self, value: int) -> bool:
        return any(isinstance(one, int) and one == value for one in self.results)


def inner_jaxprs(equation: Any) -> Iterator[Any]:
    """The jaxprs that an equation has as parameters, as the bodies of loops."""
    for parameter in equation.params.values():
        for part in parameter if isinstance(parameter, tuple | list) else (parameter,):
            if hasattr(getattr(part, "jaxpr", part), "eqns"):
                yield part


def handed_on(step: Step, jaxpr: Any) -> tuple[Value, ...]:
    """The inputs of a step that are the first arguments of its body, whichever the iteration."""
    if step.name == "scan":
        return step.inputs[: scan_counts(step)[0]]
    arguments = getattr(jaxpr, "jaxpr", jaxpr).invars
    is_called = step.name != "while" and len(arguments) == len(step.inputs)
    return step.inputs if is_called else ()


def scan_counts(step: Step) -> tuple[int, int]:
    """The number of inputs of a scan that stay the same, and of those that it hands on."""
    if "num_consts" in step.params:  # before JAX 0.12
        return step.params["num_consts"], step.params["num_carry"]
    fixed, carried, _ = step.params["ft_in"].unpack()
    return len(list(fixed)), len(list(carried))


def bytes_of(value: Any) -> int:
    """The bytes of a whole array."""
    shape, kind = getattr(value, "shape", ()), getattr(value, "dtype", None)
    return prod(shape) * int(getattr(kind, "itemsize", 0) or 0)
