"""A function and its arguments → a Lowered for a target, and the names of what it returns.

Arguments that are not on the target's devices are put on the first; nothing is allocated.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hlomem.base.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hlomem.jax.target_kinds import Target


def lower(
    function: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    target: Target | None,
    jit: Mapping[str, Any] | None = None,
) -> Any:
    """A function lowered for a target; None is where JAX would run it."""
    if hasattr(function, "lower") and jit:
        problem = "the function is jitted already: its options are those of its own jax.jit"
        raise CommandError(f"{problem}, not {', '.join(jit)}")
    if not callable(function):
        problem = f"a `{type(function).__name__}` is not a function: give a function, jitted or not"
        raise CommandError(f"{problem}, a Lowered or a Compiled")
    options: Mapping[str, Any] = {}
    if target is not None:
        is_placed = is_placed_by_jit(function)
        arguments, keywords, options = place_for(
            tuple(arguments), dict(keywords), target, is_placed=is_placed
        )
    lowered = jitted_with(function, {**options, **(jit or {})}).lower(*arguments, **keywords)
    return getattr(lowered, "lowered", lowered)  # nnx.jit and eqx.filter_jit wrap theirs


def jitted_with(function: Any, options: Mapping[str, Any]) -> Any:
    """A function as one that can be lowered; one that can already stays as it is."""
    if hasattr(function, "lower") and not options:
        return function
    return import_module("jax").jit(function, **options)


def place_for(
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    target: Target,
    *,
    is_placed: bool = False,
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """Arguments on a target's devices; options of jax.jit that put a program without any there."""
    placed, named = place(arguments, keywords, target, is_placed=is_placed)
    jax = import_module("jax")
    leaves = jax.tree.leaves((placed, named))
    if is_placed or any(getattr(leaf, "sharding", None) is not None for leaf in leaves):
        return placed, named, {}
    first = jax.sharding.SingleDeviceSharding(target.devices[0])
    return placed, named, {"out_shardings": first}


def is_placed_by_jit(function: Any) -> bool:
    """Whether a function was jitted with shardings for its arguments, `in_shardings`."""
    info = getattr(function, "_jit_info", None)
    return bool(getattr(info, "user_specified_in_shardings", False))


def place(
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    target: Target,
    *,
    is_placed: bool = False,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments as shapes on the devices of a target.

    With `is_placed` jax.jit says where those without a sharding go; where others are on several
    devices, JAX puts them there, too.
    """
    jax = import_module("jax")
    ours = set(target.devices)
    shardings = [_own_sharding(leaf) for leaf in jax.tree.leaves((arguments, keywords))]
    counts = [len(getattr(sharding, "device_set", ())) for sharding in shardings]
    is_free = is_placed or max(counts, default=0) > 1
    first = None if is_free else jax.sharding.SingleDeviceSharding(target.devices[0])

    def put(leaf: Any) -> Any:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            return leaf  # a number, or what is static
        sharding = _own_sharding(leaf)
        devices: set[Any] = getattr(sharding, "device_set", set())
        if devices and devices <= ours:
            return _shape_of(jax, leaf, sharding)
        if len(devices) > 1:
            problem = f"an argument of shape {tuple(leaf.shape)} is sharded over other devices than"
            advice = f"make its mesh of hlomem.jax.devices({target.name!r})"
            raise CommandError(f"{problem} those of {target.name}: {advice}")
        return _shape_of(jax, leaf, first)

    placed: tuple[tuple[Any, ...], dict[str, Any]] = jax.tree.map(put, (arguments, keywords))
    return placed


def _own_sharding(leaf: Any) -> Any:
    """The sharding of an argument; None for an array that JAX may still move."""
    return getattr(leaf, "sharding", None) if getattr(leaf, "committed", True) else None


def _shape_of(jax: Any, leaf: Any, sharding: Any) -> Any:
    is_weak = bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=is_weak)


def result_names(stage: Any) -> tuple[str, ...]:
    """The results of a Lowered or a Compiled, each by its path: `[0]['w']`; "" for the only one."""
    found = getattr(stage, "out_info", None)
    if found is None:
        return ()
    tree_util = import_module("jax.tree_util")
    leaves, _ = tree_util.tree_flatten_with_path(found)
    return tuple(str(tree_util.keystr(path)) for path, _ in leaves)


_NEEDS_CHIP = "use_abstract_mesh"
"""In the messages of Pallas where it has to know the chip it lowers for."""
_Made = TypeVar("_Made")


def chip_context(target: Target) -> AbstractContextManager[Any]:
    """JAX told which chip it is for; nothing where its release has no such context."""
    sharding = import_module("jax.sharding")
    one = sharding.Mesh(target.devices[:1], ("x",))
    kind = getattr(getattr(one, "abstract_mesh", None), "abstract_device", None)
    if kind is None or not hasattr(sharding, "use_abstract_mesh"):
        return nullcontext()
    mesh = sharding.AbstractMesh((), (), abstract_device=kind)
    context: AbstractContextManager[Any] = sharding.use_abstract_mesh(mesh)
    return context


def knowing_the_chip(target: Target, make: Callable[[], _Made]) -> _Made:
    """Something made by JAX, which is told the chip only where it asks for it."""
    try:
        return make()
    except (ValueError, RuntimeError) as error:
        if _NEEDS_CHIP not in str(error):
            raise
    with chip_context(target):
        return make()


_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
_ENABLED = "jax_enable_compilation_cache"
_lock = RLock()
_cache_users = 0
_was_enabled = True


class Compile(NamedTuple):
    compiled: Any
    """The Compiled; None where XLA refused the program."""
    refusal: str = ""
    """XLA's message where the program does not fit."""


def write_dump(
    lowered: Any, folder: Path, compiler_options: Mapping[str, Any] | None = None
) -> Compile:
    """Compile a Lowered and leave XLA's dump in a folder, also where it does not fit."""
    jax = import_module("jax")
    dumps = {"xla_dump_to": str(folder), "xla_dump_hlo_as_text": True}
    options = {**(compiler_options or {}), **dumps}
    with cache_off():
        try:
            return Compile(lowered.compile(compiler_options=options))
        except jax.errors.JaxRuntimeError as error:
            if _OUT_OF_MEMORY not in str(error):
                raise
            return Compile(None, str(error))


def module_name(lowered: Any) -> str:
    """The name XLA will know a program by: `jit_train_step`."""
    attributes = lowered.compiler_ir("stablehlo").operation.attributes
    return str(attributes["sym_name"].value)


@contextmanager
def cache_off() -> Iterator[None]:
    """JAX's persistent cache, if any, is neither read nor written in the block, by any thread."""
    config = import_module("jax").config
    if not config.jax_compilation_cache_dir:
        yield
        return
    global _cache_users, _was_enabled  # noqa: PLW0603 - the option is the process's, too
    with _lock:
        _cache_users += 1
        if _cache_users == 1:
            _was_enabled = getattr(config, _ENABLED)
            _set_enabled(config, False)
    try:
        yield
    finally:
        with _lock:
            _cache_users -= 1
            if not _cache_users:
                _set_enabled(config, _was_enabled)


def _set_enabled(config: Any, is_enabled: bool) -> None:
    config.update(_ENABLED, is_enabled)
    import_module("jax.experimental.compilation_cache.compilation_cache").reset_cache()
