"""`hlomem.jax.optimize`: puts the pass into JAX's compilers, and takes it out again.

The hook is `jax.extend.xla.register_hlo_module_transformation` (jax 0.10.2); its first use in
a process compiles a program of two instructions whose order must come back turned around.
"""

from __future__ import annotations

import itertools
import re
from functools import partial
from importlib import import_module
from importlib.metadata import version
from threading import Lock
from typing import TYPE_CHECKING, Any

from hlomem import __version__
from hlomem.base.errors import CommandError, HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.jax.compile.placeholder import planned_bytes
from hlomem.jax.compile.programs import cache_off
from hlomem.jax.pass_ import cache_guard
from hlomem.jax.pass_.answer_cache import AnswerStore
from hlomem.jax.pass_.hook import clear_pass, put_pass
from hlomem.jax.pass_.limits import Limits
from hlomem.jax.pass_.log import Report, logger, recorded, report_since
from hlomem.jax.pass_.transform import Transform
from hlomem.jax.target_kinds import Target, parse_target, version_of
from hlomem.machines.budget import parse_budget
from hlomem.machines.options import Options, options_for
from hlomem.machines.registry import MACHINES, find_device, find_machine, machines_of
from hlomem.machines.releases import Release
from hlomem.opt.constants import RECOMPUTE
from hlomem.opt.goal import Effort, Rules, Scopes, check_rules, check_slowdown
from hlomem.proto.edit import write_orders
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from hlomem.hlo.ir import HloInstruction
    from hlomem.machines.machine import ChangedAfterHook

FIRST_JAX = "0.10.2"
DEFAULT_PLATFORMS = ("cpu", "cuda")
"""Those that are optimised unless others are named. On a TPU orders are tried by compiling, which
takes longer, and is to be asked for."""
_BACKEND_OF = {"cpu": "cpu", "cuda": "gpu", "tpu": "tpu"}
_numbers = itertools.count(1)
_lock = Lock()
_tested: dict[str, str] = {}
"""By platform what its self-test found wrong; empty where it passed."""
_keeping: dict[str, bool] = {}
"""By platform whether donated arguments stay so."""


class UnsupportedJaxError(HlomemError):
    """A JAX without the hook, or with one that does not do what it should."""


