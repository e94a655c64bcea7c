"""A traced function → its Pallas kernels, each as a function of its own, with its blocks.

Calls are found in the jaxpr, and in those of its loops, branches, inner jits and checkpoints. A
call that several places make with the same blocks and shapes is cut once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from hlomem.base.patterns import lazy_pattern
from hlomem.jax.kernels.scratch import must_be_kept
from hlomem.kernels.blocks import Block, KernelFacts, Role
from hlomem.report.data.lines import Frame, users_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CALL, _MOSAIC = "pallas_call", "mosaic_tpu"
_NOT_USERS = lazy_pattern(r"^<|[/\\]jax[/\\]_src[/\\]|[/\\]hlomem[/\\]jax[/\\]")
_PLACE = lazy_pattern(r" at (\S.*:\d+)$")
_MAX_CORNERS = 64
"""Points of a grid at which an index map is evaluated."""


class CutKernel(NamedTuple):
    facts: KernelFacts
    call: Callable[..., Any]
    """The kernel alone, without its own limit."""
    arguments: tuple[Any, ...]
    """The shapes it is called with."""
    params: dict[str, Any]
    """Those of its equation."""
    primitive: Any

    def with_limit(self, limit: int) -> Callable[..., Any]:
        """The kernel alone, allowed that many bytes of VMEM."""
        given = self.params.get("compiler_params")
        own = _mosaic(given)
        if own is None:
            own = import_module("jax.experimental.pallas.tpu").CompilerParams()
        changed = replace(own, vmem_limit_bytes=limit)
        params: Any = changed
        if isinstance(given, Mapping):
            kind: Any = type(given)  # one that can be hashed
            params = kind({**given, _MOSAIC: changed})
        return _bound({**self.params, "compiler_params": params}, self.primitive)


def _mosaic(given: Any) -> Any:
    """The parameters of Mosaic's compiler; None where a call has none."""
    return given.get(_MOSAIC) if isinstance(given, Mapping) else given  # a mapping in jax 0.8


def cut_kernels(jaxpr: Any) -> list[CutKernel]:
    """The kernels of a ClosedJaxpr, in the order they are called."""
    found: dict[str, CutKernel] = {}
    for equation, frames in iter_calls(jaxpr):
        kernel = _cut(equation, frames)
        key = f"{kernel.facts} {kernel.arguments} {equation.params['jaxpr']}"
        known = found.get(key)
        if known is None:
            found[key] = kernel
        else:
            facts = structs.replace(known.facts, calls=known.facts.calls + 1)
            found[key] = known._replace(facts=facts)
    return list(found.values())


def iter_calls(jaxpr: Any) -> Iterator[tuple[Any, tuple[Frame, ...]]]:
    """The equations of Pallas calls, nested ones too, each with its call stack.

    JAX traces an inner jit once, so its equations do not know who called it: the stacks of the
    equations around them are appended.
    """
    pending = [(iter(_equations(jaxpr)), tuple[Frame, ...]())]
    while pending:
        equations, outer = pending[-1]
        equation = next(equations, None)
        if equation is None:
            pending.pop()
        elif equation.primitive.name == _CALL:
            yield equation, _frames(equation) + outer
        elif inner := list(_inner(equation.params)):
            nested = [one for jaxpr in inner for one in _equations(jaxpr)]
            pending.append((iter(nested), _frames(equation) + outer))


def _frames(equation: Any) -> tuple[Frame, ...]:
    trace = getattr(equation.source_info, "traceback", None)
    frames = () if trace is None else trace.frames
    return tuple(Frame(frame.file_name, frame.line_num, frame.function_name) for frame in frames)


def _equations(jaxpr: Any) -> Sequence[Any]:
    equations: Sequence[Any] = getattr(jaxpr, "jaxpr", jaxpr).eqns
    return equations


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs among the parameters of an equation."""
    for value in params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if hasattr(getattr(one, "jaxpr", one), "eqns"):
                yield one


def _bound(params: dict[str, Any], primitive: Any) -> Callable[..., Any]:
    def kernel(*arguments: Any) -> Any:
        return primitive.bind(*arguments, **params)

    return kernel


def _cut(equation: Any, frames: tuple[Frame, ...]) -> CutKernel:
    jax = import_module("jax")
    params, primitive = equation.params, equation.primitive
    avals = [variable.aval for variable in equation.invars]
    shapes = tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals)
    return CutKernel(_facts(equation, frames), _bound(params, primitive), shapes, params, primitive)


def _facts(equation: Any, frames: tuple[Frame, ...]) -> KernelFacts:
    mapping = equation.params["grid_mapping"]
    compiler = _mosaic(equation.params.get("compiler_params"))
    limit = getattr(compiler, "vmem_limit_bytes", None)
    frame = users_frame(tuple(frame for frame in frames if not _NOT_USERS.search(frame.file)))
    return KernelFacts(
        name=_name(equation),
        line=frame.location if frame else _own_line(equation),
        grid=tuple(size if isinstance(size, int) else 0 for size in mapping.grid),
        blocks=(*_windows(mapping), *_scratch(equation, mapping)),
        own_limit=None if limit is None else int(limit),
    )


def _name(equation: Any) -> str:
    params = equation.params
    named = params.get("name") or getattr(params.get("name_and_src_info"), "name", "")
    debug = getattr(params["jaxpr"], "debug_info", None)
    return str(named or getattr(debug, "func_name", "") or _CALL)


def _own_line(equation: Any) -> str:
    """The line of the kernel's function, if JAX tells it: `kernel at /home/me/mm.py:5`."""
    debug = getattr(equation.params["jaxpr"], "debug_info", None)
    found = _PLACE.search(str(getattr(debug, "func_src_info", "")))
    return found[1] if found else ""


