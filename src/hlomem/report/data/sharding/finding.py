"""A finding on shardings: what lies on devices more than once, where, and which change helps."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads it
from typing import Literal, TypeAlias

from msgspec import field

from hlomem.dump.records import Record
from hlomem.report.data.sharding.decision import (  # noqa: TC001 - msgspec reads them
    OtherDecision,
    OtherValue,
)

FindingKind: TypeAlias = Literal[
    "replicated", "dropped", "gathered", "stack", "reshard", "padding", "optimizer", "donated"
]
WORDS: dict[str, str] = {
    "replicated": "replicated, though it can be split",
    "dropped": "a constraint without effect",
    "gathered": "gathered, and kept for the backward pass",
    "stack": "a loop's stack that is not split",
    "reshard": "resharded through a full copy",
    "padding": "padded by an uneven division",
    "optimizer": "optimizer state not sharded as its parameter",
    "donated": "donated, but its result is sharded differently",
}


class Place(Record, frozen=True, kw_only=True):
    """An expression of the user's code: lines from 1, columns from 0, the end excluded."""

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    """0 if only the line is known."""
    end_column: int = 0
    is_constraint: bool = False
    """Whether it puts a constraint on its first argument."""


class Link(Record, frozen=True, kw_only=True):
    """A line that leads to a sharding; another one is to be edited."""

    what: Literal["written", "made", "applied", "called"]
    """The act: the spec is written, a sharding made of it, that put on an array, or a function
    called that does so."""
    line: str
    """`file:line`"""


class ShardingChange(Record, frozen=True, kw_only=True):
    """A change of shardings that helps; specs are as JAX writes them, `P('data', None)`."""

    arguments: Mapping[str, str] = field(default_factory=dict)
    """New shardings of arguments, by path."""
    other_arguments: Mapping[str, str] = field(default_factory=dict)
    """The same with other dimensions split, which may save more; empty if there are none."""
    results: Mapping[str, str] = field(default_factory=dict)
    """New shardings of results, by path or number."""
    constraint: str = ""
    """The sharding of the value at `place`, for `with_sharding_constraint`."""
    alternatives: tuple[str, ...] = ()
    """Other shardings of that value, of which one may save more."""
    through: tuple[str, ...] = ()
    """Shardings that the value at `place` could take on its way to its constraint, in order."""
    place: Place | None = None
    dimensions: tuple[int, ...] = ()
    """Those of the value that the constraint at `place` is on."""
    asked: str = ""
    """The sharding that it asks for now."""
    pins: tuple[Place, ...] = ()
    """Other constraints that hold the first argument, or the value at `place`, as it is now."""
    may_be_left_out: bool = False
    """Whether the program without the constraint at `place` may need less, too."""
    is_assigned: bool = False
    """Whether the constraint at `place`, whose value is not used, is to be assigned to its name."""
    decisions: tuple[OtherDecision, ...] = ()
    """Acts of the program that were done otherwise, where no edit of the source says so."""
    value: OtherValue | None = None
    """Another value of an expression of the source, from which all the rest follows."""
    is_of_batch: bool = False
    """Whether constraints that split the first dimension as the arguments do are to follow them."""
    has_mesh: bool = False
    """Whether its constraints are by P alone, for use under a mesh."""
    drops_gathered: bool = False
    """Whether layers are to be recomputed by a policy that drops gathered weights."""
    exchanges: tuple[OtherDecision, ...] = ()
    """The gathers that are to be all-to-alls, with the slices of them."""


class ShardingFinding(Record, frozen=True, kw_only=True):
    kind: FindingKind
    title: str
    why: str
    size: int
    """Bytes on each device that the finding is about."""
    promised: int
    """Bytes that the change saves on each device, by the plan alone."""
    got: int | None = None
    """Bytes that it saved when it was compiled; None if it was not."""
    source: str | None
    """`file:line` where the sharding, the constraint or the value is written; None if unknown."""
    chain: tuple[Link, ...] = ()
    """Other lines that lead to it, where the function was traced."""
    names: tuple[str, ...] = ()
    """Arguments or values it is about, largest first."""
    axes: tuple[str, ...] = ()
    """The axes of the mesh along which it is held more than once."""
    how: str
    """Code to write."""
    change: ShardingChange
    warning: str = ""
    """The partitioner's warning of it; empty if there is none."""
    is_other: bool = False
    """Whether it is told only once its change was compiled.

    It is the one before it on another line, of which the one that saves more counts, or is about
    inputs that may be wanted whole.
    """
    least: float = 0.0
    """The share of the memory that its change has to save to be told."""
    note: str = ""
    """How trying the change ended, where it saved nothing."""
