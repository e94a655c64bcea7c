"""Levers in the user's source: which expressions are wrapped, and that nothing else changes."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import pytest

from hlomem.jax.probes.instrument import LEVER, instrumented, read_key
from tests.places import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = '''"""A module, 1 string that is no lever."""
from __future__ import annotations

AXIS = "x"
WHOLE = make()
TABLE = {"w": make(AXIS, None), "b": WHOLE}


def place(value: "Annotation" = None, *, size: int = 1024) -> "Result":
    """No lever either."""
    match value:
        case "a":
            return f"{value} text"
        case _:
            spread = make(None, *value)
            return TABLE["w"], spread, make(value)
'''


@pytest.fixture
def seen() -> Iterator[dict[str, Any]]:
    """The values of levers, by line and syntax."""
    found: dict[str, Any] = {}

    def lever(key: str, value: Any) -> Any:
        at = read_key(key)
        found[f"{at.line} {at.syntax} {at.column}"] = value
        return value

    setattr(builtins, LEVER, lever)
    yield found
    delattr(builtins, LEVER)


def _run(source: str) -> dict[str, Any]:
    space: dict[str, Any] = {"make": lambda *parts: ("spec", *parts)}
    exec(instrumented(source, "model.py"), space)  # noqa: S102 - the module above
    return space


def test_literals_tables_and_specs_of_nothing_are_levers(seen: dict[str, Any]) -> None:
    _run(SOURCE)
    lines = {key.rpartition(" ")[0]: value for key, value in seen.items()}
    assert lines["4 constant"] == "x"
    assert lines["5 call"] == ("spec",)
    assert lines["6 call"] == ("spec", "x", None)
    assert lines["6 name"] == ("spec",)  # WHOLE is chosen there
    assert lines["6 display"] == {"w": ("spec", "x", None), "b": ("spec",)}
    assert lines["9 constant"] == 1024
    assert not any(key.startswith(("1 ", "10 ")) for key in lines)


def test_what_a_caller_decides_is_no_lever(seen: dict[str, Any]) -> None:
    space = _run(SOURCE)
    seen.clear()
    assert space["place"](["y"]) == (("spec", "x", None), ("spec", None, "y"), ("spec", ["y"]))
    # Neither None before the caller's parts, nor an index, nor a call of a variable.
    assert not [key for key in seen if key.split()[1] not in ("display", "use", "callee")]


def test_keys_are_read_back(seen: dict[str, Any]) -> None:
    del seen
    key = read_key("a|b.py|3|4|5|6|call")
    assert key.file == "a|b.py"
    assert (key.begin, key.end, key.syntax) == ((3, 4), (5, 6), "call")
    assert read_key(key.text()) == key


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "jax").rglob("*.py")), ids=lambda path: path.name
)
def test_any_module_can_be_instrumented(path: Any) -> None:
    instrumented(path.read_text(), str(path))


def test_lines_stay_as_they_are(seen: dict[str, Any]) -> None:
    del seen
    source = "def f():\n    return (\n        g('a',\n          h()))\n"
    code = instrumented(source, "model.py")
    plain = compile(source, "model.py", "exec")

    def lines(one: Any) -> set[int]:
        inner = [const for const in one.co_consts if hasattr(const, "co_lines")]
        own = {line for _, _, line in one.co_lines() if line}
        return own.union(*[lines(const) for const in inner])

    assert lines(code) == lines(plain)
