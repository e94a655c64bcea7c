"""Edited programs written onto their messages: read back they are the same, the rest is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.api.load import load_program
from hlomem.base.errors import EditError
from hlomem.hlo.ir import HloInstruction, HloModule
from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.shape import ELEMENT_TYPE_BY_TEXT, Shape, default_layout
from hlomem.hlo.text.printer import format_module
from hlomem.proto.edit import name_of, with_number, write_module, write_orders
from hlomem.proto.literal import encode_scalar, format_literal
from hlomem.proto.module import read_module
from hlomem.proto.schema import message_types, parse_message
from tests.proto.samples import PROTOS

FOLDERS = sorted(path.parent for path in PROTOS.glob("*/program.hlo.pb"))
_UNKNOWN = b"\xca\x3e\x08whatever"
"""Field 1001 of a message, which no schema has."""


@cache
def _encoded(folder: Path) -> bytes:
    """A program as a compiler handed it over, each instruction with a field nobody knows."""
    module = load_program(folder / "program.hlo.pb")
    assert module.creation is not None
    message = parse_message("ModuleHead", module.creation.encoded)
    for computation in message.computations:
        computation.instructions[:] = [data + _UNKNOWN for data in computation.instructions]
    return bytes(message.SerializeToString()) + _UNKNOWN


def _instructions(encoded: bytes) -> dict[str, bytes]:
    """The messages of instructions, by name."""
    parse = message_types()["InstructionHead"].FromString
    return {
        parse(data).name: data
        for computation in parse_message("ModuleHead", encoded).computations
        for data in computation.instructions
    }


def _parts(module: HloModule) -> list[str]:
    """The texts of the computations: a message has them in another order."""
    return sorted(part.strip() for part in format_module(module).split("\n\n"))


def _clone(rewriter: Rewriter, module: HloModule) -> set[str]:
    """Copies of all that fusions compute, read by the last that read the originals."""
    touched: set[str] = set()
    for instruction in module.entry.instructions:
        if instruction.opcode == "fusion" and instruction.users and instruction.shape.is_array:
            made = rewriter.clone(instruction, f"{instruction.name}.remat")
            rewriter.set_called(made, 0, rewriter.clone_fused(made.called_computations[0], "remat"))
            reader = instruction.users[-1]
            rewriter.set_operand(reader, reader.operands.index(instruction), made)
            touched |= {reader.name, made.name}
    return touched


def _reorder(rewriter: Rewriter, module: HloModule) -> set[str]:
    rewriter.reorder(module.entry, _other_order(module))
    return set()


def _other_order(module: HloModule) -> list[HloInstruction]:
    """Another order: everything as late as it can run."""
    order: list[HloInstruction] = []
    left = list(module.entry.instructions)
    while left:
        needed = {one for later in left for one in later.operands + later.control_predecessors}
        order.append(next(one for one in left if one not in needed))
        left.remove(order[-1])
    return order[::-1]


def _insert(rewriter: Rewriter, module: HloModule) -> set[str]:
    """New instructions of opcodes that edits make."""
    root = module.entry.root
    number = rewriter.insert(root, "number", "s32[]", "constant", payload="-7")
    both = rewriter.insert(root, "both", "(s32[], s32[])", "tuple", [number, number])
    index, sizes = {"index": "1"}, {"dimensions": "{1}"}
    one = rewriter.insert(root, "one", "s32[]", "get-tuple-element", [both], attributes=index)
    rewriter.insert(
        root, "many", "s32[4,2]{1,0}", "broadcast", [one], attributes={"dimensions": "{}"}
    )
    row = rewriter.insert(
        root, "row", "s32[2]{0}", "broadcast", [one], attributes={"dimensions": "{}"}
    )
    rewriter.insert(root, "rows", "s32[4,2]{1,0:S(5)}", "broadcast", [row], attributes=sizes)
    return {"number", "both", "one", "many", "row", "rows"}


_EDITS: list[Callable[[Rewriter, HloModule], set[str]]] = [_clone, _reorder, _insert]


@pytest.mark.parametrize("edit", _EDITS, ids=lambda edit: edit.__name__)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_edited_program_is_read_back_and_the_rest_is_kept(
    folder: Path, edit: Callable[[Rewriter, HloModule], set[str]]
) -> None:
    module = read_module(_encoded(folder))
    rewriter = Rewriter(module)
    touched = edit(rewriter, module)
    edited = rewriter.finish()
    written = write_module(edited)
    assert _parts(read_module(written)) == _parts(edited)
    given, found = _instructions(_encoded(folder)), _instructions(written)
    assert all(found[name] == data for name, data in given.items() if name not in touched)
    # A copy knows what its original's message says, and no schema does.
    if edit is _clone:
        assert all(data.endswith(_UNKNOWN) for data in found.values())
    assert written.count(_UNKNOWN) >= _encoded(folder).count(_UNKNOWN)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_edits_of_edited_programs_go_back_to_the_same_message(folder: Path) -> None:
    module = read_module(_encoded(folder))
    for edit in _EDITS:
        rewriter = Rewriter(module)
        edit(rewriter, module)
        module = rewriter.finish()
    assert _parts(read_module(write_module(module))) == _parts(module)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_another_order_changes_the_schedule_alone(folder: Path) -> None:
    module = read_module(_encoded(folder))
    order = _other_order(module)
    written = write_orders(module, {module.entry: order})
    names = [one.name for one in order]
    assert [one.name for one in read_module(written).entry.instructions] == names
    assert _instructions(written) == _instructions(_encoded(folder))
    # The same of an edited program.
    rewriter = Rewriter(module)
    _clone(rewriter, module)
    edited = rewriter.finish()
    order = _other_order(edited)
    again = read_module(write_orders(edited, {edited.entry: order}))
    assert [one.name for one in again.entry.instructions] == [one.name for one in order]


def test_what_was_not_edited_is_what_was_read() -> None:
    encoded = _encoded(FOLDERS[0])
    module = read_module(encoded)
    assert write_module(module) is encoded
    assert _instructions(write_module(Rewriter(module).finish())) == _instructions(encoded)


def test_a_name_and_a_number_are_found_and_set() -> None:
    encoded = _encoded(FOLDERS[0])
    assert name_of(encoded) == read_module(encoded).name
    known, other = with_number(encoded, 12)
    assert with_number(other, known)[0] == 12
    assert _instructions(other) == _instructions(encoded)


def _refused(edit: Callable[[Rewriter, HloInstruction], None]) -> str:
    module = read_module(_encoded(FOLDERS[0]))
    rewriter = Rewriter(module)
    edit(rewriter, next(one for one in module.entry.instructions if one.operands))
    edited = rewriter.finish()
    with pytest.raises(EditError) as caught:
        write_module(edited)
    return str(caught.value)


@pytest.mark.parametrize("text", ['{"known_trip_count":{"n":"4"}}', '"x"'])
def test_a_configuration_is_written_as_it_is_read(text: str) -> None:
    module = read_module(_encoded(FOLDERS[0]))
    rewriter = Rewriter(module)
    one = next(one for one in module.entry.instructions if one.operands)
    rewriter.set_attribute(one, "backend_config", text)
    again = read_module(write_module(rewriter.finish())).entry.find(one.name)
    assert again is not None
    assert again.attributes["backend_config"] == text


def test_edits_that_no_message_can_follow_are_refused() -> None:
    assert "`metadata` of" in _refused(
        lambda rewriter, one: rewriter.set_attribute(one, "metadata", '{op_name="x"}')
    )
    assert "`nonsense` of" in _refused(
        lambda rewriter, one: rewriter.set_attribute(one, "nonsense", "1")
    )
    assert "of the header" in _refused(
        lambda rewriter, _: rewriter.set_header("replica_count", "2")
    )
    module = load_program(FOLDERS[0] / "module.hlo")
    with pytest.raises(EditError, match="was not read from a message"):
        write_module(module)
    read = read_module(_encoded(FOLDERS[0]))
    with pytest.raises(EditError, match="is not one of its instructions"):
        write_orders(read, {read.entry: read.entry.instructions[1:]})


_INTEGERS = {"s8": 7, "s16": 15, "s32": 31, "s64": 63}


@given(st.sampled_from(sorted(_INTEGERS)), st.data())
def test_new_integers_are_read_back(kind: str, data: st.DataObject) -> None:
    most = 1 << _INTEGERS[kind]
    number = data.draw(st.integers(-most, most - 1))
    shape = Shape(ELEMENT_TYPE_BY_TEXT[kind], (), (), default_layout(0))
    assert format_literal(encode_scalar(str(number), shape), shape) == str(number)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("pred", "false"), ("pred", "true"), ("f32", "0"), ("f16", "0"), ("bf16", "1.5"), ("u8", "0")],
)
def test_new_scalars_are_read_back(kind: str, text: str) -> None:
    shape = Shape(ELEMENT_TYPE_BY_TEXT[kind], (), (), default_layout(0))
    assert format_literal(encode_scalar(text, shape), shape) == text


@pytest.mark.parametrize(("kind", "sizes"), [("c64", ()), ("f32", (2,))])
def test_new_constants_of_other_kinds_are_refused(kind: str, sizes: tuple[int, ...]) -> None:
    shape = Shape(ELEMENT_TYPE_BY_TEXT[kind], sizes, (), default_layout(len(sizes)))
    with pytest.raises(EditError, match="cannot be written"):
        encode_scalar("0", shape)
