"""Shapes of messages: those XLA prints are made, those it could not have are refused."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.base.errors import InputError
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.proto.names import ELEMENT_TYPES
from hlomem.proto.schema import message_types
from hlomem.proto.shape import fill_shape, make_shape

NUMBER = {kind.text: number for number, kind in ELEMENT_TYPES.items()}
UNBOUNDED = -(2**63)


def _message(kind: str, dimensions: tuple[int, ...] = (), **fields: Any) -> Any:
    return message_types()["Shape"](element_type=NUMBER[kind], dimensions=dimensions, **fields)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (_message("f32", (2, 3), layout={"minor_to_major": [1, 0]}), "f32[2,3]{1,0}"),
        (_message("f32", (2, 3), layout={"minor_to_major": [0, 1]}), "f32[2,3]{0,1}"),
        (_message("s8", (UNBOUNDED, 3)), "s8[?,3]"),
        (_message("s8", (4, 3), is_dynamic_dimension=[True, False]), "s8[<=4,3]"),
        (_message("token"), "token[]"),
        (
            _message(
                "bf16",
                (8, 128),
                layout={
                    "minor_to_major": [1, 0],
                    "tiles": [{"dimensions": [8, 128]}, {"dimensions": [UNBOUNDED, 2]}],
                    "memory_space": 1,
                },
            ),
            "bf16[8,128]{1,0:T(8,128)(*,2)S(1)}",
        ),
    ],
)
def test_a_shape_is_made_as_xla_prints_it(message: Any, text: str) -> None:
    assert make_shape(message).text == text


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (_message("f32", (-2,)), "a dimension of size -2"),
        (_message("f32", (2,), layout={"minor_to_major": [1]}), r"the layout \[1\] is no order"),
        (
            _message("f32", (2,), layout={"minor_to_major": [0], "tiles": [{"dimensions": [0]}]}),
            r"a tile of sizes \[0\]",
        ),
        (
            _message("buffer", tuple_shapes=[_message("f32"), _message("f32")]),
            "a buffer is of 2 arrays",
        ),
    ],
)
def test_a_shape_there_is_none_of_is_refused(message: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        make_shape(message)


@pytest.mark.parametrize(
    "text",
    [
        "f32[2,3]{0,1:T(8,128)(2,1)S(5)}",
        "(s32[], (bf16[4]{0:E(16)}, token[]))",
        "s8[<=4,3]{1,0:L(64)M(128)}",
        "f32[8,8]{1,0:SC(0:4)}",
        "pred[2,2]{1,0:T(*,4)}",
    ],
)
def test_a_shape_that_is_written_is_read_back(text: str) -> None:
    shape = parse_shape_text(text)
    message = message_types()["Shape"]()
    fill_shape(message, shape)
    assert make_shape(message).text == text
