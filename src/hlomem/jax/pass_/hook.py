"""Modules that JAX's compilers schedule, shown to watchers, by JAX's public API alone.

Programs are seen before their memory is planned, and so those that do not fit, too. The hook is
that of `hlomem.jax.optimize`, put in by a listener of `jax.monitoring` when the first program is
about to be compiled: it initialises JAX's backends, which must not happen early
(`jax.distributed.initialize`). Whatever goes wrong is logged and leaves the compile alone.
"""

from __future__ import annotations

import itertools
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.jax.pass_.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

ABOUT_TO_COMPILE = "/jax/core/compile/jaxpr_to_mlir_module_duration"
"""JAX's event after a program was lowered: what follows is the compile."""
_PLUGINS = ("tpu", "cuda", "rocm")
"""Compilers that may be there without devices, for programs that run elsewhere."""


class SeenModule(NamedTuple):
    """A program as its compiler had scheduled it."""

    platform: str
    proto: bytes
    """A serialized HloModuleProto."""


_numbers = itertools.count(1)
_lock = RLock()
_watchers: tuple[Callable[[SeenModule], None], ...] = ()
"""Replaced, never changed: a compiler that shows a module takes no lock of ours."""
_hooks: dict[str, str] = {}
"""By platform the name of the hook that is in."""


def put_pass(extension: Any, callback: Any, name: str, platform: str) -> None:
    """Have a platform's compiler call a function with every module it has scheduled."""
    stage = extension.PipelineStage.POST_SCHEDULER
    extension.register_hlo_module_transformation(
        callback, name=name, stage=stage, platforms=platform
    )


def clear_pass(extension: Any, name: str, platform: str) -> None:
    stage = extension.PipelineStage.POST_SCHEDULER
    extension.clear_hlo_module_transformation(name, stage=stage, platforms=platform)


def add(watcher: Callable[[SeenModule], None]) -> None:
    """Call `watcher` with every module from now on, from any thread of the compiler."""
    global _watchers  # noqa: PLW0603 - compilers are the process's, and so are its watchers
    with _lock:
        _watchers = (*_watchers, watcher)
        if len(_watchers) == 1:
            monitoring: Any = import_module("jax.monitoring")
            monitoring.register_event_duration_secs_listener(_listen)


def remove(watcher: Callable[[SeenModule], None]) -> None:
    """Call it no more; with the last one the hooks go."""
    global _watchers  # noqa: PLW0603 - as above
    with _lock:
        _watchers = tuple(other for other in _watchers if other != watcher)
        if not _watchers:
            monitoring: Any = import_module("jax.monitoring")
            monitoring.unregister_event_duration_listener(_listen)
            _take_out()


def _listen(event: str, _: float, **__: Any) -> None:
    if event == ABOUT_TO_COMPILE:
        with _lock:
            if _watchers:
                _put_in()


def _put_in() -> None:
    """A hook into every compiler of the process that has none yet."""
    try:
        extension: Any = import_module("jax.extend.xla")
        backends = list(import_module("jax.extend.backend").backends())
    except Exception as error:  # noqa: BLE001 - an exception would end the user's compile
        logger.info("no hook to watch compiles by: %s", error)
        return
    for platform in dict.fromkeys([*backends, *_PLUGINS]):
        if platform not in _hooks:
            _register(extension, platform)


def _register(extension: Any, platform: str) -> None:
    name = f"hlomem-watch-{next(_numbers)}"

    def show(proto: bytes) -> None:
        _show(platform, proto)

    try:
        put_pass(extension, show, name, platform)
    except Exception as error:  # noqa: BLE001 - a platform this process does not have
        logger.debug("no hook for %s: %s", platform, error)
    else:
        _hooks[platform] = name


def _show(platform: str, proto: bytes) -> None:
    """Hand a module to the watchers; XLA takes nothing back."""
    try:
        seen = SeenModule(platform, bytes(proto))
        for watcher in _watchers:
            watcher(seen)
    except Exception as error:  # noqa: BLE001 - an exception would end the user's compile
        logger.warning("a module of %s was not seen: %s", platform, error)


def _take_out() -> None:
    extension: Any = import_module("jax.extend.xla") if _hooks else None
    for platform, name in list(_hooks.items()):
        try:
            clear_pass(extension, name, platform)
        except Exception as error:  # noqa: BLE001 - it shows nothing any more without watchers
            logger.debug("the hook for %s stays: %s", platform, error)
        del _hooks[platform]