def optimize(
    *,
    effort: Effort = "default",
    platforms: Sequence[str] | str | None = None,
    min_bytes: int = 1 << 16,
    max_instructions: int = 50_000,
    may_reorder_collectives: bool | None = None,
    max_slowdown: float | None = None,
    recompute: float = RECOMPUTE,
    chip: str = "",
    target: str = "",
    fit: float | str | None = None,
    offload: bool = True,
    exact: bool | None = None,
    within: Sequence[str] | str = (),
    without: Sequence[str] | str = (),
) -> Optimization:
    """Make every program compiled from now on need less memory: by another order, and a bit more.

    It ends with the `with` block, or by `.remove()`. Programs with less than `min_bytes` of
    temporaries, or more than `max_instructions`, are left alone. `may_reorder_collectives` is as
    for `hlomem.improve`; unless it is said, collectives may change places if this is the only
    process: all devices run what is compiled here. `max_slowdown` is how many times as long a
    program may take, as modelled: without `fit` for transfers that an order exposes (1 unless it is
    said), with it for what is recomputed (1.25 on a GPU, 2 on a TPU). What would fit for more is
    refused, and `report()` says what is possible.

    `recompute` is the share of a program's operations, and of its modelled time, that
    recomputation may add, where the program needs less then; 0 leaves it at the order.

    `target` names the machine programs are compiled for where it is not here (`tpu-v5e:2x2`,
    `cuda-h100`). On a TPU programs are tried: libtpu plans them in child processes, and one is
    taken if its plan is smaller. That needs to know the chips, by `target`, by `chip`, or because
    they are here.

    `fit` is the memory that all allocations of a program may take together: bytes, `"200 MiB"`, or
    a chip whose memory it is. A program that is larger in the order found has values recomputed
    until it fits or nothing helps; `report()` says which, and by how much it misses. Where that is
    not enough on a TPU or GPU, values wait in the host's memory, unless `offload` is False. A float
    up to 1.0 (or `"50%"`) is a share of the temporaries that each program needs now.

    `exact` keeps the last bits: instructions are repeated whole, and no kernel computes what none
    did before. It is off with `fit` and on a TPU, unless it is said. `within` and `without` name
    parts of the code, as `jax.named_scope` does, whose values alone may be recomputed, or may not.
    """
    exposed = 1.0 if max_slowdown is None or fit is not None else max_slowdown
    if max_slowdown is not None:
        check_slowdown(max_slowdown)
    is_exact = fit is None if exact is None else exact
    rules = check_rules(
        Rules(
            effort,
            bool(may_reorder_collectives),
            exposed,
            recompute,
            is_exact,
            Scopes(_names(within), _names(without)),
        )
    )
    extension = _find_extension()
    if may_reorder_collectives is None:
        is_alone = import_module("jax").process_count() == 1
        rules = rules._replace(may_reorder_collectives=is_alone)
    limits = Limits(min_bytes, max_instructions, parse_budget(fit), max_slowdown, offload)
    aim = parse_target(target) if target else None
    if platforms is None and aim is not None:
        platforms = aim.family
    chosen = _choose_platforms(platforms)
    aims = {platform: _aim_of(platform, aim, chip) for platform in chosen}
    for platform in chosen:
        _test_once(extension, platform)
    transforms = {}
    for platform in chosen:
        keeps = _keeps_donations(extension, platform)
        bounds = limits._replace(keeps_donations=keeps)
        own = rules if exact is not None else _rules_by_default(platform, rules)
        transforms[platform] = _transform(platform, aims[platform], chip, own, bounds)
    where = {one: aim.name if aim is not None else chip for one, aim in aims.items()}
    return Optimization(extension, transforms, f"hlomem {__version__} {rules} {limits} {where}")


def _rules_by_default(platform: str, rules: Rules) -> Rules:
    """The rules for a platform where nothing is said of last bits.

    A compiler that fills fast memory tiles products by what lies there: an order alone may change
    them.
    """
    return rules._replace(exact=False) if _changed(platform) == "memory" else rules


def _changed(platform: str) -> ChangedAfterHook:
    """The work of its compiler after the hook: on all machines of a platform the same."""
    return machines_of(_BACKEND_OF[platform])[0].changed_after_hook


def _aim_of(platform: str, aim: Target | None, chip: str) -> Target | None:
    """The target of a platform's programs, if it has one; its compiler is loaded then."""
    aim = aim if aim is not None and aim.family == platform else None
    if _changed(platform) == "memory":
        aim = aim or parse_target(f"{platform}-{chip or _chip_here(platform)}")
    if aim is not None:
        assert aim.devices  # which loads the compiler that the pass is put into
    return aim


def _transform(
    platform: str, aim: Target | None, chip: str, rules: Rules, limits: Limits
) -> Transform:
    """The pass for a platform; for a TPU one that tries orders."""
    chip = aim.machine.chip_name if aim is not None else chip or _find_chip(platform)
    changed = _changed(platform)
    plan = partial(planned_bytes, aim.name, platform) if aim and changed == "memory" else None
    return Transform(
        platform,
        compiler_options(platform, chip),
        rules,
        limits,
        plan,
        foresees_orders=changed != "memory",
        store=AnswerStore(f"{platform} {aim.name if aim is not None else chip} {rules} {limits}"),
    )


def _find_chip(platform: str) -> str:
    """The chip that is here, if it is a known one."""
    if platform not in _backends():
        return ""
    kind = import_module("jax").local_devices(backend=platform)[0].device_kind
    backend = _BACKEND_OF[platform]
    for word in kind.lower().split():  # as in `NVIDIA H100 80GB HBM3`
        if f"{backend}-{word}" in MACHINES:
            return str(word)
    machine = find_device(backend, kind)
    return "" if machine is None else machine.chip_name.removeprefix(platform)


