"""A function with all-to-alls instead of the gathers that each device takes a part of.

In: a function that is about to be traced, and the lines of gathers. Out: a function that computes
the same, of which no device has the whole.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.jax.compile.exchanges import takes_of
from hlomem.jax.compile.flat_jaxprs import FlatJaxpr, scan_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from hlomem.jax.compile.exchanges import Taken
    from hlomem.jax.compile.flat_jaxprs import Step, Value


def exchanged(function: Callable[..., Any], lines: Collection[str]) -> Callable[..., Any]:
    """A function whose gathers at some lines, and the slices of them, are all-to-alls."""
    jax: Any = import_module("jax")

    @wraps(function)
    def run(*arguments: Any, **keywords: Any) -> Any:
        leaves, tree = jax.tree.flatten((arguments, keywords))
        results: list[Any] = []

        def flat_function(*given: Any) -> Any:
            positional, named = jax.tree.unflatten(tree, given)
            made, shape = jax.tree.flatten(function(*positional, **named))
            results[:] = [shape]
            return made

        flat = FlatJaxpr(jax.make_jaxpr(flat_function)(*leaves))
        return jax.tree.unflatten(results[0], _run(flat, leaves, lines))

    return run


def _run(flat: FlatJaxpr, arguments: list[Any], lines: Collection[str]) -> list[Any]:
    """The results of a jaxpr, with all-to-alls instead of gathers at some lines."""
    sizes = dict(import_module("jax._src.core").get_axis_env().axis_sizes)
    found = [one for one in takes_of(flat, sizes) if one.gather.line in lines]
    of_take = {one.take.outputs[0]: one for one in found}
    left_out = {one for taken in found for step in (taken.gather, *taken.way)
                for one in step.outputs}  # fmt: skip
    values = dict(flat.constants) | dict(zip(flat.arguments, arguments, strict=True))

    def of(one: Value) -> Any:
        return values[one] if isinstance(one, int) else one.val

    for step in flat.steps:
        if step.outputs and step.outputs[0] in of_take:
            taken = of_take[step.outputs[0]]
            with _as_written(taken.gather):
                values[step.outputs[0]] = _exchange(taken, of(taken.gather.inputs[0]))
        elif not (step.outputs and step.outputs[0] in left_out):
            with _as_written(step):
                made = _bound(step, [of(one) for one in step.inputs], lines)
            values.update(zip(step.outputs, made, strict=True))
    return [of(one) for one in flat.results]


@contextmanager
def _as_written(step: Step) -> Iterator[None]:
    """The lines and the settings of a step, for what is computed instead of it."""
    source: Any = import_module("jax._src.source_info_util")
    written = step.equation.source_info
    names = source.current_name_stack() + written.name_stack
    with source.user_context(written.traceback, name_stack=names), step.equation.ctx.manager:
        yield


def _bound(step: Step, given: list[Any], lines: Collection[str]) -> list[Any]:
    """The results of a step, of loops and recomputed functions with all-to-alls inside."""
    primitive, params = step.equation.primitive, step.params
    again = {"scan": _scanned, "while": _looped}.get(primitive.name)
    if again is not None:
        return again(step, given, lines)
    if primitive.name in ("checkpoint", "remat2", "remat"):
        jax: Any = import_module("jax")
        flat = FlatJaxpr(params["jaxpr"])
        recomputed = jax.checkpoint(
            lambda *values: _run(flat, list(values), lines),
            policy=params["policy"],
            prevent_cse=params["prevent_cse"],
        )
        return list(recomputed(*given))
    options = primitive.get_bind_params(params)
    functions, options = options if isinstance(options, tuple) else ((), options)  # before JAX 0.12
    made = primitive.bind(*functions, *given, **options)
    return list(made) if primitive.multiple_results else [made]


def _scanned(step: Step, given: list[Any], lines: Collection[str]) -> list[Any]:
    """The results of a scan, with all-to-alls in its body."""
    loops: Any = import_module("jax._src.lax.control_flow")
    params, flat = step.params, FlatJaxpr(step.params["jaxpr"])
    consts, carried = scan_counts(step)
    fixed = given[:consts]

    def body(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        made = _run(flat, [*fixed, *carry, *row], lines)
        return made[:carried], made[carried:]

    start, rows = given[consts : consts + carried], given[consts + carried :]
    options = {name: params[name] for name in ("length", "reverse", "unroll")}
    carry, stacked = loops.scan(body, start, rows, **options)
    return [*carry, *stacked]


def _looped(step: Step, given: list[Any], lines: Collection[str]) -> list[Any]:
    """The results of a loop, with all-to-alls in its body."""
    loops: Any = import_module("jax._src.lax.control_flow")
    params = step.params
    asked, consts = params["cond_nconsts"], params["body_nconsts"]
    condition, flat = FlatJaxpr(params["cond_jaxpr"]), FlatJaxpr(params["body_jaxpr"])
    of_condition, fixed = given[:asked], given[asked : asked + consts]
    made: list[Any] = loops.while_loop(
        lambda carry: _run(condition, [*of_condition, *carry], lines)[0],
        lambda carry: _run(flat, [*fixed, *carry], lines),
        given[asked + consts :],
    )
    return made


def _exchange(taken: Taken, value: Any) -> Any:
    """The part that a device takes, by an all-to-all."""
    jax: Any = import_module("jax")
    concat = int(taken.gather.params["all_gather_dimension"])
    if not taken.gather.params["tiled"]:
        value = jax.numpy.expand_dims(value, concat)
    axes = taken.gather.params["axis_name"]
    made = jax.lax.all_to_all(value, axes, split_axis=taken.split, concat_axis=concat, tiled=True)
    following = (*taken.way[1:], taken.take)
    for step, at, then in zip(taken.way, taken.at[1:], following, strict=False):
        which = step.outputs.index(then.inputs[0])
        made = _walked(step, made, at, taken.devices, which)
    return made.reshape(taken.take.result_shape)


def _walked(step: Step, value: Any, at: int, count: int, which: int) -> Any:
    """The result of a step of the way, of one part along a dimension of it."""
    jax: Any = import_module("jax")
    if step.name == "reshape":
        return value.reshape([size // count if n == at else size
                              for n, size in enumerate(step.result_shape)])  # fmt: skip
    if step.name == "transpose":
        return jax.lax.transpose(value, step.params["permutation"])
    if step.name == "squeeze":
        return jax.lax.squeeze(value, step.params["dimensions"])
    if step.name == "convert_element_type":
        return value.astype(step.params["new_dtype"])
    if step.name == "split":
        return jax.lax.split(value, step.params["sizes"], step.params["axis"])[which]
    if step.name == "slice":
        begins, ends = step.params["start_indices"], list(step.params["limit_indices"])
        ends[at] //= count
        return jax.lax.slice(value, begins, ends, step.params["strides"])
    return value
