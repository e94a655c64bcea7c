"""Named tuples whose classes cost a process a fifth of what they usually cost to make.

In: a class as for `typing.NamedTuple`. Out: a class that does the same. `typing` compiles the
annotations of fields, which nobody asks for here, and `collections` a constructor for every class;
a plan makes some fifty such classes before it begins. Here constructors are the ones below, with
the names of fields for those of their parameters, and all other methods are common to all classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NamedTuple, Self
else:
    # Fields as `collections` has them, in C.
    from collections import _tuplegetter as _field
    from collections import namedtuple
    from types import FunctionType

    _new = tuple.__new__
    _CONSTRUCTORS = (
        lambda _cls, a: _new(_cls, (a,)),
        lambda _cls, a, b: _new(_cls, (a, b)),
        lambda _cls, a, b, c: _new(_cls, (a, b, c)),
        lambda _cls, a, b, c, d: _new(_cls, (a, b, c, d)),
        lambda _cls, a, b, c, d, e: _new(_cls, (a, b, c, d, e)),
        lambda _cls, a, b, c, d, e, f: _new(_cls, (a, b, c, d, e, f)),
        lambda _cls, a, b, c, d, e, f, g: _new(_cls, (a, b, c, d, e, f, g)),
        lambda _cls, a, b, c, d, e, f, g, h: _new(_cls, (a, b, c, d, e, f, g, h)),
    )
    """For one field, for two, and so on."""

    class _Maker(type):
        """Makes a tuple class of a class statement; its other bases are left out."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body["__annotations__"])
            defaults = {field: body.pop(field) for field in fields if field in body}
            if len(fields) > len(_CONSTRUCTORS):
                return _make_large(name, fields, defaults, body)
            body |= {field: _field(number, None) for number, field in enumerate(fields)}
            body["__new__"] = _make_constructor(name, fields, tuple(defaults.values()))
            body["_field_defaults"] = defaults
            body["_fields"] = body["__match_args__"] = fields
            return type(name, (tuple,), _METHODS | body)

    def _make_constructor(
        name: str, fields: tuple[str, ...], defaults: tuple[object, ...]
    ) -> FunctionType:
        code = _CONSTRUCTORS[len(fields) - 1].__code__.replace(co_varnames=("_cls", *fields))
        constructor = FunctionType(code, globals(), "__new__", defaults)
        constructor.__qualname__ = f"{name}.__new__"
        return constructor

    def _make_large(
        name: str, fields: tuple[str, ...], defaults: dict[str, object], body: dict[str, object]
    ) -> type:
        """A class of more fields than there are constructors for."""
        base = namedtuple(name, fields, defaults=defaults.values(), module=body["__module__"])
        for key, item in body.items():
            if key not in _GIVEN:
                setattr(base, key, item)
        return base

    _GIVEN = frozenset(["__module__", "__qualname__", "__classcell__"])

    def _make(cls: type[Self], items: Iterable[Any]) -> Self:
        """A tuple of any items, as many as there are fields."""
        made = _new(cls, items)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self: Self, /, **changes: Any) -> Self:
        """The same tuple with other items in some fields."""
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self: Self) -> dict[str, Any]:
        """The items by their fields."""
        return dict(zip(self._fields, self, strict=True))

    def _getnewargs(self: Self) -> tuple[Any, ...]:
        """The items, for `copy` and `pickle`."""
        return tuple(self)

    def _repr(self: Self) -> str:
        items = [f"{field}={item!r}" for field, item in zip(self._fields, self, strict=True)]
        return f"{type(self).__name__}({', '.join(items)})"

    _METHODS = {
        "__slots__": (),
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": _asdict,
        "__getnewargs__": _getnewargs,
        "__repr__": _repr,
    }

    class NamedTuple(metaclass=_Maker):
        """As `typing.NamedTuple`; annotations must be strings, as everywhere in this package."""


__all__ = ["NamedTuple"]
