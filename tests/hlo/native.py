"""Texts on which the native kernels of `hlomem.hlo.text` are held to Python.

`damaged_texts` are programs that use what XLA prints, and that were damaged in a few places.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import strategies as st

from hlomem.analysis import fused_bodies
from hlomem.hlo.text import body, reader, scanner

if TYPE_CHECKING:
    from collections.abc import Iterator

needs_native = pytest.mark.skipif(not body.IS_NATIVE, reason="_linker.c was not built")

PROGRAM = """\
HloModule m, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

FileNames
1 "a.py"

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0), metadata={op_name="jit(f)/reduce"}
  %b = f32[] parameter(1)
  ROOT %c.1 = f32[] add(%a, %b)
}

%fused (p.0: f32[8], p.1: s32[]) -> f32[8] {
  %p.1 = s32[] parameter(1)
  %p.0 = f32[8]{0} parameter(0), metadata={op_name="http://x" source_line=1}
  %k = f32[] constant(1), origin={{"a = b"}}
  %r = f32[] reduce(%p.0, %k), dimensions={0}, to_apply=%sum
  %atan2 = f32[] atan2(%r, %k)
  ROOT %d = f32[8]{0:T(128)} broadcast(%atan2), dimensions={}
}

nested (p: f32[8]) -> (f32[8], f32[8]) {
  p = f32[8]{0} parameter(0)
  i = s32[] constant(-5)
  f = f32[8]{0} fusion(p, i), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=fused
  ROOT t = (f32[8]{0}, /*index=1*/f32[8]{0}) tuple(p, /*index=1*/f)
}, execution_thread="other" // nested

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0), sharding={replicated}
  %one = s32[] constant(1)
  %f.1 = f32[8]{0} fusion(%x, %one), kind=kLoop, calls=%fused, backend_config={"p":["2"]}
  %g = (f32[8]{0}, f32[8]{0}) fusion(%f.1), kind=kCustom, calls=%nested
  %e = f32[8]{0} get-tuple-element(%g), index=1, control-predecessors={%x, %f.1}
  %s = f32[] reduce(%e, %one), dimensions={0}, to_apply=%sum
  %y = f32[8]{0} custom-call(%e, %s), custom_call_target="x", backend_config={a = 1 : i64}
  ROOT %z = f32[8]{0} add(%y, %f.1)
}
"""

_TOKENS = [
    *("\n", " ", "  ", "\t", "\x0b", "\x1f", "\0", "é", "\ud800", "%", ",", ", ", "=", " = ", "#1"),
    *("(", ")", "{", "}", "[", "]", '"', "'", "\\", "//", "/*", "*/", "/*index=1*/", "9" * 30),
    *("ROOT ", "ENTRY ", "\n}", "\n} // x\n", "{\n", " {\n", "f32[8]{0} ", "%x", "x, ", "\n  "),
    *(" add(", "fusion(", ", calls=%fused", ", calls = fused", ",\n calls=x", ", to_apply", "body"),
    *(", index=0", ", control-predecessors={%z}", "b = f32[] negate(x)", ", select=%sum", "atan2"),
]


@st.composite
def damaged_texts(draw: st.DrawFn) -> str:
    """`PROGRAM` with up to four changes: a token put in or in the place of text, a line moved."""
    text = PROGRAM
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(min(len(text), 12), len(text)))  # behind the name
        if draw(st.booleans()):
            gone = draw(st.sampled_from([0, 0, 1, 1, 2, 7, 30]))
            text = text[:place] + draw(st.sampled_from(_TOKENS)) + text[place + gone :]
        else:
            lines = text.split("\n")
            line = lines.pop(draw(st.integers(0, len(lines) - 1)))
            for _ in range(draw(st.integers(0, 2))):
                lines.insert(draw(st.integers(0, len(lines))), line)
            text = "\n".join(lines)
    return text


@contextmanager
def in_python() -> Iterator[None]:
    """While this lasts, nothing of a text is read natively."""
    with (
        patch.object(scanner, "_computations", None),
        patch.object(scanner, "_calling_rows", None),
        patch.object(reader, "IS_NATIVE", False),
        patch.object(fused_bodies, "_body_form", None),
        patch.object(fused_bodies, "_operand_rows", None),
    ):
        yield
