"""`jax.checkpoint` put around parts of a factory's program, from outside.

That is what `jax.grad`, `jax.value_and_grad` and `jax.vjp` differentiate, or the bodies of
`jax.lax.scan`: functions of JAX are replaced, in a child process that does nothing else. A factory
with a parameter `checkpoint` wraps what it likes itself.
"""

from __future__ import annotations

import inspect
from functools import partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

Place: TypeAlias = Literal["checkpoint", "gradient", "scan"]
PARAMETER = "checkpoint"
"""A factory's parameter that puts a function around what is to be recomputed; its default says that
it does, as `lambda function: function` does."""
_DIFFERENTIATING = ("grad", "value_and_grad", "vjp")


class Places(Struct, frozen=True, kw_only=True):
    """The places of a program that `jax.checkpoint` can be put around."""

    wrapped: Place
    """The one it was put around."""
    gradients: int
    """Functions that were differentiated."""
    scans: int


class Checkpoints:
    """Replaces functions of JAX: wraps what is at one place, and counts the others."""

    def __init__(self, policy: str, place: Place) -> None:
        self._policy = policy
        self._place = place
        self._gradients = 0
        self._scans = 0

    def install(self) -> None:
        """Replace them, until the process ends."""
        jax = import_module("jax")
        for name in _DIFFERENTIATING:
            setattr(jax, name, self._differentiating(getattr(jax, name)))
        jax.lax.scan = self._scanning(jax.lax.scan)

    def settings_of(self, factory: Callable[..., Any]) -> dict[str, Any]:
        """Settings that a factory gets beside its own: it wraps something itself, if it can."""
        if self._place == "gradient" and has_parameter(factory):
            self._place = "checkpoint"
        if self._place != "checkpoint":
            return {}
        return {PARAMETER: partial(import_module("jax").checkpoint, policy=self._found_policy())}

    @property
    def places(self) -> Places:
        """The places there were, once the factory's program has been traced."""
        return Places(wrapped=self._place, gradients=self._gradients, scans=self._scans)

    def _found_policy(self) -> Any:
        return getattr(import_module("jax").checkpoint_policies, self._policy)

    def _differentiating(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def replacement(fun: Any, *arguments: Any, **keywords: Any) -> Any:  # JAX's own name
            self._gradients += 1
            if self._place == "gradient":
                fun = _wrapped(fun, self._found_policy())
            return function(fun, *arguments, **keywords)

        return replacement

    def _scanning(self, scan: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(scan)
        def replacement(f: Any, *arguments: Any, **keywords: Any) -> Any:  # JAX's own name
            self._scans += 1
            if self._place == "scan":
                f = _wrapped(f, self._found_policy(), prevent_cse=False)
            return scan(f, *arguments, **keywords)

        return replacement


def has_parameter(factory: Callable[..., Any]) -> bool:
    """Whether a factory wraps what is to be recomputed itself, if it is told by what."""
    found = inspect.signature(factory).parameters.get(PARAMETER)
    return found is not None and found.default is not found.empty and callable(found.default)


def _wrapped(function: Any, policy: Any, **options: Any) -> Any:
    """A function under `jax.checkpoint`; arguments that are no arrays stay as given."""
    jax = import_module("jax")

    @wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        leaves, tree = jax.tree.flatten((arguments, keywords))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

        def inner(*arrays: Any) -> Any:
            filled = list(leaves)
            for place, array in zip(places, arrays, strict=True):
                filled[place] = array
            again, named = jax.tree.unflatten(tree, filled)
            return function(*again, **named)

        arrays = [leaves[place] for place in places]
        return jax.checkpoint(inner, policy=policy, **options)(*arrays)

    return called
