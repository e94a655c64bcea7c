"""What bytes are for: each byte of a memory space has one role, and the roles add up to its total.

An allocation that holds a parameter, an output or a constant is that, whatever else passes through
it. What a temporary is for is said by its instruction, by the loop that carries it, by the name
JAX gave its operation. Two values that share bytes at one moment are one buffer: the role that
tells most counts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from hlomem.dump.records import Record
from hlomem.report.data.overview import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.dump.records import Allocation
    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import JoinedDump, PlacedValue

PARAMETERS = "parameters"
DONATED = "donated parameters"
OPTIMIZER = "optimizer state"
OUTPUTS = "outputs"
CONSTANTS = "constants"
THREAD_LOCAL = "thread-local"
STACKED = "stacked by a loop"
CARRIED = "carried by a loop"
COLLECTIVES = "collectives"
COPIES = "copies"
GRADIENTS = "gradients"
ACTIVATIONS = "activations"
TEMPORARIES = "temporaries"
TUPLES = "tuples and async contexts"
PADDING = "padding"
ALIGNMENT = "alignment"
HOLES = "holes"


class Role(Record, frozen=True):
    """One row of the table of roles."""

    name: str
    meaning: str
    colour: str
    """Of its bytes on the page, light or dark: #rrggbb."""
    rank: int = 0
    """Of the roles of values that share bytes, the lowest counts; an allocation's is alone."""


ROLES = (
    Role(PARAMETERS, "arguments of the program, which it may not overwrite", "#4e79a7"),
    Role(DONATED, "arguments whose memory the program's result takes over", "#76b7b2"),
    Role(OPTIMIZER, "arguments whose names say optimizer state", "#8e6bb0"),
    Role(OUTPUTS, "results, in memory of their own", "#59a14f"),
    Role(CONSTANTS, "literals in the program", "#9c755f"),
    Role(THREAD_LOCAL, "parameters and results of small called computations", "#7f7f7f"),
    Role(
        STACKED,
        "what a loop writes one slice per iteration of, such as a scan's outputs",
        "#f28e2b",
        rank=0,
    ),
    Role(CARRIED, "what a loop hands from iteration to iteration", "#edc948", rank=1),
    Role(COLLECTIVES, "results of all-reduce, all-gather and the like", "#b07aa1", rank=2),
    Role(
        COPIES,
        "the same elements again, in another layout or memory, or to keep them",
        "#e15759",
        rank=3,
    ),
    Role(GRADIENTS, "computed by the backward pass", "#d37295", rank=4),
    Role(ACTIVATIONS, "computed by the forward pass of what is differentiated", "#86bc5c", rank=5),
    Role(TEMPORARIES, "other intermediate results", "#5fa2ce", rank=6),
    Role(TUPLES, "tables of pointers, and the state of asynchronous operations", "#bab0ac", rank=7),
    Role(PADDING, "elements that layouts add to fill their tiles", "#ff9da7"),
    Role(ALIGNMENT, "from the end of a buffer to the next allowed offset", "#c9c3a5"),
    Role(HOLES, "reserved for temporaries, but free when they need most", "#d9dde3"),
)
"""Every role, in the order the page and its layers have them; a new role is a row here."""

MEANING = {role.name: role.meaning for role in ROLES}
_RANK = {role.name: role.rank for role in ROLES}

_COLLECTIVE = re.compile(
    r"(?:all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|collective-\w+|send|recv)"
    r"(?:-start|-done|-update)?$"
)
_COPYING = frozenset({"copy", "copy-start", "copy-done", "transpose"})
MAY_COPY = _COPYING | {"fusion"}
"""The opcodes of instructions that copy; fusions do other things, too."""
_COPY_FUSION = re.compile(
    r"(?:(?:^|_)copy(?:_fusion)?|^(?:wrapped_|copy_)?transpose(?:_fusion)?)(?:\.\d+)?$"
)
"""Fusions are named after what they do: `wrapped_copy.3`, `transpose_copy_fusion`."""
_STACKS = re.compile(r"dynamic[-_]update[-_]slice")
_WRITERS = frozenset({"fusion", "dynamic-update-slice", "call"})
_OPTIMIZER_NAME = re.compile(
    r"opt(?:imizer)?_?state|optimizer|\.(?:mu|nu|trace)\b|momentum|velocit(?:y|ies)\b"
    r"|exp_avg|\badam",
    re.IGNORECASE,
)
_SCALAR = re.compile(r"[us]32\[\]")


