"""Programs of which only XLA's text is at hand, compiled and run by XLA:CPU all the same.

In: the text of a scheduled module. Out: a `CarriedProgram`. JAX compiles a function of the same
signature that does nothing, and where XLA hands over what it has scheduled it gets the module back
instead: from there on it plans, allocates and runs that. With XLA's own schedule of the text this
is the program XLA compiled; without, XLA schedules it again, by whichever scheduler is asked for.
Constants whose numbers the text leaves out get those XLA's parser puts there.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem import hlo

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.shape import Shape

_HOOK = "carried"
_DTYPE_OF = {"pred": "bool", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128"}
_KIND_OF = {"s": "int", "u": "uint", "f": "float"}


class CarriedProgram(NamedTuple):
    """A module, and the function that carries it."""

    function: Any
    """Of JAX, jitted; compiling it compiles the module."""
    arguments: tuple[Any, ...]
    """As shapes."""
    proto: bytes
    """The module with its schedule."""
    bare_proto: bytes
    """The module without."""

    def compile(self, transform: Callable[[bytes], bytes | None] | None = None) -> Any:
        """In XLA's own order, or in that which a pass makes of it."""
        answer = self.proto if transform is None else transform(self.proto) or self.proto
        return self._compile(answer, "POST_SCHEDULER", {})

    def compile_with(self, options: dict[str, str]) -> Any:
        """As XLA schedules it under other options."""
        return self._compile(self.bare_proto, "PRE_SCHEDULER", options)

    def _compile(self, answer: bytes, stage_name: str, options: dict[str, str]) -> Any:
        extension: Any = import_module("jax.extend.xla")
        stage = extension.PipelineStage[stage_name]
        extension.register_hlo_module_transformation(
            lambda _: answer, name=_HOOK, stage=stage, platforms="cpu"
        )
        try:
            import_module("jax").clear_caches()
            return self.function.lower(*self.arguments).compile(compiler_options=options)
        finally:
            extension.clear_hlo_module_transformation(_HOOK, stage=stage, platforms="cpu")


def carry(text: str) -> CarriedProgram:
    """Make a program of a module's text."""
    module = hlo.parse(text)
    jax: Any = import_module("jax")
    parameters = [parameter.shape for parameter in module.entry.parameters]
    function, arguments = _carrier(parameters, module.entry.root.shape, _partitions(text))
    donated = sorted({alias.parameter_number for alias in module.input_output_alias})
    jitted = jax.jit(function, donate_argnums=tuple(donated), keep_unused=True)
    bare_text = text.replace("is_scheduled=true, ", "", 1)
    return CarriedProgram(jitted, arguments, proto_of(text), proto_of(bare_text))


def text_of(proto: bytes) -> str:
    """The text of a module as XLA prints it, all of its constants written out."""
    hlo_of: Any = import_module("jaxlib._hlo")
    options = hlo_of.HloPrintOptions()
    options.print_large_constants = True
    return str(hlo_of.HloModule.from_serialized_hlo_module_proto(proto).to_string(options))


def proto_of(text: str) -> bytes:
    """The module that XLA reads in a text."""
    parsed = import_module("jaxlib._hlo").hlo_module_from_text(text)
    return bytes(parsed.as_serialized_hlo_module_proto())


def _partitions(text: str) -> int:
    found = re.search(r"num_partitions=(\d+)", text.partition("\n")[0])
    return int(found[1]) if found else 1


def _carrier(parameters: list[Shape], result: Shape, count: int) -> tuple[Any, tuple[Any, ...]]:
    """A function of these shapes, on as many devices, and the shapes of its arguments."""
    jax: Any = import_module("jax")
    leaves = [leaf for _, leaf in result.leaves()]

    def nothing(*_: Any) -> Any:
        made = [jax.numpy.zeros(leaf.dimensions, _dtype(leaf)) for leaf in leaves]
        return tuple(made) if result.is_tuple else made[0]

    if count == 1:
        shapes = [jax.ShapeDtypeStruct(shape.dimensions, _dtype(shape)) for shape in parameters]
        return nothing, tuple(shapes)
    sharding: Any = import_module("jax.sharding")
    mesh = jax.make_mesh((count,), ("d",), devices=jax.devices()[:count])

    def spec(shape: Shape) -> Any:
        return sharding.PartitionSpec(*"d"[: len(shape.dimensions)])

    def whole(shape: Shape) -> Any:
        first = tuple(count * size for size in shape.dimensions[:1])
        named = sharding.NamedSharding(mesh, spec(shape))
        dimensions = first + tuple(shape.dimensions[1:])
        return jax.ShapeDtypeStruct(dimensions, _dtype(shape), sharding=named)

    out_specs = tuple(map(spec, leaves)) if result.is_tuple else spec(result)
    in_specs = tuple(map(spec, parameters))
    mapped = jax.shard_map(
        nothing, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
    return mapped, tuple(map(whole, parameters))


def _dtype(shape: Shape) -> str:
    """The name JAX has for the type of a shape's elements."""
    name = shape.element_type.text
    return _DTYPE_OF.get(name) or f"{_KIND_OF[name[0]]}{name[1:]}"
