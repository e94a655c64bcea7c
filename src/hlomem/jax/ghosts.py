"""A loop as its author wrote it, rehearsed: arrays are ghosts, programs are planned, nothing runs.

In: a function without parameters that trains, serves or evaluates. Out: what it does with memory,
as a `Rehearsal` has it. While it runs, JAX's current trace is ours: every jitted call and every
single operation arrives here with its shapes, is compiled for the target, and returns ghosts; when
Python drops a ghost, the log says so. Numbers are zeros: a loop that decides by values (`if loss <
x`) takes the way of zeros. This leans on JAX's internals (`jax._src.core.Trace`), which change;
where they are not as expected, the error says to write the loop as a job.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import CommandError
from hlomem.jax.rehearsal import Ghost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.jax.rehearsal import Rehearsal

_ADVICE = "write it as a job instead: def job(job): …, see docs/job.md"


def rehearse_loop(
    function: Callable[..., Any], rehearsal: Rehearsal, settings: Mapping[str, Any]
) -> None:
    """Run a loop with ghosts for arrays; the rehearsal keeps its log."""
    try:
        core: Any = import_module("jax._src.core")
        trace = _make_trace(core, rehearsal)
        current = core.set_current_trace
    except (AttributeError, ImportError, TypeError) as error:
        version = import_module("jax").__version__
        raise CommandError(
            f"this version of JAX ({version}) cannot rehearse a loop as it is ({error}); {_ADVICE}"
        ) from error
    jax: Any = import_module("jax")
    waits = jax.block_until_ready

    def wait(value: Any) -> Any:
        rehearsal.wait(value)
        return value

    jax.block_until_ready = wait
    try:
        with current(trace):
            function(**settings)
    finally:
        jax.block_until_ready = waits


def _make_trace(core: Any, rehearsal: Rehearsal) -> Any:
    """A trace whose arrays are ghosts; its classes are made for the JAX that is here."""
    numpy: Any = import_module("numpy")
    extend: Any = import_module("jax.extend.core")

    class GhostArray(core.Tracer, Ghost):  # type: ignore[misc]
        """A ghost that JAX takes for an array of its own."""

        def __init__(self, trace: Any, aval: Any) -> None:
            self._trace = trace
            self._aval = aval

        aval = property(lambda self: self._aval)
        shape = property(lambda self: self._aval.shape)
        dtype = property(lambda self: self._aval.dtype)
        ndim = property(lambda self: len(self._aval.shape))
        size = Ghost.size
        nbytes = Ghost.nbytes

        def __float__(self) -> float:
            return 0.0

        def __int__(self) -> int:
            return 0

        def __bool__(self) -> bool:
            return False

        def __array__(self, *_: Any, **__: Any) -> Any:
            return numpy.zeros(self.shape, self.dtype)

        def item(self, *_: Any) -> Any:
            return self.dtype.type(0).item()

        def block_until_ready(self) -> Any:
            rehearsal.wait(self)
            return self

        def delete(self) -> None:
            """Python's reference is what the log goes by."""

    class GhostTrace(core.Trace):  # type: ignore[misc]
        """Every operation of the loop, planned."""

        def process_primitive(self, primitive: Any, arguments: Any, *rest: Any) -> Any:
            parameters = rest[-1]
            ghosts = [self._ghost(argument) for argument in arguments]
            if primitive.name in ("jit", "pjit"):
                closed = parameters["jaxpr"]
                function = extend.jaxpr_as_fun(closed)
                donated = parameters.get("donated_invars", ())
                donate = tuple(number for number, is_given in enumerate(donated) if is_given)
                name, avals = parameters["name"], closed.out_avals
            else:
                function = _Single(primitive, parameters)
                donate, name = (), primitive.name
                found, _ = primitive.abstract_eval(*(g.aval for g in ghosts), **parameters)
                avals = found if primitive.multiple_results else [found]
            key = (name, str(avals), str(parameters.get("jaxpr", parameters)))
            with core.set_current_trace(core.eval_trace):
                made = rehearsal.call_ghosts(function, key, ghosts, donate, name, self._make(avals))
            return made if primitive.multiple_results else made[0]

        def stage_value(self, value: Any) -> Any:
            return self._ghost(value)

        def _make(self, avals: Any) -> list[Any]:
            return [GhostArray(self, aval) for aval in avals]

        def _ghost(self, value: Any) -> Any:
            if isinstance(value, GhostArray):
                return value
            ghost = GhostArray(self, core.typeof(value))
            return rehearsal.note_put(ghost)

    return GhostTrace()


class _Single:
    """One operation as a function."""

    def __init__(self, primitive: Any, parameters: Any) -> None:
        self._primitive = primitive
        self._parameters = parameters
        self.__name__ = primitive.name

    def __call__(self, *arguments: Any) -> Any:
        found = self._primitive.bind(*arguments, **self._parameters)
        return tuple(found) if self._primitive.multiple_results else (found,)