def _chip_here(platform: str) -> str:
    if chip := _find_chip(platform):
        return chip
    raise CommandError("which TPU? Name it, as in target='tpu-v5e:2x2'")


def _names(scopes: Sequence[str] | str) -> tuple[str, ...]:
    names = (scopes,) if isinstance(scopes, str) else tuple(scopes)
    if not all(name.strip("/") for name in names):
        raise CommandError("the name of a scope is empty")
    return names


class Optimization:
    """A pass that is on until it is removed; a context manager."""

    def __init__(self, extension: Any, transforms: dict[str, Transform], signature: str) -> None:
        self._extension = extension
        self._signature = signature
        self._name = f"hlomem-{next(_numbers)}"
        self._platforms: list[str] = []
        self._before = recorded()
        for platform, transform in transforms.items():
            put_pass(extension, transform, self._name, platform)
            self._platforms.append(platform)
        cache_guard.enter(signature)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms the pass is on for; empty when it has been removed."""
        return tuple(self._platforms)

    def report(self) -> Report:
        """The outcome for every program compiled since this pass began."""
        return report_since(self._before)

    def __repr__(self) -> str:
        where = ", ".join(self._platforms)
        report = self.report()
        words = f"{len(report.improved)} improved, {format_bytes(report.saved)} less"
        return f"<Optimization {f'on for {where}' if where else 'removed'}: {words}>"

    def remove(self) -> None:
        """Take the pass out; programs compiled from now on have XLA's order again."""
        with _lock:
            platforms, self._platforms = self._platforms, []
        if not platforms:
            return
        for platform in platforms:
            clear_pass(self._extension, self._name, platform)
        cache_guard.leave(self._signature)

    def __enter__(self) -> Optimization:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def require_jax() -> str:
    """The version of JAX; an error that says how to get one where there is none."""
    if found := version_of("jax"):
        return found
    raise UnsupportedJaxError(f"jax is not installed; `pip install 'jax>={FIRST_JAX}'`")


def _find_extension() -> Any:
    """JAX's module of compiler passes; an error that names the version where there is none."""
    found = require_jax()
    try:
        return import_module("jax.extend.xla")
    except ImportError:
        problem = f"jax {found} has no hook for passes; it is in jax {FIRST_JAX} and later"
        raise UnsupportedJaxError(problem) from None


def _choose_platforms(platforms: Sequence[str] | str | None) -> list[str]:
    """Those that are asked for, else those of the default that this process has."""
    if platforms is None:
        return [platform for platform in DEFAULT_PLATFORMS if platform in _backends()]
    chosen = [platforms] if isinstance(platforms, str) else list(platforms)
    for platform in chosen:
        if platform not in _BACKEND_OF:
            known = ", ".join(_BACKEND_OF)
            raise CommandError(f"unknown platform `{visible(platform)}`; known are {known}")
    return chosen


def _backends() -> list[str]:
    return list(import_module("jax.extend.backend").backends())


def compiler_options(platform: str, chip: str = "") -> Options:
    """How the compiler of this process plans."""
    numbers = re.match(r"\d+(\.\d+)*", version("jaxlib"))
    assert numbers is not None
    jaxlib = tuple(map(int, numbers.group().split(".")))
    machine = find_machine(_BACKEND_OF[platform], chip)
    return options_for(machine, Release("jaxlib", jaxlib))


# The self-test.


def _test_once(extension: Any, platform: str) -> None:
    """Raise unless the hook of a platform with devices has been seen to work in this process."""
    with _lock:
        if platform not in _backends():
            _test_plugin(extension, platform)
        elif platform not in _tested:
            _tested[platform] = _find_fault(extension, platform)
            logger.info("hook for %s: %s", platform, _tested[platform] or "works")
    if _tested.get(platform):
        problem = f"the hook of jax {version('jax')} for {platform} does not work"
        raise UnsupportedJaxError(f"{problem}: {_tested[platform]}")


