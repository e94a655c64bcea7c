"""`hlomem.jax.now()`: what is on a device at this instant, as a table that adds up.

    print(hlomem.jax.now())
    hlomem.jax.now().fits(compiled)

In: a device of this process. Out: `NowReport`: arrays by line and shape, what chunks waste, what is
left, and what each loaded program would ask for. JAX is asked by its public functions, but for
`Array.traceback`, without which arrays have no lines.
"""

from __future__ import annotations

import os
from functools import lru_cache
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import CommandError
from hlomem.jax.job_script import shape_text
from hlomem.job.instant import Instant, LiveArray, LoadedProgram, build_now, fits, is_of_pool
from hlomem.job.owner_rows import FROM_HOST
from hlomem.report.data.lines import Frame, users_frame
from hlomem.report.screens.now_text import draw_now
from hlomem.report.screens.text import PIPED_WIDTH, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.job.instant import Now

_MOST_PROGRAMS = 500
"""Programs that are looked at, the latest first."""


class NowReport:
    """The table of an instant; printed, it is one screen."""

    def __init__(self, data: Now) -> None:
        self.data = data

    def __str__(self) -> str:
        return plain(draw_now(self.data, PIPED_WIDTH))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def fits(self, compiled: Any) -> bool | None:
        """Whether a compiled program would run now; None where that cannot be told."""
        program = _loaded("", compiled.memory_analysis())
        if program is None:
            return None
        data = self.data
        return fits(program.temporaries, program.results, data.free, data.largest_block)


def now(device: Any = None) -> NowReport:
    """The memory of a device, by default the first of this process, at this instant."""
    return NowReport(build_now(instant_of(device)))


def instant_of(device: Any = None) -> Instant:
    """Everything a process knows of a device's memory now."""
    jax: Any = import_module("jax")
    chosen = device if device is not None else jax.local_devices()[0]
    if not hasattr(chosen, "memory_stats"):
        raise CommandError(f"`{chosen}` is no device: give one of jax.local_devices()")
    stats = _stats(chosen)
    limit, pool = stats.get("bytes_limit"), stats.get("pool_bytes")
    return Instant(
        device=str(chosen),
        arrays=tuple(_arrays(jax, chosen, is_pooled=pool is not None)),
        programs=tuple(_programs(chosen)),
        in_use=stats.get("bytes_in_use"),
        limit=limit,
        peak=stats.get("peak_bytes_in_use"),
        pool=pool,
        largest_free=stats.get("largest_free_block_bytes"),
        grows=_grows(limit, pool),
    )


def _stats(device: Any) -> dict[str, int]:
    try:
        return dict(device.memory_stats() or {})
    except (AttributeError, NotImplementedError, RuntimeError):
        return {}


def _grows(limit: int | None, pool: int | None) -> bool | None:
    if limit is None or pool is None:
        return None
    return pool < limit or os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "").lower() in (
        "false",
        "0",
    )


# Arrays


def _arrays(jax: Any, device: Any, *, is_pooled: bool) -> Iterator[LiveArray]:
    for array in jax.live_arrays():
        if _has_failed(array):
            continue
        line, origin = _origin(array)
        for piece in _pieces(array, device):
            address = _address(piece)
            if is_pooled and address is not None and not is_of_pool(address):
                continue
            yield LiveArray(
                size=int(piece.nbytes),
                shape=shape_text(piece),
                line=line,
                origin=origin,
                address=address,
            )


def _has_failed(array: Any) -> bool:
    """Whether the run that should have made an array failed, or it was deleted: no memory is its.

    Nothing is waited for.
    """
    try:
        if array.is_ready():
            array.block_until_ready()
    except RuntimeError:
        return True
    return False


def _pieces(array: Any, device: Any) -> list[Any]:
    """The parts of an array in a device's own memory."""
    try:
        sharding = array.sharding
        if sharding.memory_kind not in (None, "device", device.default_memory().kind):
            return []
        if sharding.device_set == {device}:
            return [array]
        return [shard.data for shard in array.addressable_shards if shard.device == device]
    except (AttributeError, RuntimeError):  # deleted on the way
        return []


def _address(array: Any) -> int | None:
    try:
        return int(array.unsafe_buffer_pointer())
    except (AttributeError, NotImplementedError, RuntimeError, ValueError):
        return None


def _origin(array: Any) -> tuple[str, str]:
    """The line an array was made on, and how it was made."""
    frames = getattr(getattr(array, "traceback", None), "frames", ())
    return _read_stack(
        tuple((frame.file_name, frame.line_num, frame.function_name) for frame in frames)
    )


@lru_cache(maxsize=4096)
def _read_stack(stack: tuple[tuple[str, int, str], ...]) -> tuple[str, str]:
    if not stack:
        return "", "array"
    frame = users_frame(tuple(Frame(*part) for part in stack))
    names = {function.rpartition(".")[2] for _, _, function in stack}
    is_put = any("device_put" in name or name == "_device_put_impl" for name in names)
    origin = FROM_HOST if is_put else "result of a program"
    return ("" if frame is None else frame.location), origin


# Programs


def _programs(device: Any) -> Iterator[LoadedProgram]:
    client = getattr(device, "client", None)
    for executable in list(getattr(client, "live_executables", list)())[:_MOST_PROGRAMS]:
        try:
            analysis = executable.get_compiled_memory_stats()
            [module, *_] = executable.hlo_modules()
            name = module.name
        except (AttributeError, NotImplementedError, RuntimeError, ValueError):
            continue
        program = _loaded(name, analysis)
        if program is not None:
            yield program


def _loaded(name: str, analysis: Any) -> LoadedProgram | None:
    if analysis is None:
        return None
    results = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return LoadedProgram(
        name=name,
        temporaries=int(analysis.temp_size_in_bytes),
        results=max(0, int(results)),
        arguments=int(analysis.argument_size_in_bytes),
        code=int(analysis.generated_code_size_in_bytes),
    )
