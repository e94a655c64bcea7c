"""Draws a `ModuleOverview`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, bar, shorten, shorten_front

if TYPE_CHECKING:
    from hlomem.report.data.module_overview import EntryArray, ModuleOverview

_TOP_OPCODES = 10
_TOP_ARGUMENTS = 8
_BAR = 20
_NAME = 20
"""Columns that a name may take from a long shape."""


def draw_module_overview(program: ModuleOverview, width: int) -> list[Line]:
    order = "scheduled" if program.is_scheduled else "no schedule in the text"
    devices = program.replica_count * program.num_partitions
    split = f", for {devices} devices ({program.num_partitions} partitions)"
    return [
        [(shorten(visible(program.name), width), "bold")],
        [(order + (split if devices > 1 else ""), "dim")],
        [],
        [
            (f"{program.instruction_count:,} instructions in ", ""),
            (f"{program.computation_count:,} computations, {program.fused_count:,} fused", ""),
        ],
        *_opcodes(program, width),
        *_arguments("Parameters", "output", program.parameters, width),
        *_arguments("Outputs", "parameter", program.outputs, width),
        *_spaces(program),
    ]


def _opcodes(program: ModuleOverview, width: int) -> list[Line]:
    shown = program.opcodes[:_TOP_OPCODES]
    columns = max((len(visible(name)) for name, _ in shown), default=0)
    columns = min(columns, width - _BAR - 14)
    lines: list[Line] = [
        [
            (f"  {shorten(visible(name), columns):<{columns}}  ", ""),
            (f"{count:>8,}  ", "cyan"),
            (bar(count, program.instruction_count, _BAR), "green"),
        ]
        for name, count in shown
    ]
    if rest := len(program.opcodes) - len(shown):
        left = sum(count for _, count in program.opcodes[_TOP_OPCODES:])
        lines.append([(f"  {f'{rest} others':<{columns}}  {left:>8,}", "dim")])
    return lines


def _arguments(title: str, other: str, arguments: tuple[EntryArray, ...], width: int) -> list[Line]:
    total = sum(argument.size or 0 for argument in arguments)
    shared = [
        argument.size or 0
        for argument in arguments
        if argument.alias is not None or argument.is_donor
    ]
    donated = f", {format_bytes(sum(shared))} donated" if shared else ""
    lines: list[Line] = [
        [],
        [(f"{title} ", ""), (format_bytes(total), "bold"), (f" in {len(arguments)}{donated}", "")],
    ]
    ranked = sorted(enumerate(arguments), key=lambda entry: (-(entry[1].size or 0), entry[0]))
    shown = [argument for _, argument in ranked[:_TOP_ARGUMENTS]]
    columns = max((len(_braced(argument.index)) for argument in shown), default=0)
    lines += [_argument(argument, other, columns, width) for argument in shown]
    if (rest := len(arguments) - _TOP_ARGUMENTS) > 0:
        left = sum(argument.size or 0 for _, argument in ranked[_TOP_ARGUMENTS:])
        lines.append([(f"  {format_bytes(left):>10}  in {rest} smaller", "dim")])
    return lines


def _argument(argument: EntryArray, other: str, columns: int, width: int) -> Line:
    size = "unbounded" if argument.size is None else format_bytes(argument.size)
    head = f"  {size:>10}  {_braced(argument.index):<{columns}}"
    tail = "  donor" if argument.is_donor else ""
    if argument.alias is not None:
        tail = f"  {other} {_braced(argument.alias)}"
    room = width - len(head) - len(tail) - 4
    name = visible(argument.name)
    shape = shorten(visible(argument.shape), max(room - _NAME, room - len(name)))
    name = shorten_front(name, room - len(shape))
    return [(head, ""), (f"  {shape}", "cyan"), (f"  {name}", ""), (tail, "green")]


def _braced(index: tuple[int, ...]) -> str:
    return f"{{{','.join(map(str, index))}}}"


def _spaces(program: ModuleOverview) -> list[Line]:
    if len(program.spaces) < 2:
        return []
    lines: list[Line] = [[], [("Memory spaces of arrays outside fusions", "")]]
    return lines + [[(f"  S({space.color})  {space.count:>8,}", "")] for space in program.spaces]
