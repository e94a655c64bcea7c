"""Things are drawn by what was named for their class, else by their `repr`."""

from __future__ import annotations

from hlomem.base.notebook import draw_with, in_notebook


class Thing:
    def __repr__(self) -> str:
        return "<a & b>"


class Named(Thing):
    pass


def test_a_thing_that_nothing_draws_shows_its_repr_as_text() -> None:
    assert in_notebook(Thing()) == "<pre>&lt;a &amp; b&gt;</pre>"


def test_a_thing_is_drawn_by_what_was_named_for_its_class() -> None:
    draw_with("Named", "html", "escape")
    draw_with("Named", "builtins", "repr")  # the last one counts
    assert in_notebook(Named()) == "<a & b>"
