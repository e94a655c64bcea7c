"""The lines of the user's code that write specs and make shardings.

For a child process that does nothing else: every PartitionSpec is an object of its own there.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.jax.compile.frames import is_users, users_frames

if TYPE_CHECKING:
    from hlomem.report.data.sharding.decision import Frame


class Origins:
    """The frames that wrote specs and made shardings."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, tuple[Frame, ...]]] = {}
        self._spec_of: dict[int, Any] = {}
        self._written: dict[int, tuple[Any, tuple[Frame, ...]]] = {}
        self.meshes: list[Any] = []
        """Those of shardings, in the order in which these were made."""

    def install(self) -> None:
        """From now on, note where the user's code writes a PartitionSpec."""
        partition: Any = import_module("jax").sharding.PartitionSpec
        _make_apart(partition)
        original = partition.__init__

        def noting(made: Any, *parts: Any, **options: Any) -> None:
            if original is not object.__init__:  # older releases have their own
                original(made, *parts, **options)
            caller = sys._getframe(1).f_code.co_filename
            if is_users(caller):
                self._written[id(made)] = (made, users_frames())

        partition.__init__ = noting

    def note(self, made: Any, frames: tuple[Frame, ...], spec: Any = None) -> None:
        """Keep where a sharding was made, and where its spec was written."""
        self._made[id(made)] = (made, frames)
        self.meshes.append(made.mesh)
        if spec is not None:
            self._spec_of[id(made)] = self._writers(spec)

    def made(self, one: Any) -> tuple[Frame, ...]:
        """The frames that made a sharding."""
        found = self._made.get(id(one))
        return () if found is None else found[1]

    def written(self, sharding: Any) -> tuple[Frame, ...]:
        """The frames that wrote the spec of a sharding, or a spec itself."""
        found: tuple[Frame, ...] | None = self._spec_of.get(id(sharding))
        return self._writers(sharding) if found is None else found

    def _writers(self, spec: Any) -> tuple[Frame, ...]:
        found = self._written.get(id(spec))
        return () if found is None else found[1]


def _make_apart(partition: Any) -> None:
    """Have every PartitionSpec be an object of its own, equal to those with the same parts.

    Releases that keep one object for all equal ones leave no trace of who wrote it.
    """
    if not hasattr(partition, "_create"):
        return
    parts = [name for name in partition.__slots__ if not name.startswith("__")]
    original = partition._create

    def create(*values: Any) -> Any:
        one, made = original(*values), object.__new__(partition)
        for name in parts:
            object.__setattr__(made, name, getattr(one, name))
        return made

    def key(one: Any) -> tuple[Any, ...]:
        return tuple([getattr(one, name) for name in parts])

    def equal(one: Any, other: Any) -> Any:
        return key(one) == key(other) if isinstance(other, partition) else NotImplemented

    partition._create = staticmethod(create)
    partition.__eq__ = equal
    partition.__hash__ = lambda one: hash(key(one))
