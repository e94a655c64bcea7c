"""A function and its arguments → a Lowered for a target, and the names of what it returns.

In: a function, jitted or not, with arguments that are arrays, `ShapeDtypeStruct`s or trees of them.
Out: a `jax.stages.Lowered`. For a target, whatever has no place on its devices is put on the first
of them; nothing is allocated there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.jax.target_kinds import Target


def lower(
    function: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    target: Target | None,
    jit: Mapping[str, Any] | None = None,
) -> Any:
    """A function lowered for a target; None is where JAX would run it."""
    jax = import_module("jax")
    is_jitted = hasattr(function, "lower")
    if is_jitted and jit:
        problem = "the function is jitted already: its options are those of its own jax.jit"
        raise CommandError(f"{problem}, not {', '.join(jit)}")
    if not callable(function):
        problem = f"a `{type(function).__name__}` is no function: give a function, jitted or not"
        raise CommandError(f"{problem}, a Lowered or a Compiled")
    if target is not None:
        arguments, keywords = place(tuple(arguments), dict(keywords), target)
        if not _has_arrays(arguments, keywords):
            return _without_arguments(function, arguments, keywords, target, jit)
    jitted = function if is_jitted else jax.jit(function, **(jit or {}))
    return jitted.lower(*arguments, **keywords)


def place(
    arguments: tuple[Any, ...], keywords: dict[str, Any], target: Target
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments as shapes on the devices of a target."""
    jax = import_module("jax")
    ours = set(target.devices)
    first = jax.sharding.SingleDeviceSharding(target.devices[0])

    def put(leaf: Any) -> Any:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            return leaf  # a number, or what is static
        sharding = getattr(leaf, "sharding", None)
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


def _shape_of(jax: Any, leaf: Any, sharding: Any) -> Any:
    is_weak = bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=is_weak)


def _has_arrays(arguments: Any, keywords: Any) -> bool:
    """Whether anything among the arguments says which devices the program is for."""
    leaves = import_module("jax").tree.leaves((arguments, keywords))
    return any(getattr(leaf, "sharding", None) is not None for leaf in leaves)


def _without_arguments(
    function: Any, arguments: Any, keywords: Any, target: Target, jit: Mapping[str, Any] | None
) -> Any:
    """A program that only its results can put on a device."""
    jax = import_module("jax")
    first = jax.sharding.SingleDeviceSharding(target.devices[0])
    options = {"out_shardings": first, **(jit or {})}
    return jax.jit(function, **options).lower(*arguments, **keywords)


def result_names(stage: Any) -> tuple[str, ...]:
    """What a Lowered or a Compiled returns, each leaf by its path: `[0]['w']`; "" for the only."""
    found = getattr(stage, "out_info", None)
    if found is None:
        return ()
    tree_util = import_module("jax.tree_util")
    leaves, _ = tree_util.tree_flatten_with_path(found)
    return tuple(str(tree_util.keystr(path)) for path, _ in leaves)
