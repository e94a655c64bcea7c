"""A loop written as what it does with memory: put, call, drop, wait.

    def train(job):
        state = job.call(init, key)
        for step in range(3):
            batch = job.put(tokens())
            state, loss = job.call(train_step, state, batch, donate=(0,))
            job.wait(loss)

`hlomem job train.py:train --target cuda-h200` rehearses it without a device
(`hlomem.jax.rehearsal`); `hlomem.jax.job()` runs it on one and records what it does
(`hlomem.jax.job_recording`). Both keep the same log. Arrays are dropped as Python drops them.
"""

from __future__ import annotations

import sys
import weakref
from functools import partial, update_wrapper
from importlib import import_module
from os.path import dirname
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HERE = dirname(__file__)  # noqa: PTH120 - compared with the files of frames, which are texts
_SHORT = {"float": "f", "int": "s", "uint": "u", "complex": "c", "bfloat": "bf", "bool": "pred"}


class JobScript:
    """The log of a loop, and the programs it runs."""

    def __init__(self, name: str = "job") -> None:
        self.name = name
        self.log: list[dict[str, Any]] = []
        """The steps of the loop, as `hlomem.job.log` names it."""
        self._jax: Any = import_module("jax")
        self._numbers: dict[int, int] = {}
        self._count = 0
        self._programs: dict[Any, tuple[str, Any]] = {}

    # What a loop does

    def put(self, value: Any) -> Any:
        """Copy an array, or a tree of them, to the device."""
        return self._jax.tree.map(lambda leaf: self.note_put(self._put_leaf(leaf)), value)

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        donate: Sequence[int] = (),
        name: str = "",
    ) -> Any:
        """Run a function as one program; `donate` numbers the arguments whose memory it may take.

        A function that is jitted already keeps its own donations, which are named here as well.
        """
        program, compiled = self._program(function, arguments, tuple(donate), name)
        leaves = self._jax.tree.leaves(arguments)
        donated = [leaf for number in donate for leaf in self._jax.tree.leaves(arguments[number])]
        results = self._run(program, compiled, arguments)
        self._note_run(program, compiled, leaves, donated, self._jax.tree.leaves(results))
        return results

    def wait(self, *values: Any) -> None:
        """Wait until the device is done."""
        self._wait(values)
        self.log.append({"do": "wait"})

    def mark(self, name: str) -> None:
        """Give this point of the loop a name."""
        self.log.append({"do": "mark", "name": name})

    # What a subclass does

    def _put_leaf(self, value: Any) -> Any:
        raise NotImplementedError

    def _compile(self, lowered: Any, name: str) -> Any:
        raise NotImplementedError

    def _lower(self, jitted: Any, arguments: tuple[Any, ...]) -> Any:
        return jitted.lower(*arguments)

    def _run(self, program: str, compiled: Any, arguments: tuple[Any, ...]) -> Any:
        raise NotImplementedError

    def _wait(self, values: tuple[Any, ...]) -> None:
        raise NotImplementedError

    # The log

    def _note_run(
        self,
        program: str,
        compiled: Any,
        arguments: Sequence[Any],
        donated: Sequence[Any],
        results: Sequence[Any],
    ) -> None:
        kept = [arguments[place] for place in self._kept(compiled, arguments)]
        self.log.append(
            {
                "do": "run",
                "program": program,
                "arguments": [self._number(leaf) for leaf in kept],
                "donated": [self._number(leaf) for leaf in donated],
                "results": [
                    [self._number(leaf), _size(leaf), shape_text(leaf)] for leaf in results
                ],
                "line": _users_line(),
            }
        )

    def note_put(self, made: Any) -> Any:
        """Log an array that came from the host."""
        self.log.append(
            {
                "do": "put",
                "array": self._number(made),
                "size": _size(made),
                "shape": shape_text(made),
                "line": _users_line(),
            }
        )
        return made

    def _number(self, array: Any) -> int:
        """The number of an array; its end is logged."""
        key = id(array)
        if key not in self._numbers:
            self._count += 1
            number = self._numbers[key] = self._count

            def end() -> None:
                self._numbers.pop(key, None)
                self.log.append({"do": "drop", "array": number})

            weakref.finalize(array, end).atexit = False
        return self._numbers[key]

    def _program(
        self, function: Any, arguments: tuple[Any, ...], donate: tuple[int, ...], name: str
    ) -> tuple[str, Any]:
        """The compiled program of a function for such arguments, and its name in the log."""
        leaves, tree = self._jax.tree.flatten(arguments)
        shapes = tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves)
        key = _identity(function), tree, shapes
        if (key, donate) not in self._programs:
            label = self._label(name or _name_of(function))
            jitted = function
            if not hasattr(function, "lower"):
                jitted = self._jax.jit(_named(function), donate_argnums=donate, keep_unused=True)
            compiled = self._compile(self._lower(jitted, arguments), label)
            self.log.append({"do": "compile", "program": label})
            self._programs[key, donate] = label, (compiled, function)
        label, (compiled, _) = self._programs[key, donate]
        return label, compiled

    def _label(self, name: str) -> str:
        taken = {label for label, _ in self._programs.values()}
        numbered = (f"{name}#{number}" for number in range(2, len(taken) + 3))
        return next(label for label in (name, *numbered) if label not in taken)

    @staticmethod
    def _kept(compiled: Any, leaves: Sequence[Any]) -> list[int]:
        """The arguments that are parameters of the program: JAX leaves out what is not used."""
        kept = getattr(getattr(compiled, "_executable", None), "_kept_var_idx", None)
        return list(range(len(leaves))) if kept is None else sorted(kept)


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", "")
    return name or _name_of(getattr(function, "func", None)) if function is not None else "program"


def _named(function: Any) -> Any:
    """A function with a name, by which XLA knows its program."""
    if hasattr(function, "__name__"):
        return function
    named = partial(function)
    update_wrapper(named, function, assigned=())
    named.__name__ = _name_of(function)  # type: ignore[attr-defined]
    return named


def _identity(function: Any) -> Any:
    """An identity for functions; partial ones of the same function and arguments are one."""
    if not isinstance(function, partial):
        return id(function)
    given = (function.args, tuple(sorted(function.keywords.items())))
    try:
        hash(given)
    except TypeError:
        return id(function)
    return _identity(function.func), given


def shape_text(array: Any) -> str:
    """An array's shape as XLA writes it: `f32[8,512]`."""
    name = str(array.dtype)
    word = name.rstrip("0123456789")
    short = _SHORT.get(word, word) + name[len(word) :]
    return f"{short}[{','.join(map(str, array.shape))}]"


def _size(array: Any) -> int:
    return int(array.nbytes)


def _users_line() -> str:
    """The innermost line outside of this package and of installed ones."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_library(file: str) -> bool:
    return dirname(file) == _HERE or "-packages" in file or file.startswith("<")  # noqa: PTH120
