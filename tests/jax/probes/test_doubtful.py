"""Words without effect: names of axes that a mesh lacks, and rows that nothing reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.jax.probes.doubtful import doubtful_words, words_together

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
RULES = [
    ("embed", None),
    ("batch", "data"),
    ("embed", "model"),
    ("batch", "data"),
]
TABLE = {"rows": ("rows", "data")}
x = pin(x, "data", None, "modle")
y = pin(y, "data", "embed")
z = label(z, "batch", "rows")
w = put(w, ("data", "rows"))
"""


def test_names_next_to_axes_and_rows_behind_others_have_no_effect(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(SOURCE)
    found = [
        (one.begin[0], one.meant, one.why) for one in doubtful_words(str(file), ("data", "model"))
    ]
    assert found == [
        (9, ("data", "model"), "the mesh has no axis 'modle'"),
        (3, ("model",), "a later row for 'embed', of model, is not reached"),
    ]


def test_what_is_no_python_has_no_words(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def (")
    assert doubtful_words(str(file), ("data",)) == ()
    assert doubtful_words(str(tmp_path / "none.py"), ("data",)) == ()


def test_names_of_one_call_or_tuple_are_together_with_keywords(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text('w = weight("expert", "embed", None)\np = place(mesh, targets=a, sources=b)\n')
    assert words_together(str(file)) == (("expert", "embed"), ("targets", "sources"))
    assert words_together(str(tmp_path / "none.py")) == ()
