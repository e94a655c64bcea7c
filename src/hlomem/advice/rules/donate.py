"""`donate`: results reuse arguments' memory, planned without copies that only preserve those."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.advice.trial import EXACT, Spread, Trial
from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.shape import ROOT_INDEX, ShapeIndex
from hlomem.hlo.text.attributes import InputOutputAlias
from hlomem.hlo.traits import CallRole
from hlomem.report.data.advice import Advice
from hlomem.report.data.donation import Argument, build_donation, top_level_name
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.advice.case import Case
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.pipeline import Stages

LINK = "https://docs.jax.dev/en/latest/buffer_donation.html"
_MAX_NAMES = 4
_WHOLE = 0.5
"""The fraction of an argument's bytes that results must reuse for it to be donated."""
_WORTH = 0.01
"""The fraction of the space that an argument must have to be donated."""
_INTEGERS = ("s8[", "s16[", "s32[", "s64[", "u8[", "u16[", "u32[", "u64[", "pred[")
_MOVED = Spread(0.7, 1.02)
"""Temporaries inside results' memory must move elsewhere, in another schedule."""
_REASSIGNED = Spread(0.7, 1.3)
"""Fast memory is reassigned, which changes the rest as well."""
_BEYOND = 1.05
"""Upper bound of the saving relative to the donated bytes: packing may improve, too."""
_IN_PLACE = re.compile(
    r"fusion|while|conditional|call|dynamic-update-slice|scatter|copy|copy-done|add|subtract"
    r"|multiply|divide|select|negate|maximum|minimum|tuple|get-tuple-element|bitcast|all-reduce"
)
"""Opcodes that may write over what they read."""


def advise_donate(subject: Case) -> Iterator[Advice]:
    donation = build_donation(subject.memory, subject.space)
    names = _names_to_donate(
        [row for row in donation.rows if _is_replaced(subject, row)],
        _WORTH * subject.space.size,
    )
    chosen = [
        row
        for row in donation.rows
        if row.state == "possible" and _name(row) in names and _may_overwrite(subject, row)
    ]
    if not chosen:
        return
    advice = _trial(subject, chosen, names).evaluate(subject)
    others = sum(
        row.size for row in donation.rows if row.state == "read later" and _name(row) in names
    )
    whole = round(_BEYOND * (sum(row.size for row in chosen) + others))
    least, most = advice.least or 0, advice.most or 0
    yield replace(advice, most=max(least, min(most + others, whole)))


def _name(row: Argument) -> str:
    return top_level_name(row.name) or f"#{row.number}"


def _names_to_donate(rows: list[Argument], worth: float) -> list[str]:
    """The arguments of the function whose bytes results could mostly reuse, in order.

    One that is worth less is left to its caller.

    Those read after their result is written count as well: XLA may then write it later.
    """
    whole: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    possible: set[str] = set()
    for row in sorted(rows, key=lambda row: row.number):
        whole[_name(row)] += row.size
        if row.state in {"possible", "read later"}:
            taken[_name(row)] += row.size
        if row.state == "possible":
            possible.add(_name(row))
    return [
        name
        for name in taken
        if name in possible and taken[name] >= max(worth, _WHOLE * whole[name])
    ]


def _is_replaced(subject: Case, row: Argument) -> bool:
    """Whether a result may be what an argument becomes.

    Integers are positions and tables as often as state, and what a loop stacks while it reads an
    argument cannot lie in its memory: such a result must be made of the argument, value by value
    of its shape.
    """
    name = (row.result or "").partition("{")[0]
    text = subject.memory.joined.printed.get(name)
    is_stacked = text is not None and text.opcode == "while"
    if row.state not in {"possible", "read later"}:
        return True
    if not is_stacked and not row.shape.startswith(_INTEGERS):
        return True
    root = subject.module.entry.root
    pending = [(root, row.output_index or ())]
    seen: set[tuple[HloInstruction, tuple[int, ...]]] = set()
    while pending:
        at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        made = at[0]
        is_argument = made.opcode == "parameter" and made.parent is subject.module.entry
        if is_argument and made.parameter_number == row.number:
            return True
        pending += _sources(*at)
    return False


