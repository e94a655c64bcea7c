"""The header of a module.

In: tokens, at `HloModule`. Out: `Header`, texts by name in XLA's order. Mirrors the first half of
`HloParserImpl::ParseHloModule`, `ParseAliasing`, `ParseBufferDonor` and `ParseComputationLayout` of
`hlo/parser/hlo_parser.cc`, and `HloModule::Print`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from hlomem.base.source import Span
from hlomem.hlo.shape import tuple_shape
from hlomem.hlo.text.attributes import ProgramShape
from hlomem.hlo.text.freeform.frames import Frames
from hlomem.hlo.text.freeform.origins import (
    read_debug_table,
    read_frontend_attributes,
    read_recovery_table,
)
from hlomem.hlo.text.freeform.tokens import Tokens
from hlomem.hlo.text.freeform.values import (
    Value,
    one_of,
    read_boolean,
    read_flag_or_flags,
    read_integer,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Header(Struct, eq=False):
    """The first line of a module."""

    name: str
    span: Span = Span(0, 1)
    """Of the word `HloModule`."""
    texts: dict[str, str] = {}
    frames: Frames = field(default_factory=Frames)


def _read_aliases(tokens: Tokens) -> Value:
    """`{ {0}: (0, {}, may-alias) }`, by output."""
    items: dict[tuple[int, ...], str] = {}
    for output, text in tokens.listed(_read_alias, may_trail=True):
        items.setdefault(_numbers(output), f"{output}: ({text})")
    return _in_order(items)


def _read_alias(tokens: Tokens) -> tuple[str, str]:
    output, number, index = tokens.form("x:(i,x")
    kind = one_of("may-alias", "must-alias")(tokens).text if tokens.eat(",") else "may-alias"
    tokens.expect(")")
    return output, f"{number}, {index}, {kind}"


def _numbers(index: str) -> tuple[int, ...]:
    return tuple([int(number) for number in index[1:-1].split(",") if number])


def _read_donors(tokens: Tokens) -> Value:
    """`{ (0, {}), (1, {2}) }`, by parameter."""
    donors = tokens.listed(lambda at: at.form("(i,x)"), may_trail=True)
    texts = {(int(number), *_numbers(index)): f"({number}, {index})" for number, index in donors}
    return _in_order(texts)


def _in_order(texts: dict[tuple[int, ...], str]) -> Value:
    return Value(f"{{ {', '.join([texts[key] for key in sorted(texts)])} }}" if texts else "")


def format_layout(program: ProgramShape) -> str:
    """`{(shape, shape)->shape}`, as `ComputationLayout::Print` writes it."""
    return f"{{{tuple_shape(program.parameters).text}->{program.result.text}}}"


def _read_layout(tokens: Tokens) -> Value:
    tokens.expect("{")
    shapes = tuple(tokens.listed(Tokens.read_shape, "()", may_trail=True))
    tokens.expect("->")
    layout = ProgramShape(shapes, tokens.read_shape())
    tokens.expect("}")
    return Value(format_layout(layout))


_READERS: dict[str, tuple[Callable[[Tokens], Value], str]] = {
    "is_scheduled": (read_boolean, "false"),
    "input_output_alias": (_read_aliases, ""),
    "buffer_donor": (_read_donors, ""),
    "alias_passthrough_params": (read_boolean, "false"),
    "entry_computation_layout": (_read_layout, ""),
    "allow_spmd_sharding_propagation_to_parameters": (read_flag_or_flags, "{false}"),
    "allow_spmd_sharding_propagation_to_output": (read_flag_or_flags, "{false}"),
    "replica_count": (read_integer, "1"),
    "num_partitions": (read_integer, "1"),
    "frontend_attributes": (read_frontend_attributes, "{}"),
    "origin_recovery_table": (read_recovery_table, ""),
    "debug_attributes": (read_debug_table, ""),
}
"""By name, in the order they are printed, with the default, which is not printed."""
_NONE = (read_boolean, "")


def add_layout(header: Header, program: ProgramShape) -> None:
    """Put the layout of the entry where it is printed, unless it is given."""
    texts = {"entry_computation_layout": format_layout(program), **header.texts}
    order = [*[name for name in _READERS if name in texts], *texts]
    header.texts = {name: texts[name] for name in order}


def read_header(tokens: Tokens) -> Header:
    """`HloModule name (, attribute=value)*`."""
    span = Span(tokens.start, tokens.stop)
    tokens.advance()
    if tokens.kind not in ("word", "name"):
        tokens.start, tokens.stop = span
        tokens.fail("the module has no name")
    header = Header(tokens.expect_name("the name of the module"), span)
    texts: dict[str, str] = {}
    while tokens.eat(","):
        start, name = tokens.start, tokens.expect("attribute")
        if name in texts:
            tokens.fail(f"attribute `{name}` is given twice", start=start)
        reader = _READERS.get(name)
        texts[name] = tokens.read_unknown(name) if reader is None else reader[0](tokens).text
    ordered = dict.fromkeys(_READERS, "") | texts
    header.texts = {
        name: text
        for name, text in ordered.items()
        if text and text != _READERS.get(name, _NONE)[1]
    }
    return header