def role_of_allocation(allocation: Allocation, parameter_name: str | None) -> str | None:
    """The role of all of an allocation; None where its values have roles of their own."""
    kind = kind_of(allocation)
    if kind in {PARAMETERS, DONATED} and _OPTIMIZER_NAME.search(parameter_name or ""):
        return OPTIMIZER
    return kind if kind in {PARAMETERS, DONATED, OUTPUTS, CONSTANTS, THREAD_LOCAL} else None


def rank(role: str) -> int:
    """Where a role stands among those of values that share its bytes; an allocation's is alone."""
    return _RANK[role]


def loop_roles(
    joined: JoinedDump, families: Mapping[PlacedValue, Sequence[PlacedValue]]
) -> dict[PlacedValue, str]:
    """The values that loops carry, or stack slice by slice; and those that share storage with them.

    `families` are the values that share one storage, by each of them.
    """
    loops = {name for name, text in joined.printed.items() if text.opcode == "while"}
    found: dict[PlacedValue, str] = {}
    for placed in joined.placed if loops else ():
        if placed not in found and _is_carried(placed, loops):
            family = families.get(placed, (placed,))
            role = STACKED if _is_stacked(joined, family) else CARRIED
            found.update(dict.fromkeys(family, role))
    return found


def _is_carried(placed: PlacedValue, loops: set[str]) -> bool:
    positions = placed.used.positions if placed.used else ()
    return any(each.instruction in loops and each.index for each in positions)


def _is_stacked(joined: JoinedDump, family: Iterable[PlacedValue]) -> bool:
    """Whether a slice of it is updated, by an instruction or a fusion named after that."""
    for placed in family:
        text = joined.printed.get(placed.value.name)
        if text is not None and text.opcode in _WRITERS:
            words = f"{text.opcode} {placed.value.name} {text.metadata.op_name}"
            if _STACKS.search(words):
                return True
    return False


def role_of_temporary(
    placed: PlacedValue, text: PrintedInstruction | None, operation: str | None
) -> str:
    """The role of a value no loop carries, by its instruction and its operation's name."""
    opcode = text.opcode if text else ""
    return role_by_name(placed.value.name, opcode, placed.value.shape, operation)


def role_by_name(name: str, opcode: str, shape: str, operation: str | None) -> str:
    """The role of a temporary of which no more is known than what it is called."""
    if opcode == "fusion" and is_copy(name, opcode) and not shape.startswith("("):
        return COPIES
    return _role_of_operation(opcode, shape, operation)


@lru_cache(maxsize=4096)
def _role_of_operation(opcode: str, shape: str, operation: str | None) -> str:
    """The role of what is no fusion that copies; many buffers are of one shape and operation."""
    if shape.startswith("("):
        return TUPLES
    if _COLLECTIVE.match(opcode):
        return TUPLES if _SCALAR.match(shape) else COLLECTIVES
    if opcode.endswith("-start") and _SCALAR.match(shape):
        return TUPLES
    if opcode in _COPYING:
        return COPIES
    if operation and "transpose(jvp(" in operation and "rematted_computation" not in operation:
        return GRADIENTS
    return ACTIVATIONS if operation and "jvp(" in operation else TEMPORARIES


def is_copy(name: str, opcode: str) -> bool:
    """Whether an instruction only copies, or transposes."""
    if opcode == "fusion":
        return ("copy" in name or "transpose" in name) and _COPY_FUSION.search(name) is not None
    return opcode in _COPYING