def _sources(
    made: HloInstruction, index: tuple[int, ...]
) -> list[tuple[HloInstruction, tuple[int, ...]]]:
    """The sources of an element of a value, as far as its shape stays the same."""
    if made.opcode == "tuple" and index:
        return [(made.operands[index[0]], index[1:])]
    if made.opcode == "get-tuple-element":
        return [(made.operands[0], (made.tuple_index, *index))]
    if made.opcode == "while":
        [body] = [call.computation for call in made.calls if call.role is CallRole.BODY]
        return [(made.operands[0], index), (body.root, index)]
    if index or made.opcode == "parameter":
        return []
    return [
        (operand, ())
        for operand in made.operands
        if operand.shape.is_array and operand.shape.dimensions == made.shape.dimensions
    ]


def _may_overwrite(subject: Case, row: Argument) -> bool:
    name = (row.result or "").partition("{")[0]
    text = subject.memory.joined.printed.get(name)
    return (
        text is None
        or _IN_PLACE.fullmatch(text.opcode) is not None
        or not any(
            placed.allocation.parameter is not None
            and placed.allocation.parameter.number == row.number
            for number in range(len(text.operands))
            for _, placed in subject.memory.joined.read_by.get((name, number), ())
        )
    )


def describe_donation(names: list[str], module: str, rows: Sequence[Argument] = ()) -> Advice:
    """A donation to a module of a name, not planned yet."""
    return Advice(
        rule="donate",
        title=f"donate {_listed(names, rows)}",
        argument=", ".join(names),
        method="possible",
        confidence="low",
        cost="the caller must not use the arguments afterwards",
        how=_how(names, module),
        link=LINK,
    )


def _trial(subject: Case, rows: list[Argument], names: list[str]) -> Trial:
    spread = _spread(subject, rows)
    is_sure = spread is not _REASSIGNED
    advice = replace(
        describe_donation(names, subject.module.name, rows),
        method="re-planned",
        confidence="high" if is_sure else "medium",
    )
    return Trial(_varied(subject, rows), advice, spread)


def _varied(subject: Case, rows: list[Argument]) -> HloModule | Stages:
    """The program with the donations, edited if copies become redundant, else only planned."""
    module = subject.module
    parameters = {parameter.parameter_number: parameter for parameter in module.entry.parameters}
    copies = [copy for row in rows if (copy := _saving_copy(parameters[row.number])) is not None]
    if not copies:
        more = [
            InputOutputAlias(ShapeIndex(row.output_index or ()), row.number, ROOT_INDEX, False)
            for row in rows
        ]
        return subject.stages.donated([*module.input_output_alias, *more])
    rewriter = Rewriter(module)
    for copy in copies:
        rewriter.drop_copy(copy)
    for row in rows:
        rewriter.donate(row.number, row.output_index or ())
    return rewriter.finish()


def _spread(subject: Case, rows: list[Argument]) -> Spread:
    """Exact if results share their memory with no other value."""
    memory = subject.memory
    names = {row.result for row in rows}
    allocations = {buffer.allocation for buffer in memory.buffers if buffer.name in names}
    shares = any(
        buffer.name not in names and not memory.is_carried(buffer)
        for index in allocations
        for buffer in memory.buffers_in(index)
    )
    has_fast_memory = subject.machine.preset_color is not None
    if has_fast_memory and (shares or subject.layers):
        return _REASSIGNED
    return _MOVED if shares else EXACT


def _saving_copy(parameter: HloInstruction) -> HloInstruction | None:
    match parameter.users:
        case [copy] if copy.opcode == "copy" and copy.shape == parameter.shape:
            return None if copy.is_root else copy
    return None


def _listed(names: list[str], rows: Sequence[Argument]) -> str:
    shown = [name if name[0] != "#" else f"argument {name[1:]}" for name in names]
    more = len(shown) - _MAX_NAMES
    listed = ", ".join(shown[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"{listed} ({plural(len(rows), 'array')})" if len(rows) > len(names) else listed


def _how(names: list[str], module: str) -> str:
    function = module.removeprefix("jit_") or "f"
    if all(name[0] != "#" for name in names):
        quoted = "".join(f'"{name}", ' for name in names)
        inside = quoted.removesuffix(" ") if len(names) == 1 else quoted.removesuffix(", ")
        return f"jax.jit({function}, donate_argnames=({inside}))"
    numbers = ", ".join(name[1:] for name in names if name[0] == "#")
    return f"jax.jit({function}, donate_argnums=({numbers}{',' * (len(names) == 1)}))"
