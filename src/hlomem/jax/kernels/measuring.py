"""In the child: kernels cut out of a factory's programs, compiled alone, and what they use.

libtpu is asked with the whole VMEM of the chip as the limit, so that it tells the use of a kernel
that does not fit its own limit, too. Numbers are kept in the user's cache by program, chip and
compiler.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import time
from importlib import import_module
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from hlomem.base.atomic_files import write_files
from hlomem.base.errors import CommandError
from hlomem.jax.compile.factories import find_factory, trace_program
from hlomem.jax.compile.messages import DOING, Doing, write_message
from hlomem.jax.compile.programs import chip_context, knowing_the_chip, write_dump
from hlomem.jax.kernels.chips import (
    KnownUse,
    compiled_use,
    facts_on,
    kernel_target,
    limit_of,
    lowered_for,
)
from hlomem.jax.kernels.cutting import CutKernel, cut_kernels
from hlomem.jax.target_kinds import Target, TpuTarget, version_of
from hlomem.kernels.blocks import KernelFacts
from hlomem.kernels.search import BlockSearch, Limited
from hlomem.report.data.kernels import KernelReport, KernelRow, KernelUse, LargestBlocks, kernel_use
from hlomem.report.data.scoped import SHARED_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.jax.compile.messages import Job, KernelRequest

_PACKAGES = ("jax", "jaxlib", "libtpu")
_OPERANDS = (
    "with operands in HBM; where a program keeps one in VMEM, its block needs no buffers"
    " there, and the kernel uses that much less"
)


class Setting(NamedTuple):
    """One combination of settings, and the kernels of its program."""

    settings: dict[str, Any]
    kernels: Sequence[Subject]
    problem: str = ""


class Subject(NamedTuple):
    """A kernel that can be lowered for a chip."""

    facts: KernelFacts
    lower: Callable[[Target], Any]


def measure_kernels(job: Job, folder: Path) -> KernelReport:
    """The report on the kernels that a job asks for."""
    request = job.kernels
    assert request is not None
    began = time.process_time()
    targets = [kernel_target(name) for name in request.targets]
    assert targets[0].devices  # what is missing is said before anything is imported
    factory = None if request.exported else find_factory(job.factory)
    over, asked = request.over, dict[str, Any]()
    if request.is_shrink:
        over, asked = halved_settings(factory, job.settings, targets[0])
        request = structs.replace(request, over=over, is_largest=True)
    settings = _settings(job, request, factory, targets[0], folder)
    work = _Work(request, folder)
    rows: list[KernelRow] = []
    largest: list[LargestBlocks] = []
    for target in targets:
        search = _search(work, target, settings, request)
        rows += _rows(work, target, settings, search)
        if request.over:
            best = search.largest
            largest.append(
                LargestBlocks(
                    target=target.name,
                    settings=None if best is None else settings[best].settings,
                    is_proven=search.is_proven,
                    compiles=len(search.compiled),
                )
            )
    return KernelReport(
        subject=job.factory,
        targets=tuple(target.name for target in targets),
        settings=job.settings,
        over=over,
        asked=asked,
        rows=tuple(rows),
        largest=tuple(largest),
        compiles=work.compiles,
        cached=work.cached,
        cpu_seconds=round(time.process_time() - began, 2),
        versions={name: found for name in _PACKAGES if (found := version_of(name))},
        notes=(_OPERANDS,) if any(isinstance(target, TpuTarget) for target in targets) else (),
    )


def _settings(
    job: Job, request: KernelRequest, factory: Any, target: Target, folder: Path
) -> list[Setting]:
    if request.exported:
        return [Setting({}, [_exported(one.file, one.facts) for one in request.exported])]
    found = []
    for values in product(*request.over.values()):
        own = dict(zip(request.over, values, strict=True))
        write_message(folder, DOING, Doing(words="traces"))
        found.append(trace_setting(factory, job.settings, own, target, is_one=not request.over))
    if not any(setting.kernels or setting.problem for setting in found):
        raise CommandError(f"`{job.factory}` calls no Pallas kernel (pallas_call)")
    return found


def trace_setting(
    factory: Any, common: dict[str, Any], own: dict[str, Any], target: Target, *, is_one: bool
) -> Setting:
    """The kernels at a setting; a setting of a grid that cannot be traced says why."""
    given = {**common, **own}
    try:
        with chip_context(target):
            kernels = cut_kernels(trace_program(factory, given, target))
    except CommandError:
        raise
    except Exception as error:
        if is_one:
            raise
        return Setting(own, (), _first_line(error))
    return Setting(own, [Subject(kernel.facts, _lowering(kernel)) for kernel in kernels])


_MAX_SHRUNK = 3
"""Settings that are halved together."""
_SMALLEST = 16
"""The smallest number that is taken for a block size."""


def halved_settings(
    factory: Any, common: dict[str, Any], target: Target
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """The settings that make blocks smaller when halved, with smaller values; and as they are."""
    parameters = inspect.signature(factory).parameters
    defaults = {name: one.default for name, one in parameters.items()}
    numbers = {
        name: value
        for name, value in {**defaults, **common}.items()
        if type(value) is int and value >= _SMALLEST and value % 2 == 0
    }
    whole = _bound_at(trace_setting(factory, common, {}, target, is_one=True))
    saved: dict[str, int] = {}
    for name, value in numbers.items():
        smaller = trace_setting(factory, common, {name: value // 2}, target, is_one=False)
        if smaller.kernels and (saving := whole - _bound_at(smaller)) > 0:
            saved[name] = saving
    if not saved:
        problem = "no integer setting of the factory makes the blocks of its kernels smaller"
        raise CommandError(f"{problem}: give it one, as in def make(block=512)")
    chosen = sorted(saved, key=lambda name: -saved[name])[:_MAX_SHRUNK]
    steps = 3 if len(chosen) == _MAX_SHRUNK else 4
    over = {
        name: [numbers[name] >> step for step in range(steps) if numbers[name] >> step]
        for name in numbers
        if name in chosen
    }
    return over, {name: numbers[name] for name in over}


def _bound_at(setting: Setting) -> int:
    return sum(kernel.facts.bound for kernel in setting.kernels)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0][:300]


def _lowering(kernel: CutKernel) -> Callable[[Target], Any]:
    return lambda target: knowing_the_chip(target, lambda: lowered_for(kernel, target))


def _exported(file: str, facts: bytes) -> Subject:
    import_module("jax.export")  # whose classes it is of
    kernel = pickle.loads(Path(file).read_bytes())  # noqa: S301 - written by `kernel_memory`

    def lower(target: Target) -> Any:
        jax = import_module("jax")
        place = jax.sharding.SingleDeviceSharding(target.devices[0])
        shapes = [
            jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=place) for one in kernel.in_avals
        ]
        return jax.jit(kernel.call).lower(*shapes)

    return Subject(msgspec.json.decode(facts, type=KernelFacts), lower)


def _search(
    work: _Work, target: Target, settings: list[Setting], request: KernelRequest
) -> BlockSearch:
    is_bounded = isinstance(target, TpuTarget)
    search = BlockSearch(
        [
            [
                Limited(kernel.facts, limit_of(kernel.facts, target), is_bounded)
                for kernel in setting.kernels
            ]
            for setting in settings
        ],
        [setting.settings for setting in settings],
    )
    while (number := search.next_setting(is_largest=request.is_largest)) is not None:
        found = [work.use(kernel, target) for kernel in settings[number].kernels]
        if any(use.problem for use in found):
            search.fail(number)
        else:
            search.note(number, [use.used for use in found])
    if request.is_exact:
        for number, decision in search.decisions.items():
            if decision.how != "lower bound":
                for kernel in settings[number].kernels:
                    work.use(kernel, target)
    return search


def _rows(
    work: _Work, target: Target, settings: list[Setting], search: BlockSearch
) -> Iterator[KernelRow]:
    for number, setting in enumerate(settings):
        decision = search.decisions.get(number)
        uses = [work.known(kernel, target) for kernel in setting.kernels]
        problem = setting.problem or next((use.problem for use in uses if use), "")
        is_other = decision is not None and decision.by != number
        yield KernelRow(
            target=target.name,
            settings=setting.settings,
            kernels=tuple(
                _row(kernel.facts, target, use, work.seconds.get((id(kernel), target.name)))
                for kernel, use in zip(setting.kernels, uses, strict=True)
            ),
            fits=None if decision is None else decision.fits,
            how="" if decision is None else decision.how,
            by=settings[decision.by].settings if is_other and decision is not None else {},
            problem=problem,
        )


def _row(
    facts: KernelFacts, target: Target, use: KnownUse | None, seconds: float | None
) -> KernelUse:
    limit, own = limit_of(facts, target), facts_on(facts, target)
    space = "vmem" if isinstance(target, TpuTarget) else SHARED_MEMORY
    if use is None:
        return kernel_use(own, limit, space=space)
    return kernel_use(
        own,
        limit,
        use.used,
        space=space,
        smem=use.smem,
        said=use.said,
        cpu_seconds=round(seconds or 0.0, 2),
        is_known=seconds is None,
    )


class _Work:
    """The compiles of one request, each made once."""

    def __init__(self, request: KernelRequest, folder: Path) -> None:
        self._cache = Path(request.cache) if request.cache else None
        self._broken = set(request.broken)
        self._folder = folder
        self._uses: dict[tuple[int, str], KnownUse] = {}
        self._by_program: dict[str, KnownUse] = {}
        self.seconds: dict[tuple[int, str], float] = {}
        """CPU time of those that were compiled now."""
        self.compiles = 0
        self.cached = 0

    def known(self, kernel: Subject, target: Target) -> KnownUse | None:
        return self._uses.get((id(kernel), target.name))

    def use(self, kernel: Subject, target: Target) -> KnownUse:
        """The use of a kernel on a chip."""
        key = id(kernel), target.name
        if key not in self._uses:
            self._uses[key] = self._find(kernel, target)
        return self._uses[key]

    def _find(self, kernel: Subject, target: Target) -> KnownUse:
        words = f"compiles {kernel.facts.name} for {target.name}"
        write_message(self._folder, DOING, Doing(words=words))
        began = time.process_time()
        try:
            lowered = kernel.lower(target)
        except Exception as error:  # noqa: BLE001 - a kernel that Pallas cannot lower is a row
            return KnownUse(problem=_first_line(error))
        print_ = _fingerprint(lowered, target)
        if print_ in self._broken:
            return KnownUse(problem="the compiler's process died")
        found = self._by_program.get(print_) or self._read(print_)
        if found is not None:
            self.cached += 1
            self._by_program[print_] = found
            return found
        write_message(self._folder, DOING, Doing(words=words, fingerprint=print_))
        found = self._by_program[print_] = _compiled(lowered, target)
        self.seconds[id(kernel), target.name] = time.process_time() - began
        self.compiles += 1
        self._keep(print_, found)
        return found

    def _read(self, fingerprint: str) -> KnownUse | None:
        if self._cache is None:
            return None
        try:
            data = (self._cache / f"{fingerprint}.kernel.json").read_bytes()
            return msgspec.json.decode(data, type=KnownUse)
        except (OSError, msgspec.MsgspecError):
            return None

    def _keep(self, fingerprint: str, found: KnownUse) -> None:
        if self._cache is not None:
            name = f"{fingerprint}.kernel.json"
            write_files(self._cache, {name: [msgspec.json.encode(found)]}, force=True)


def _fingerprint(lowered: Any, target: Target) -> str:
    versions = [version_of(name) for name in _PACKAGES]
    rest = [target.name, versions, os.environ.get("LIBTPU_INIT_ARGS", "")]
    digest = hashlib.sha256(msgspec.json.encode(rest))
    digest.update(lowered.as_text().encode())
    return digest.hexdigest()


def _compiled(lowered: Any, target: Target) -> KnownUse:
    """Compile a kernel alone, and read what the compiler notes of it."""
    with TemporaryDirectory(prefix="hlomem-") as name:
        try:
            refusal = write_dump(lowered, Path(name)).refusal
        except Exception as error:  # noqa: BLE001 - whatever a compiler says is told
            return KnownUse(problem=_first_line(error))
        return compiled_use(Path(name), refusal, target)
