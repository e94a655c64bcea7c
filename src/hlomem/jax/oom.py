"""Out-of-memory errors of JAX that say which line to look at.

    @hlomem.jax.explain_oom
    @jax.jit
    def train_step(state, batch): ...

    hlomem.jax.install_excepthook()  # or for the whole process

In: an exception on its way out. Out: the same exception, with a note (`add_note`) on what the
memory of its program is for, and with a page. The program is found among those loaded in this
process, whose executables hold XLA's plan, and among those that a compiler was at work on
(`hlomem.jax.pass_.hook`), which TPU's refuses before it runs; see `hlomem.report.oom.matching`.
Nothing here raises: where no explanation can be had, the exception is as it was.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from functools import partial, update_wrapper
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from hlomem.jax.compiled_programs import CompiledProgram, live_programs
from hlomem.jax.pass_ import hook
from hlomem.jax.pass_.log import logger
from hlomem.jax.pass_.register import require_jax
from hlomem.proto.schema import parse_message
from hlomem.report.oom.matching import match_failure
from hlomem.report.oom.note import HEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from hlomem.jax.pass_.hook import SeenModule
    from hlomem.report.oom.explanation import Oom
    from hlomem.report.oom.verdict import Verdict

PAGE = "hlomem-oom.html"
"""The file the page is written to, in the folder the program runs in."""
MAX_REMEMBERED = 256 << 20
"""Bytes of modules that are remembered, the latest first."""


class Memory:
    """The latest modules of the compilers, as many as a number of bytes holds."""

    def __init__(self, max_bytes: int = MAX_REMEMBERED) -> None:
        self._modules: deque[SeenModule] = deque()
        self._bytes = 0
        self._max_bytes = max_bytes
        self._lock = threading.Lock()

    def see(self, module: SeenModule) -> None:
        """Remember a module, and forget the oldest."""
        with self._lock:
            self._modules.append(module)
            self._bytes += len(module.proto)
            while self._bytes > self._max_bytes and len(self._modules) > 1:
                self._bytes -= len(self._modules.popleft().proto)

    def programs(self) -> list[CompiledProgram]:
        """The modules as programs, the oldest first."""
        with self._lock:
            modules = list(self._modules)
        return [
            CompiledProgram(parse_message("Module", seen.proto).name, seen=seen) for seen in modules
        ]


_memory = Memory()
_lock = threading.RLock()
_users = 0


def _begin_to_watch() -> None:
    """Remember modules from now on; the first who asks begins it."""
    global _users  # noqa: PLW0603 - one memory for the process
    with _lock:
        if not _users:
            require_jax()
            hook.add(_memory.see)
        _users += 1


def _end_to_watch() -> None:
    global _users  # noqa: PLW0603 - as above
    with _lock:
        _users -= 1
        if not _users:
            hook.remove(_memory.see)


# The note


def annotate(
    error: BaseException,
    page: str | Path | None = PAGE,
    trace: Callable[[], Any] | None = None,
) -> None:
    """Give an out-of-memory error its note; any other exception stays as it is.

    `trace` traces the function that raised it, if that is known.
    """
    try:
        oom = _oom_of(error)
        if oom is None or _has_note(error):
            return
        if oom.kernel is not None:
            note = _describe_kernel(oom, trace)
        else:
            note = _describe(oom, None if page is None else Path(page))
    except Exception as problem:  # noqa: BLE001 - the user's error is the one to be seen
        logger.warning("an out-of-memory error was not explained: %s", problem, exc_info=True)
    else:
        error.add_note(note)


def _describe_kernel(oom: Oom, trace: Callable[[], Any] | None) -> str:
    from hlomem.api.oom import describe_kernel_failure  # noqa: PLC0415 - only an error needs it
    from hlomem.jax.kernels.cutting import cut_kernels  # noqa: PLC0415 - as above

    if trace is None:
        return describe_kernel_failure(oom)
    try:
        kernels = [kernel.facts for kernel in cut_kernels(trace().jaxpr)]
    except Exception as problem:  # noqa: BLE001 - what the message tells is still told
        logger.info("the kernels of the function are not known: %s", problem)
        kernels = []
    return describe_kernel_failure(oom, kernels)


def _oom_of(error: BaseException) -> Oom | None:
    """The failure in an error, in what caused it, or in one of its group."""
    from hlomem.api.oom import find_oom  # noqa: PLC0415 - only an error needs it

    for link in _chain(error):
        if isinstance(link, (RuntimeError, ValueError, MemoryError)):
            oom = find_oom(str(link))
            if oom is not None:
                return oom
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    pending, seen = [error], set[int]()
    while pending:
        link = pending.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        pending += [origin for origin in (link.__cause__, link.__context__) if origin is not None]
        if isinstance(link, BaseExceptionGroup):
            pending += link.exceptions


def _has_note(error: BaseException) -> bool:
    notes = [note for link in _chain(error) for note in getattr(link, "__notes__", ())]
    return any(note.startswith(HEAD) for note in notes)


def _describe(oom: Oom, page: Path | None) -> str:
    from hlomem.api.oom import (  # noqa: PLC0415 - as above
        describe_failure,
        describe_unknown,
        describe_verdict,
    )

    failure = oom.failure
    programs = live_programs() if failure.moment == "run" else []
    found = match_failure(failure, programs)
    if found is None:
        programs = _memory.programs()
        found = match_failure(failure, programs)
    verdict = _verdict(oom, None if found is None else found[0])
    if found is not None:
        program, match = found
        note = describe_failure(program.explanation, failure, match.reason, page)
    else:
        is_tuner = verdict is not None and verdict.kind == "autotuner"  # no program asked
        note = "" if is_tuner else describe_unknown(failure, len(programs))
    return describe_verdict(verdict, note)


def _verdict(oom: Oom, program: CompiledProgram | None) -> Verdict | None:
    """Why memory ran out, by what is on the device now; None when compiling for a TPU or CPU."""
    from hlomem.jax.oom_verdict import diagnose_now  # noqa: PLC0415 - as above

    if oom.failure.moment != "run":
        return None
    return diagnose_now(oom, program)


# For a function


@overload
def explain_oom(function: Callable[..., Any]) -> ExplainedFunction: ...
@overload
def explain_oom(
    *, page: str | Path | None = PAGE, wait: bool = True
) -> Callable[[Callable[..., Any]], ExplainedFunction]: ...
def explain_oom(
    function: Callable[..., Any] | None = None,
    *,
    page: str | Path | None = PAGE,
    wait: bool = True,
) -> Any:
    """Make out-of-memory errors of a function, jitted or not, say what the memory is for.

    `page` is the file of the report, None for no page. `wait` is for the function's results: an
    error of a program that runs asynchronously is only then the function's own.
    """
    if function is None:
        return partial(ExplainedFunction, page=page, wait=wait)
    return ExplainedFunction(function, page=page, wait=wait)


class ExplainedFunction:
    """A function whose out-of-memory errors have a note; all else is the function's own."""

    def __init__(
        self, function: Callable[..., Any], *, page: str | Path | None = PAGE, wait: bool = True
    ) -> None:
        self.__wrapped__ = function
        update_wrapper(self, function)
        self._page = page
        self._wait = wait
        _begin_to_watch()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        try:
            result = self.__wrapped__(*args, **kwargs)
            return import_module("jax").block_until_ready(result) if self._wait else result
        except Exception as error:
            annotate(error, self._page, partial(self._trace, *args, **kwargs))
            raise

    def _trace(self, *args: Any, **kwargs: Any) -> Any:
        """The function's stage with a jaxpr; one that is not jitted is traced as if it were."""
        function = self.__wrapped__
        jitted = function if hasattr(function, "trace") else import_module("jax").jit(function)
        return jitted.trace(*args, **kwargs)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """A method, where it stands in a class."""
        return self if owner is None else partial(self, owner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


# For a process


def install_excepthook(*, page: str | Path | None = PAGE) -> ExceptHook:
    """Make every out-of-memory error that ends the program, or a thread, say what memory is for.

    It stays until `.remove()`; the hooks that were there are called as before.
    """
    return ExceptHook(page)


class ExceptHook:
    """The hooks of a process for uncaught exceptions, until they are removed."""

    def __init__(self, page: str | Path | None) -> None:
        self._page = page
        _begin_to_watch()
        self._sys_before = sys.excepthook
        self._threading_before = threading.excepthook
        self._hooks = self._of_process, self._of_thread
        sys.excepthook, threading.excepthook = self._hooks
        self._is_in = True

    def remove(self) -> None:
        """Restore the former hooks, unless other code has set its own since."""
        if not self._is_in:
            return
        self._is_in = False
        if sys.excepthook is self._hooks[0]:
            sys.excepthook = self._sys_before
        if threading.excepthook is self._hooks[1]:
            threading.excepthook = self._threading_before
        _end_to_watch()

    def __enter__(self) -> ExceptHook:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _of_process(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if self._is_in:
            annotate(error, self._page)
        self._sys_before(kind, error, trace)

    def _of_thread(self, about: threading.ExceptHookArgs) -> None:
        if self._is_in and about.exc_value is not None:
            annotate(about.exc_value, self._page)
        self._threading_before(about)
