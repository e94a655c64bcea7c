"""JAX's caches and the pass: nothing compiled without it is taken for one with it, nor the reverse.

Passes are not part of the key of JAX's cache on disk (jax 0.12). `custom_hook` of
`jax._src.cache_key` is there for that; where it is missing, that cache is off while a pass is on.
What JAX keeps in memory is cleared when a pass begins and when it ends.
"""

from __future__ import annotations

from importlib import import_module
from threading import RLock
from typing import Any

_lock = RLock()
_active: list[str] = []
_state: dict[str, Any] = {}


def enter(signature: str) -> None:
    """A pass begins that this text describes: options and versions."""
    with _lock:
        if not _active:
            _take_over()
        _active.append(signature)
        import_module("jax").clear_caches()


def leave(signature: str) -> None:
    with _lock:
        _active.remove(signature)
        if not _active:
            _give_back()
        import_module("jax").clear_caches()


def _take_over() -> None:
    keys = _cache_key()
    if keys is not None:
        original = keys.custom_hook
        _state["hook"] = original
        keys.custom_hook = lambda: f"{original()}{';'.join(_active)}"
        return
    config = import_module("jax").config
    _state["enabled"] = config.jax_enable_compilation_cache
    config.update("jax_enable_compilation_cache", False)


def _give_back() -> None:
    keys = _cache_key()
    if "hook" in _state and keys is not None:
        keys.custom_hook = _state.pop("hook")
    if "enabled" in _state:
        import_module("jax").config.update("jax_enable_compilation_cache", _state.pop("enabled"))


def _cache_key() -> Any:
    """JAX's module that makes keys, if it lets others have a say in them."""
    try:
        module = import_module("jax._src.cache_key")
    except ImportError:
        return None
    return module if callable(getattr(module, "custom_hook", None)) else None
