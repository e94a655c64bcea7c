"""Programs of this process, each with its memory when asked: XLA's own plan, or one of ours.

In: the bytes of an executable or of a cache entry, which hold the program and XLA's plan of it
(`hlomem.proto`), or a module a compiler had scheduled, which is planned as XLA would. Out:
`CompiledProgram`. Nothing is decoded before it is asked for.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.api.explain import MemoryExplanation, explain
from hlomem.api.load import MAX_BYTES
from hlomem.api.plan import plan
from hlomem.api.protos import programs_in
from hlomem.base.sizes import format_bytes
from hlomem.machines.registry import find_device, platform_machine
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hlomem.api.plan import Plan
    from hlomem.api.protos import ProtoProgram
    from hlomem.jax.pass_.hook import SeenModule
    from hlomem.machines.machine import Machine

_BACKEND_OF = {"cpu": "cpu", "cuda": "gpu", "rocm": "gpu", "gpu": "gpu", "tpu": "tpu"}


class CompiledProgram:
    """A program that was compiled, or that was about to be: its memory is read when asked for."""

    def __init__(
        self,
        module_name: str,
        *,
        executable: bytes | Callable[[], bytes] | None = None,
        seen: SeenModule | None = None,
    ) -> None:
        self.module_name = module_name
        """XLA's name of it: `jit_train_step`."""
        self._executable = executable
        self._seen = seen

    def __repr__(self) -> str:
        return f"<CompiledProgram {self.name!r}: {format_bytes(self.size)}>"

    @property
    def name(self) -> str:
        """The function's name: `train_step`."""
        return self.module_name.removeprefix("jit_") or self.module_name

    @property
    def is_planned(self) -> bool:
        """Whether its plan is hlomem's: XLA's own is not known, or there is none."""
        return self._executable is None

    @property
    def size(self) -> int:
        """The bytes it needs in its main memory space: HBM on devices that have it."""
        known = None if self._found is None else self._found.size
        return self.explanation.space.size if known is None else known

    @property
    def allocation_sizes(self) -> frozenset[int]:
        """Bytes of each allocation: what the runtime asks for at once."""
        if self._found is not None and self._found.assignment is not None:
            allocations = self._found.assignment.buffer_allocations
        else:
            assignment = self._plan.dump.assignment
            assert assignment is not None
            allocations = assignment.allocations
        return frozenset(allocation.size for allocation in allocations)

    @cached_property
    def explanation(self) -> MemoryExplanation:
        """The explanation of its memory."""
        if self._found is not None and self._found.assignment is not None:
            return explain(self._found.open())
        return explain(self._plan)

    def write_page(self, path: str | Path, *, force: bool = False) -> None:
        """Write the memory report as one page, whole or not at all."""
        self.explanation.write_page(path, force=force)

    @cached_property
    def _found(self) -> ProtoProgram | None:
        """The program in the executable, with XLA's plan."""
        if self._executable is None:
            return None
        data = self._executable if isinstance(self._executable, bytes) else self._executable()
        return programs_in(data, self.module_name, MAX_BYTES)[0]

    @cached_property
    def _plan(self) -> Plan:
        if self._found is not None:  # an executable without a plan
            return plan(self._found.open_module(), name=self.module_name)
        assert self._seen is not None
        machine = _machine_of(self._seen.platform)
        return plan(
            read_module(self._seen.proto),
            backend=machine.platform,
            chip=machine.chip_name,
            name=self.module_name,
        )


def live_programs() -> list[CompiledProgram]:
    """The programs that are loaded in this process, on all its backends, the oldest first."""
    backends: Any = import_module("jax.extend.backend").backends()
    found = []
    for client in backends.values():
        for executable in reversed(getattr(client, "live_executables", list)()):
            [module, *_] = executable.hlo_modules()
            found.append(CompiledProgram(module.name, executable=executable.serialize))
    return found


def _machine_of(platform: str) -> Machine:
    """The machine of a platform: that of this process's devices, else the platform's usual one."""
    backends: Any = import_module("jax.extend.backend").backends()
    if platform in backends:
        kinds = [device.device_kind for device in backends[platform].local_devices()]
        if kinds and (machine := find_device(platform, kinds[0])) is not None:
            return machine
    machine = platform_machine(_BACKEND_OF[platform])
    assert machine is not None
    return machine