def _test_plugin(extension: Any, platform: str) -> None:
    """A compiler without devices, for programs that run elsewhere: it must take a pass at least."""
    name = f"hlomem-test-{next(_numbers)}"
    try:
        put_pass(extension, lambda _: None, name, platform)
        clear_pass(extension, name, platform)
    except Exception as error:
        known = ", ".join(_backends())
        problem = f"this JAX has no platform `{platform}`, only {known}"
        raise CommandError(f"{problem} ({type(error).__name__})") from error
    logger.info("hook for %s: no device, not tested", platform)


def _keeps_donations(extension: Any, platform: str) -> bool:
    """Whether a module that is handed back keeps its donations; that of jax 0.10.2 does not."""
    if platform not in _backends():
        return True
    with _lock:
        if platform not in _keeping:
            _keeping[platform] = _is_donation_kept(extension, platform)
    return _keeping[platform]


def _is_donation_kept(extension: Any, platform: str) -> bool:
    """Compile a program with a donated argument, its module handed back as it is."""
    jax: Any = import_module("jax")
    name = f"hlomem-test-{next(_numbers)}"
    put_pass(extension, bytes, name, platform)
    try:
        shape = _shape_on(jax, platform)

        def hlomem_donation_test(x: Any) -> Any:
            return x + 1

        lowered = jax.jit(hlomem_donation_test, donate_argnums=0).lower(shape)
        with cache_off():
            return "input_output_alias" in lowered.compile().as_text()
    finally:
        clear_pass(extension, name, platform)


def _shape_on(jax: Any, platform: str) -> Any:
    device = jax.local_devices(backend=platform)[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    return jax.ShapeDtypeStruct((16,), "float32", sharding=sharding)


def _find_fault(extension: Any, platform: str) -> str:
    """Compile two instructions in the order XLA does not choose; what is wrong, if anything."""
    jax: Any = import_module("jax")
    swapped: list[list[str]] = []

    def swap(proto: bytes) -> bytes | None:
        module = read_module(proto)
        entry = module.entry
        work = [part for part in entry.instructions if part.opcode not in _IDLE]
        if swapped or len(work) != 2:
            return None
        swapped.append([part.name for part in work[::-1]])
        return write_orders(module, {entry: turned_around(entry.instructions, work)})

    name = f"hlomem-test-{next(_numbers)}"
    put_pass(extension, swap, name, platform)
    try:
        shape = _shape_on(jax, platform)

        def hlomem_self_test(x: Any, y: Any) -> Any:
            return jax.lax.cumsum(x), jax.lax.cumsum(y, reverse=True)

        with cache_off():  # what is taken from there passes through no hook
            compiled = jax.jit(hlomem_self_test).lower(shape, shape).compile()
        order = _order_of(compiled.as_text())
    except Exception as error:  # noqa: BLE001 - whatever it is, the hook is not to be used
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    finally:
        clear_pass(extension, name, platform)
    if not swapped:
        return "a registered pass was not called as expected"
    places = [list(order).index(name) for name in swapped[0] if name in order]
    return "" if places == sorted(places) and len(places) == 2 else "an order was not kept"


_IDLE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})
_LINE = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = .*? ([a-z][\w-]*)\(", re.MULTILINE)


def turned_around(
    order: Sequence[HloInstruction], work: Sequence[HloInstruction]
) -> list[HloInstruction]:
    """An order in which what works runs the other way round, and all else around it as it may."""
    later: set[HloInstruction] = set()
    for part in order:
        if any(operand in later or operand in work for operand in part.operands):
            later.add(part)
    first = [part for part in order if part not in later and part not in work]
    return [*first, *work[::-1], *(part for part in order if part in later)]


def _order_of(text: str) -> dict[str, str]:
    """The entry's instructions in order, with their opcodes."""
    entry = text[text.index("\nENTRY ") :]
    return dict(_LINE.findall(entry, entry.index("{\n")))
