"""A loop rehearsed: its programs are compiled for a target that is not here, and nothing runs.

In: a function of a job (`hlomem.jax.job_script`) and a target. Out: a `JobLog` with XLA's own plan
of every program. Arrays are shapes; a program that is called is compiled, once, and its results are
shapes again.
"""

from __future__ import annotations

import inspect
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from hlomem.base.errors import CommandError, HlomemError
from hlomem.jax.compile.factories import find_factory
from hlomem.jax.compile.programs import cache_off, place
from hlomem.jax.compiled_programs import plan_of_compiled
from hlomem.jax.job_script import JobScript
from hlomem.jax.target_kinds import parse_target
from hlomem.jax.tuned_choices import FLAG, file_for
from hlomem.job.log import AnyEntry, JobLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.jax.target_kinds import Target
    from hlomem.job.plans import ProgramPlan

_OURS = Path(__file__).parent
_CUBLAS = {"xla_gpu_enable_triton_gemm": False}
_GUESSED = (
    "the autotuner's choices are not known without a device: of the plans with Triton's and with"
    " cuBLAS's matrix products the larger counts, and a tuned one may be 2 % larger still; --tuned"
    " FILE takes the choices from a device"
)


class Ghost:
    """An array that is not there: its shape and type."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = tuple(shape)
        self.dtype = import_module("numpy").dtype(dtype)
        self.ndim = len(self.shape)

    def __repr__(self) -> str:
        return f"Ghost({self.dtype}{list(self.shape)})"

    @property
    def size(self) -> int:
        """How many elements it has."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.size * int(self.dtype.itemsize)


class Rehearsal(JobScript):
    """A loop whose programs are planned, not run."""

    def __init__(
        self, name: str, target: Target, *, tuned: str | None = None, tunes: bool = True
    ) -> None:
        """`tuned` is a file of an autotuner's choices; `tunes` says whether there is a tuner."""
        super().__init__(name)
        self._target = target
        self._options = {FLAG: file_for(tuned, target.name).name} if tuned else {}
        self._is_guessed = tunes and not tuned and target.machine.has_bfc
        self.plans: dict[str, ProgramPlan] = {}
        self._functions: dict[Any, Any] = {}

    def job_log(self) -> JobLog:
        """The log of what was rehearsed."""
        machine = self._target.machine
        return JobLog(
            name=self.name,
            entries=tuple(msgspec.convert(self.log, list[AnyEntry])),
            programs=self.plans,
            has_bfc=machine.has_bfc,
            platform=machine.platform,
            pool_share=machine.pool_share,
            device=_device_bytes(self._target),
            made_by=f"{self._target.name}, jax {self._jax.__version__}",
            notes=(_GUESSED,) if self._is_guessed else (),
        )

    def _put_leaf(self, value: Any) -> Any:
        if isinstance(value, int | float | complex):
            value = self._jax.numpy.asarray(value)
        return Ghost(value.shape, value.dtype)

    def _lower(self, jitted: Any, arguments: tuple[Any, ...]) -> Any:
        shapes = self._jax.tree.map(
            lambda leaf: self._jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments
        )
        placed, _ = place(shapes, {}, self._target)
        if self._jax.tree.leaves(placed):
            return jitted.lower(*placed)
        first = self._jax.sharding.SingleDeviceSharding(self._target.devices[0])
        return self._jax.jit(jitted, out_shardings=first).lower()

    def _compile(self, lowered: Any, name: str) -> Any:
        has_bfc = self._target.machine.has_bfc
        with cache_off():
            compiled = lowered.compile(compiler_options=self._options or None)
            plan = plan_of_compiled(name, compiled, has_bfc)
            if plan.tuned and self._is_guessed:
                other = plan_of_compiled(name, lowered.compile(compiler_options=_CUBLAS), has_bfc)
                plan = max(plan, replace(other, tuned=plan.tuned), key=lambda one: one.asks)
        self.plans[name] = plan
        return compiled

    def _run(self, program: str, compiled: Any, arguments: tuple[Any, ...]) -> Any:  # noqa: ARG002
        return self._jax.tree.map(lambda leaf: Ghost(leaf.shape, leaf.dtype), compiled.out_info)

    def _wait(self, values: tuple[Any, ...]) -> None:
        """Nothing runs."""

    def call_ghosts(
        self,
        function: Any,
        key: Any,
        arguments: list[Any],
        donate: tuple[int, ...],
        name: str,
        results: list[Any],
    ) -> list[Any]:
        """A call a loop made by itself; programs of one key are one."""
        known = self._functions.setdefault(key, function)
        program, compiled = self._program(known, tuple(arguments), donate, name)
        self._note_run(program, compiled, arguments, [arguments[n] for n in donate], results)
        return results


def rehearse_file(spec: str, target: str, settings: Mapping[str, Any], **tuning: Any) -> JobLog:
    """The log of a job `file.py:function`, rehearsed for a target; `tuning` as in `Rehearsal`."""
    chosen = parse_target(target)
    if chosen.missing:
        raise CommandError(f"{target} needs software that is not here: {chosen.missing}")
    function = find_factory(spec)
    try:
        return rehearse(function, chosen, spec, settings, **tuning)
    except HlomemError:
        raise
    except Exception as error:
        where = [
            f"{frame.filename}:{frame.lineno}"
            for frame in traceback.extract_tb(error.__traceback__)
            if "-packages" not in frame.filename and Path(frame.filename).parent != _OURS
        ]
        place = f" at {where[-1]}" if where else ""
        raise CommandError(f"the job failed{place}: {type(error).__name__}: {error}") from error


def _device_bytes(target: Target) -> int | None:
    """Bytes of a device, as its driver says where that is known."""
    chip = target.machine.chip
    if chip is not None and chip.driver_bytes:
        return chip.driver_bytes
    return None if target.capacity is None else target.capacity.size


def takes_job(function: Callable[..., Any]) -> bool:
    """Whether a function is written for a job, its first parameter, or is a loop of its own."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.default is first.empty


def rehearse(
    function: Callable[..., Any],
    target: Target,
    name: str,
    settings: Mapping[str, Any],
    **tuning: Any,
) -> JobLog:
    """The log of a job that is rehearsed for a target."""
    rehearsal = Rehearsal(name, target, **tuning)
    if takes_job(function):
        function(rehearsal, **settings)
    else:
        import_module("hlomem.jax.ghosts").rehearse_loop(function, rehearsal, settings)
    rehearsal.log.append({"do": "wait"})
    return rehearsal.job_log()
