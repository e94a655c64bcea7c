"""Named tuples whose classes cost a process half as much to make.

In: a class as for `typing.NamedTuple`. Out: the same class. `typing` compiles the annotations of
fields, which nobody asks for here: a plan makes some fifty such classes before it begins.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, NamedTuple
else:

    class _Maker(type):
        """Makes a tuple class of a class statement; its other bases are left out."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for key, item in body.items():
                if key not in _GIVEN:
                    setattr(made, key, item)
            return made

    _GIVEN = frozenset(["__module__", "__qualname__", "__classcell__"])

    class NamedTuple(metaclass=_Maker):
        """As `typing.NamedTuple`; annotations must be strings, as everywhere in this package."""


__all__ = ["NamedTuple"]
