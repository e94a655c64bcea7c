"""What is asked of a body answers the same before and after it is read, however it is laid out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hlomem.hlo.ir import HloComputation
from hlomem.hlo.text.parser import parse
from tests.analysis.programs import CONDITIONAL
from tests.opt.orders.programs import CPU

TEXTS = [CONDITIONAL, (CPU / "g_cholesky_solve" / "module.hlo").read_text()]
LAYOUTS: dict[str, Callable[[str], str]] = {
    "as XLA prints it": lambda text: text,
    "indented otherwise": lambda text: text.replace("\n  ", "\n      "),
    "with comments": lambda text: text.replace(" = ", " = /*made*/ "),
    "on one line": lambda text: text.replace("\n  ", " "),
}


def _answers(computation: HloComputation) -> tuple[object, ...]:
    return (
        [(shape.text, opcode) for shape, opcode in computation.outline()],
        [
            (call.opcode, [one.name for one in call.called_computations])
            for call in computation.calls()
        ],
        computation.first_parameter_name,
        computation.instruction_count,
    )


@pytest.mark.parametrize("text", TEXTS, ids=["conditional", "solve"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nobody_can_tell_whether_a_body_has_been_read(text: str, layout: str) -> None:
    text = LAYOUTS[layout](text)
    unread, read = parse(text), parse(text, lazy=False)
    read.open_all()
    names = [computation.name for computation in read.computations]
    assert [computation.name for computation in unread.computations] == names
    for one, other in zip(unread.computations, read.computations, strict=True):
        assert _answers(one) == _answers(other), one.name
