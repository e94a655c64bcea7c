"""Checks and completion of an instruction after it is read.

In: a draft and the values of its attributes. Out: the draft with the shape XLA gives it and its
attributes in XLA's order; or the words for what does not fit. Mirrors the cases of
`HloParserImpl::CreateInstruction` of `hlo/parser/hlo_parser.cc`, and the constructors of
`hlo/ir/hlo_instructions.cc` that know the shape better than the text.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hlomem.hlo.shape import UNBOUNDED, ElementType, Shape, tuple_shape
from hlomem.hlo.shape_edits import map_leaves
from hlomem.hlo.shape_inference.elements import (
    compatible,
    is_complex,
    is_floating,
    is_scalar,
    make_shape,
    said,
)
from hlomem.hlo.text.body import CONTROL_PREDECESSORS
from hlomem.hlo.text.freeform.opcode_attributes import attributes_of
from hlomem.hlo.text.freeform.sharding import tuple_sharding

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.text.freeform.records import DraftInstruction
    from hlomem.hlo.text.freeform.values import Value

    Values = dict[str, Value]

_TOKEN = Shape(ElementType.TOKEN)
_MAX_SHARDING = 1 << 24
_CONTEXT = make_shape(ElementType.U32, ())


def complete(draft: DraftInstruction, values: Values) -> str:
    """Check a draft and complete it; returns what is wrong, empty where nothing is."""
    check = _CHECKS.get(draft.opcode)
    if check is not None and not check(draft, values):
        shapes = ", ".join([operand.shape.text_without_layout for operand in draft.operands])
        given = f"`{draft.opcode}` with these attributes does not make `{said(draft.shape)}`"
        return f"{given} of `({shapes[:160]})`"
    reshape = _SHAPES.get(draft.opcode)
    if reshape is not None:
        draft.shape = reshape(draft)
    flags, sharding = values.get("parameter_replication"), values.get("sharding")
    leaves = sum(1 for _ in draft.shape.leaves()) if flags or sharding else 0
    if flags is not None and len(flags.data) != leaves:
        return f"`parameter_replication` says {len(flags.data)} of {leaves} arrays"
    draft.attributes = _attribute_texts(draft, values)
    if sharding is not None and sharding.data is None and draft.shape.is_tuple:
        # One sharding is that of all arrays (`NormalizeTupleSharding`).
        if len(sharding.text) * leaves > _MAX_SHARDING:
            return f"one sharding of {len(sharding.text)} characters for {leaves} arrays"
        draft.attributes["sharding"] = tuple_sharding([sharding.text] * max(leaves, 1))
    return ""


def _attribute_texts(draft: DraftInstruction, values: Values) -> dict[str, str]:
    """Attributes as they are printed; those that are not known come last."""
    known = attributes_of(draft.opcode)
    texts = {name: attribute.usual for name, attribute in known.items()}
    texts |= {name: value.text for name, value in values.items()}
    rewrite = _TEXTS.get(draft.opcode)
    if rewrite is not None:
        rewrite(draft, texts)
    return {
        name: text
        for name, text in texts.items()
        if name in draft.called
        or (name == CONTROL_PREDECESSORS and draft.predecessors)
        or (name in known and not known[name].is_default(text))
        or (name not in known and text)
    }


# --- the texts of attributes -------------------------------------------------------------------


def _write_comparison(draft: DraftInstruction, texts: dict[str, str]) -> None:
    """`order=TOTAL` where floating-point numbers are compared by it; else nothing."""
    kind = draft.operands[0].shape.element_type
    is_total = texts.pop("type") not in ("", "FLOAT") or texts["order"] == "TOTAL"
    is_said = is_total and (is_floating(kind) or is_complex(kind))
    texts["order"] = "TOTAL" if is_said else ""


def _write_map(draft: DraftInstruction, texts: dict[str, str]) -> None:
    """`map` goes over all dimensions."""
    texts["dimensions"] = f"{{{','.join(map(str, range(draft.shape.rank)))}}}"


def _write_broadcast(_: DraftInstruction, texts: dict[str, str]) -> None:
    """A scalar goes into no dimension."""
    texts["dimensions"] = texts["dimensions"] or "{}"


def _write_outfeed(draft: DraftInstruction, texts: dict[str, str]) -> None:
    """The shape of the operand, where none is given."""
    texts["outfeed_shape"] = texts["outfeed_shape"] or draft.operands[0].shape.text


def _write_custom_call(draft: DraftInstruction, _: dict[str, str]) -> None:
    """Callees are printed by one name."""
    callees = draft.callees
    draft.called = {"called_computations": callees} if callees else {}


def _write_async(draft: DraftInstruction, texts: dict[str, str]) -> None:
    """Later stages have what the start says."""
    texts["async_execution_thread"] = ""
    draft.called.pop("calls", None)


_TEXTS: dict[str, Callable[[DraftInstruction, dict[str, str]], None]] = {
    "async-done": _write_async,
    "async-update": _write_async,
    "broadcast": _write_broadcast,
    "compare": _write_comparison,
    "custom-call": _write_custom_call,
    "map": _write_map,
    "outfeed": _write_outfeed,
}

# --- shapes that XLA makes itself ---------------------------------------------------------------


def _unpacked(shape: Shape) -> Shape:
    """Literals are neither dynamic nor packed."""
    layout = shape.layout and shape.layout._replace(element_size_in_bits=0)
    return Shape(shape.element_type, shape.dimensions, (), layout)


_SHAPES: dict[str, Callable[[DraftInstruction], Shape]] = {
    "add-dependency": lambda draft: draft.operands[0].shape,
    "after-all": lambda _: _TOKEN,
    "constant": lambda draft: map_leaves(draft.shape, _unpacked),
    "infeed": lambda draft: tuple_shape((draft.shape.elements[0], _TOKEN)),
    "outfeed": lambda _: _TOKEN,
    "recv": lambda draft: tuple_shape((draft.shape.elements[0], _CONTEXT, _TOKEN)),
    "recv-done": lambda draft: tuple_shape((draft.operands[0].shape.elements[0], _TOKEN)),
    "send": lambda draft: tuple_shape((draft.operands[0].shape, _CONTEXT, _TOKEN)),
    "send-done": lambda _: _TOKEN,
}

# --- checks ------------------------------------------------------------------------------------


def _check_reshape(draft: DraftInstruction, _: Values) -> bool:
    """As many elements as before; a dynamic one has a size for each dimension."""
    if not draft.operands:
        return False
    before, after = draft.operands[0].shape, draft.shape
    is_open = draft.opcode == "reshape" and UNBOUNDED in before.dimensions
    is_same = is_open or prod(before.dimensions) == prod(after.dimensions)
    is_sized = draft.opcode == "reshape" or len(draft.operands) - 1 == after.rank
    return before.is_array and after.is_array and is_same and is_sized


def _check_tuple_result(draft: DraftInstruction, _: Values) -> bool:
    return draft.shape.is_tuple and bool(draft.shape.elements)


def _check_transfer_end(draft: DraftInstruction, values: Values) -> bool:
    """The end of a transfer is on the channel of its start."""
    [start] = draft.operands
    given = values["channel_id"].text if "channel_id" in values else None
    if start.opcode in ("send", "recv") and start.attributes.get("channel_id") != given:
        return False
    return draft.opcode == "send-done" or bool(start.shape.is_tuple and start.shape.elements)


def _check_conditional(draft: DraftInstruction, _: Values) -> bool:
    if not draft.operands:
        return False
    index = draft.operands[0].shape
    names = ["branch_computations"]
    if index.element_type is ElementType.PRED:
        names = ["true_computation", "false_computation"]
    is_index = is_scalar(index) and index.element_type in (ElementType.PRED, ElementType.S32)
    has_branches = draft.called.keys() == set(names)
    return is_index and has_branches and len(draft.operands) == len(draft.callees) + 1


def _check_slice(draft: DraftInstruction, _: Values) -> bool:
    """A start for each dimension, or one vector of them."""
    first = 1 if draft.opcode == "dynamic-slice" else 2
    starts = [operand.shape for operand in draft.operands[first:]]
    if len(draft.operands) < first:
        return False
    return [start.rank for start in starts] == [1] or len(starts) == draft.operands[0].shape.rank


def _check_collective(_: DraftInstruction, values: Values) -> bool:
    """Numbers of all devices need a channel (`GetCollectiveOpGroupMode`)."""
    ids = values.get("use_global_device_ids")
    return ids is None or not ids.data or "channel_id" in values or "mode" in values


def _check_permute(draft: DraftInstruction, values: Values) -> bool:
    return "slice_sizes" not in values or len(draft.operands) == 4


def _check_custom_call(draft: DraftInstruction, values: Values) -> bool:
    """A layout constraint for each operand."""
    if "operand_layout_constraints" not in values:
        return True
    shapes = values["operand_layout_constraints"].data
    given = [operand.shape for operand in draft.operands]
    return len(shapes) == len(given) and all(map(compatible, shapes, given))


def _check_scan(draft: DraftInstruction, values: Values) -> bool:
    count = len(draft.operands)
    is_taken = len(draft.callees[0].parameters) == count
    return is_taken and 0 <= values["num_carries"].data <= count


def _check_async(draft: DraftInstruction, _: Values) -> bool:
    """`((operands), results, state...)` is the shape of a start and of an update."""
    shape = draft.shape
    is_started = shape.is_tuple and len(shape.elements) > 1 and shape.elements[0].is_tuple
    if draft.opcode != "async-done" and not is_started:
        return False
    if draft.opcode == "async-start":
        return True
    return bool(draft.operands) and draft.operands[0].opcode != "async-done"


def _check_tuple(draft: DraftInstruction, _: Values) -> bool:
    return len(draft.shape.elements) == len(draft.operands)


def _is_even(draft: DraftInstruction, _: Values) -> bool:
    is_empty = draft.opcode == "reduce-window" and not draft.operands
    return len(draft.operands) % 2 == 0 and not is_empty


_CHECKS: dict[str, Callable[[DraftInstruction, Values], bool]] = {
    "all-reduce": _check_collective,
    "all-reduce-start": _check_collective,
    "async-done": _check_async,
    "async-start": _check_async,
    "async-update": _check_async,
    "collective-permute": _check_permute,
    "collective-permute-start": _check_permute,
    "conditional": _check_conditional,
    "convolution": lambda draft, _: len(draft.operands) > 1,
    "custom-call": _check_custom_call,
    "dynamic-reshape": _check_reshape,
    "dynamic-slice": _check_slice,
    "dynamic-update-slice": _check_slice,
    "infeed": _check_tuple_result,
    "recv": _check_tuple_result,
    "recv-done": _check_transfer_end,
    "reduce": _is_even,
    "reduce-scatter": _check_collective,
    "reduce-window": _is_even,
    "reshape": _check_reshape,
    "scan": _check_scan,
    "scatter": lambda draft, _: len(draft.operands) % 2 == 1,
    "send-done": _check_transfer_end,
    "tuple": _check_tuple,
}
