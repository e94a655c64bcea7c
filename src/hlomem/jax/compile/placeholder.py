"""A program that stands in for a given module, so that a compiler plans that module.

It has the same parameters and results and does nothing; when the compiler has scheduled it, the
hook hands over the given module instead. No part of the user's program is needed for it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.assign.footprint import footprint
from hlomem.base.errors import CommandError
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import CompileError, plan_in_child
from hlomem.jax.pass_.hook import put_pass
from hlomem.proto.edit import name_of
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule
    from hlomem.hlo.shape import Shape

FACTORY = f"{__name__}:program"
MAX_SECONDS = 120.0
"""How long one plan may take."""
_HOOK = "hlomem-placeholder"
_NAMES = {"pred": "bool", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64"}
_NAMES |= {"c64": "complex64", "c128": "complex128"}
_NAMES |= {f"s{bits}": f"int{bits}" for bits in (2, 4, 8, 16, 32, 64)}
_NAMES |= {f"u{bits}": f"uint{bits}" for bits in (2, 4, 8, 16, 32, 64)}


class Interface(NamedTuple):
    """The outside of a module: the compiler compares it when one module replaces another."""

    parameters: tuple[tuple[tuple[int, ...], str], ...]
    """Dimensions and the name of the elements' type, as NumPy has it."""
    results: tuple[tuple[tuple[int, ...], str], ...]
    is_tuple: bool
    """Whether the results are a tuple, or the only one is itself."""
    partitions: int


def interface_of(module: HloModule) -> Interface:
    """The parameters and results of a module, on one of its devices."""
    root = module.entry.root.shape
    results = root.elements if root.is_tuple else (root,)
    return Interface(
        tuple(_array(parameter.shape) for parameter in module.entry.parameters),
        tuple(map(_array, results)),
        root.is_tuple,
        module.num_partitions,
    )


def plan_module(proto: bytes, target: str, platform: str) -> Dump:
    """A compiler's plan of a module in the order it has, made in a child."""
    with TemporaryDirectory(prefix="hlomem-") as folder:
        file = Path(folder) / "module.pb"
        file.write_bytes(proto)
        settings = {"module": str(file), "platform": platform}
        job = Job(factory=FACTORY, target=target, settings=settings)
        return plan_in_child(job, timeout=MAX_SECONDS).dump


def temporaries_of(dump: Dump) -> int:
    """Bytes of temporaries in main memory; an error where the dump does not list them."""
    if dump.assignment is None:
        raise CompileError("the compiler left no list of its allocations")
    allocations = dump.assignment.allocations
    return footprint([held for held in allocations if held.is_preallocated_temp])


def planned_bytes(target: str, platform: str, proto: bytes) -> int:
    """Bytes of temporaries a target's compiler plans for a module in the order it has."""
    return temporaries_of(plan_module(proto, target, platform))


def program(devices: Sequence[Any], module: str, platform: str) -> tuple[Any, tuple[Any, ...]]:
    """The factory: a function and its arguments, with the hook in place for its compile."""
    proto = Path(module).read_bytes()
    interface = interface_of(read_module(proto))
    jax: Any = import_module("jax")
    with_64 = any(name in ("int64", "uint64", "float64") for _, name in interface.parameters)
    jax.config.update("jax_enable_x64", with_64)

    def hlomem_placeholder(*_: Any) -> Any:
        made = tuple(jax.numpy.zeros(shape, name) for shape, name in interface.results)
        return made if interface.is_tuple else made[0]

    def replace(given: bytes) -> bytes | None:
        return proto if name_of(bytes(given)).endswith(hlomem_placeholder.__name__) else None

    put_pass(import_module("jax.extend.xla"), replace, _HOOK, platform)
    sharding = _everywhere(jax, devices, interface.partitions)
    arguments = tuple(
        jax.ShapeDtypeStruct(shape, name, sharding=sharding) for shape, name in interface.parameters
    )
    jitted = jax.jit(hlomem_placeholder, keep_unused=True, out_shardings=sharding)
    return jitted, arguments


def _everywhere(jax: Any, devices: Sequence[Any], partitions: int) -> Any:
    """The sharding of an array that every device of the program has whole."""
    if partitions > len(devices):
        raise CommandError(f"the module is of {partitions} devices, the target of {len(devices)}")
    mesh = jax.sharding.Mesh(import_module("numpy").array(devices[:partitions]), ("devices",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def _array(shape: Shape) -> tuple[tuple[int, ...], str]:
    name = _NAMES.get(shape.element_type.text)
    if name is None or any(shape.dynamic):
        raise CommandError(f"nothing can stand in for a parameter or result {shape}")
    return shape.dimensions, name
