"""The inputs and results of JAX's compiler, and the form in which JAX stores executables.

`jax._src.compiler.compile_or_get_cached` is replaced while a program is compiled, by a function
that notes program and options, or compiles another program with the same interface.
"""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hlomem.base.errors import CommandError
from hlomem.jax.compile.programs import cache_off, lower
from hlomem.proto.module import read_module
from hlomem.proto.programs import RIEGELI_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.jax.target_kinds import Target

_COMPILE = "compile_or_get_cached"
_LAYOUT = "entry_computation_layout"
_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"


class Calls(Struct):
    """Inputs and results of one call of the compiler by JAX."""

    stablehlo: bytes = b""
    options: bytes = b""
    compiled: Any = None
    """The Compiled; None where it was refused."""
    refusal: str = ""

    def note(self, _backend: Any, module: Any, _devices: Any, options: Any, *_rest: Any) -> None:
        """Keep the inputs of the compiler."""
        mlir = import_module("jax._src.interpreters.mlir")
        self.stablehlo = mlir.module_to_bytecode(module)
        self.options = options.SerializeAsString()

    @property
    def serialized(self) -> bytes:
        """The executable as JAX serializes it: a header and libtpu's record file."""
        return bytes(self.compiled.runtime_executable().serialize())

    def options_with(self, flag: str) -> bytes:
        """The options with a flag of libtpu set."""
        kind = import_module("jax._src.lib").xla_client.CompileOptions
        options = kind.ParseFromString(self.options)
        options.env_option_overrides = [*options.env_option_overrides, (flag, True)]
        return bytes(options.SerializeAsString())


def program_of(lowered: Any) -> Calls:
    """Compile a Lowered, and note the inputs of its compiler."""
    calls = Calls()

    def note(compile_: Callable[..., Any], *given: Any) -> Any:
        calls.note(*given)
        return compile_(*given)

    with replaced(note):
        try:
            calls.compiled = lowered.compile()
        except import_module("jax").errors.JaxRuntimeError as error:
            if _OUT_OF_MEMORY not in str(error):
                raise
            calls.refusal = str(error)
    return calls


def interface_of(lowered: Any, module: bytes) -> Any:
    """A Compiled with the interface of a Lowered that returns zeros.

    For programs that JAX cannot compile: their executable is put into it.
    """

    def compile_zeros(compile_: Callable[..., Any], backend: Any, given: Any, *rest: Any) -> Any:
        return compile_(backend, _returning_zeros(given), *rest)

    with replaced(compile_zeros):
        compiled = lowered.compile()
    found = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    ours, theirs = (read_module(one, "").attributes.get(_LAYOUT) for one in (found, module))
    if ours != theirs:
        raise CommandError("the layouts of its arguments are not those of a program that fits")
    return compiled


def small_program(target: Target) -> Any:
    """A Lowered that libtpu compiles in a second, for a self-test."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")

    def step(x: Any, y: Any) -> Any:
        return jnp.tanh(x @ y).sum(0) + y[0]

    array = jax.ShapeDtypeStruct((256, 256), "float32")
    return lower(step, (array, array), {}, target)


def write_form(compiled: Any, executable: bytes) -> bytes:
    """The bytes of `pickle.dumps(serialize(compiled))`, with another executable in them."""
    stored: Any = import_module("jax.experimental.serialize_executable")
    given = bytes(compiled.runtime_executable().serialize())
    header = given[: given.index(RIEGELI_MAGIC)]

    class Pickler(stored._JaxPjrtPickler):  # type: ignore[misc]
        def persistent_id(self, found: Any) -> Any:
            known = super().persistent_id(found)
            return ("exec", header + executable) if known and known[0] == "exec" else known

    kept, stored._JaxPjrtPickler = stored._JaxPjrtPickler, Pickler
    try:
        return pickle.dumps(stored.serialize(compiled))
    except (ValueError, NotImplementedError, TypeError, pickle.PicklingError) as error:
        raise CommandError(f"JAX cannot store this program: {error}") from error
    finally:
        stored._JaxPjrtPickler = kept


@contextmanager
def replaced(call: Callable[..., Any]) -> Iterator[None]:
    """Within the block JAX calls this with its own function and the arguments of that."""
    compiler = import_module("jax._src.compiler")
    kept = getattr(compiler, _COMPILE)
    import_module("jax").clear_caches()
    setattr(compiler, _COMPILE, lambda *given: call(kept, *given))
    try:
        with cache_off():
            yield
    finally:
        setattr(compiler, _COMPILE, kept)


def _returning_zeros(module: Any) -> Any:
    """A module of MLIR with the same interface whose results are zeros."""
    ir = import_module("jaxlib.mlir.ir")
    hlo = import_module("jax._src.lib.mlir.dialects").hlo
    with module.context:
        copy = ir.Module.parse(module.operation.get_asm(binary=False))
        main = next(one for one in copy.body if str(one.attributes["sym_name"]) == '"main"')
        block = main.regions[0].blocks[0]
        *others, result = list(block.operations)
        with ir.InsertionPoint(result), ir.Location.unknown():
            for place, value in enumerate(result.operands):
                result.operands[place] = _zeros(ir, hlo, value.type)
        for one in reversed(others):
            one.erase()
    return copy


def _zeros(ir: Any, hlo: Any, kind: Any) -> Any:
    shaped = ir.RankedTensorType(kind)
    element = shaped.element_type
    if isinstance(element, ir.IntegerType):
        zero = ir.IntegerAttr.get(element, 0)
    else:
        zero = ir.FloatAttr.get(element, 0.0)
    return hlo.ConstantOp(ir.DenseElementsAttr.get_splat(shaped, zero)).result
