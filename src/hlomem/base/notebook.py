"""Things that show themselves in notebooks, drawn by packages they know nothing of."""

from __future__ import annotations

from importlib import import_module

_DRAWN_BY: dict[str, tuple[str, str]] = {}


def draw_with(kind: str, module: str, function: str) -> None:
    """Have things of a class drawn by a function, which is imported when one is shown."""
    _DRAWN_BY[kind] = module, function


def in_notebook(thing: object) -> str:
    """HTML for a notebook: as it is drawn, or its `repr` where nothing was said."""
    home = _DRAWN_BY.get(type(thing).__name__)
    if home is None:
        from html import escape  # noqa: PLC0415 - reports draw themselves

        return f"<pre>{escape(repr(thing))}</pre>"
    module, function = home
    return str(getattr(import_module(module), function)(thing))
