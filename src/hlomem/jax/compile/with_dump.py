"""JAX's compiler, asked for its plan: a Lowered in, the files of XLA's dump out.

The dump is asked for by `Lowered.compile(compiler_options=…)`, so that no other compile is touched.
JAX's persistent cache, which leaves no dump, is off until that is done.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
_ENABLED = "jax_enable_compilation_cache"
_lock = RLock()
_cache_users = 0
_was_enabled = True


class Compile(NamedTuple):
    """The outcome of a compile."""

    compiled: Any
    """The Compiled; None where XLA refused the program."""
    refusal: str = ""
    """XLA's message where the program does not fit."""


def write_dump(lowered: Any, folder: Path) -> Compile:
    """Compile a Lowered and leave XLA's dump in a folder, also where it does not fit."""
    jax = import_module("jax")
    options = {"xla_dump_to": str(folder), "xla_dump_hlo_as_text": True}
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