def _windows(mapping: Any) -> Iterator[Block]:
    inputs = len(mapping.block_mappings) - mapping.num_outputs
    for number, window in enumerate(mapping.block_mappings):
        is_input = number < inputs
        shape = tuple(_block_size(size) for size in window.block_shape)
        role: Role = "in" if is_input else "out"
        array = getattr(window, "array_aval", None) or window.array_shape_dtype
        yield _block(
            role,
            str(getattr(window, "origin", "") or f"{role}[{number}]"),
            shape,
            array,
            _space(window.transformed_block_aval),
            _copies(mapping, window),
        )


def _block_size(size: Any) -> int:
    """A dimension of a block, which may be squeezed out of it."""
    if isinstance(size, int):
        return size
    known = getattr(size, "block_size", 1)
    return known if isinstance(known, int) else 1


def _scratch(equation: Any, mapping: Any) -> Iterator[Block]:
    count = mapping.num_scratch_operands
    jaxpr = equation.params["jaxpr"]
    for number, variable in enumerate(jaxpr.invars[-count:] if count else ()):
        aval = variable.aval
        space = _space(aval)
        if space in {"vmem", "smem"}:
            copies = int(must_be_kept(jaxpr, variable, mapping.grid))
            yield _block("scratch", f"scratch[{number}]", aval.shape, aval, space, copies)


def _block(
    role: Role, name: str, shape: tuple[int, ...], array: Any, space: str, copies: int
) -> Block:
    numpy = import_module("jax.numpy")
    dtype = array.dtype
    is_extended = import_module("jax").dtypes.issubdtype(
        dtype, import_module("jax").dtypes.extended
    )
    return Block(
        role=role,
        name=name,
        dtype=str(dtype),
        bits=32 if is_extended else _bits(numpy, dtype),
        shape=shape,
        array=() if role == "scratch" else tuple(array.shape),
        space=space,
        copies=copies,
    )


def _bits(numpy: Any, dtype: Any) -> int:
    if str(dtype) == "bool":
        return 32  # a mask in VMEM has whole words
    info = numpy.iinfo if numpy.issubdtype(dtype, numpy.integer) else numpy.finfo
    return int(info(dtype).bits)


def _space(aval: Any) -> str:
    """`vmem` where Pallas was told nothing; `elsewhere` for HBM, semaphores and the like."""
    space = getattr(aval, "memory_space", None)
    word = str(getattr(space, "value", space)).lower()
    if word in {"none", "default", "vmem"}:
        return "vmem"
    return "smem" if word == "smem" else "elsewhere"


def _copies(mapping: Any, window: Any) -> int:
    mode = getattr(window, "pipeline_mode", None)
    asked = getattr(mode, "buffer_count", 2)
    return min(int(asked), 2) if asked == 1 or _moves(mapping, window) else 1


def _moves(mapping: Any, window: Any) -> bool:
    """Whether a block's index differs between steps of the grid, or depends on data."""
    grid = [size if isinstance(size, int) else 2 for size in mapping.grid]
    if all(size == 1 for size in grid):
        return False
    closed = window.index_map_jaxpr
    if len(closed.jaxpr.invars) > len(grid):  # scalars that are prefetched come after the grid
        if any(_depends_on_data(closed.jaxpr, len(grid))):
            return True
        scalars = closed.jaxpr.invars[len(grid) :]
        if any(variable in equation.invars for variable in scalars for equation in closed.eqns):
            return True
    return len({_index_at(closed, point) for point in _points(grid)}) > 1


def _depends_on_data(jaxpr: Any, count: int) -> Iterator[bool]:
    tainted = set(map(id, jaxpr.invars[count:]))
    for equation in jaxpr.eqns:
        if any(id(variable) in tainted for variable in equation.invars):
            tainted.update(map(id, equation.outvars))
    for variable in jaxpr.outvars:
        yield id(variable) in tainted


def _points(grid: Sequence[int]) -> list[tuple[int, ...]]:
    """The first step, and its neighbours and farthest steps along each dimension."""
    origin = (0,) * len(grid)
    points = {origin}
    for axis, size in enumerate(grid):
        for at in (1, size - 1):
            if 0 < at < size:
                points.add((*origin[:axis], at, *origin[axis + 1 :]))
    return sorted(points)[:_MAX_CORNERS]


def _index_at(closed: Any, point: tuple[int, ...]) -> tuple[int, ...]:
    core: Any = import_module("jax.core")
    evaluate = getattr(core, "eval_jaxpr", None) or import_module("jax.extend.core").eval_jaxpr
    numpy = import_module("numpy")
    rest = [None] * (len(closed.jaxpr.invars) - len(point))
    values = [numpy.int32(number) for number in point]
    found = evaluate(closed.jaxpr, closed.consts, *values, *rest)
    return tuple(int(value) for value in found)
