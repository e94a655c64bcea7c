"""Paths as texts beside `pathlib`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hlomem.base.paths import file_name, plain_path


@given(st.text(alphabet="/.-\\: ab\0é", max_size=12))
@example("")
@example("/")
@example("//a")
@example(".")
@example("..")
def test_texts_are_those_of_pathlib(path: str) -> None:
    assert plain_path(path) == str(Path(path))
    assert file_name(path) == Path(path).name
    assert plain_path(Path(path)) == str(Path(path))


def test_what_is_no_path_is_refused() -> None:
    with pytest.raises(TypeError):
        plain_path(3)  # type: ignore[arg-type]
