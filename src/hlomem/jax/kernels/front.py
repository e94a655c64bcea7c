"""`hlomem.jax.kernel_memory`: what every Pallas kernel of a function uses of VMEM.

    print(hlomem.jax.kernel_memory(attention, q, k, v, target="tpu-v5e:2x2"))

Kernels are cut out and lowered here; they are compiled in a child process.
"""

from __future__ import annotations

import pickle
from dataclasses import replace as replace_field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from hlomem.base.errors import CommandError
from hlomem.jax.compile.messages import ExportedKernel, Job, KernelRequest
from hlomem.jax.compile.parent import ChildDiedError, kernels_in_child
from hlomem.jax.compile.programs import jitted_with
from hlomem.jax.kernels.chips import kernel_target
from hlomem.jax.kernels.cutting import CutKernel, cut_kernels
from hlomem.jax.known_plans import default_cache
from hlomem.jax.target_kinds import TpuTarget
from hlomem.report.data.kernels import KernelReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_MAX_DEATHS = 5
"""Kernels that may end the compiler's process before it is given up."""


def measure_factory(
    factory: str,
    *,
    targets: Sequence[str],
    over: Mapping[str, Sequence[Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
    is_largest: bool = False,
    is_exact: bool = False,
    is_shrink: bool = False,
    cache: str | Path | None = None,
    timeout: float | None = None,
    imports: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda _: None,
) -> KernelReport:
    """The kernels of a factory's program at every combination of `over`, on each target."""
    names = tuple(kernel_target(name).name for name in targets)
    given, choices = dict(settings or {}), {name: list(of) for name, of in (over or {}).items()}
    if twice := sorted(given.keys() & choices.keys()):
        raise CommandError(f"`{twice[0]}` is given twice")
    request = KernelRequest(
        targets=names,
        over=choices,
        is_largest=is_largest,
        is_exact=is_exact,
        is_shrink=is_shrink,
        cache=str(Path(cache) if cache else default_cache()),
    )
    job = Job(
        factory=factory, target=names[0], settings=given, imports=tuple(imports), kernels=request
    )
    return _measured(job, timeout, on_progress)


def kernel_memory(
    function: Any,
    /,
    *arguments: Any,
    target: str | Sequence[str],
    cache: str | Path | None = None,
    timeout: float | None = None,
    **keywords: Any,
) -> KernelReport:
    """The VMEM that every Pallas kernel of a function uses on a TPU, or on several.

    The function, jitted or not, takes its arguments, arrays or `jax.ShapeDtypeStruct`s, after it.
    """
    names = [target] if isinstance(target, str) else list(target)
    chips = [kernel_target(name) for name in names]
    kernels = cut_kernels(jitted_with(function, {}).trace(*arguments, **keywords).jaxpr)
    name = getattr(function, "__name__", type(function).__name__)
    if not kernels:
        raise CommandError(f"`{name}` calls no Pallas kernel")
    if not all(isinstance(chip, TpuTarget) for chip in chips):
        raise CommandError("only kernels for TPUs are measured here: `hlomem kernel` takes GPUs")
    most = max(chip.machine.chip.vmem_bytes for chip in chips if chip.machine.chip)
    with TemporaryDirectory(prefix="hlomem-") as folder:
        request = KernelRequest(
            targets=tuple(chip.name for chip in chips),
            cache=str(Path(cache) if cache else default_cache()),
            exported=tuple(
                _export(kernel, Path(folder) / f"{number}.kernel", most)
                for number, kernel in enumerate(kernels)
            ),
        )
        job = Job(factory=name, target=chips[0].name, kernels=request)
        return _measured(job, timeout, lambda _: None)


def _export(kernel: CutKernel, file: Path, limit: int) -> ExportedKernel:
    jax, export = import_module("jax"), import_module("jax.export")
    function = jax.jit(kernel.with_limit(limit))
    made = export.export(function, platforms=["tpu"])(*kernel.arguments)
    file.write_bytes(pickle.dumps(replace_field(made, _get_vjp=None)))
    return ExportedKernel(file=str(file), facts=msgspec.json.encode(kernel.facts))


def _measured(job: Job, timeout: float | None, on_progress: Callable[[str], None]) -> KernelReport:
    """The report of a child; a kernel that ends its process is left out in the next."""
    assert job.kernels is not None
    for _ in range(_MAX_DEATHS):
        try:
            data = kernels_in_child(job, timeout=timeout, on_progress=on_progress)
        except ChildDiedError as error:
            if error.doing is None or not error.doing.fingerprint:
                raise
            broken = (*job.kernels.broken, error.doing.fingerprint)
            job = replace(job, kernels=replace(job.kernels, broken=broken))
        else:
            return msgspec.json.decode(data, type=KernelReport)
    return msgspec.json.decode(
        kernels_in_child(job, timeout=timeout, on_progress=on_progress), type=KernelReport
    )
