"""The acts by which a program says how arrays are split, with the lines that lead to them.

They are noted while JAX traces a function (`jax/compile/decisions.py`); a dump has none.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from hlomem.dump.records import Record

DecisionKind: TypeAlias = Literal[
    "constraint", "shard_map", "gather", "hoisted", "scan", "checkpoint", "dropped", "random"
]
DecisionKey: TypeAlias = "tuple[str, tuple[str, ...], tuple[tuple[int, ...], ...], tuple[str, ...]]"
"""The kind, the lines, the shapes and the specs."""


class Frame(Record, frozen=True, kw_only=True):
    """A call of the user's code that was going on."""

    line: str
    """`file:line`"""
    function: str
    """Its qualified name."""
    begin: int
    """The line its function begins at."""
    is_mapped: bool = False
    """Whether a library called it."""


class Decision(Record, frozen=True, kw_only=True):
    """An act by which a program says how arrays are split, or what a loop keeps.

    `hoisted` is a gather, or a constraint, on all that a loop then reads part by part; `random` a
    generator of random numbers that is not split, which has its name for a spec.

    The frames are innermost first: of the call, of who made the sharding that it was given, and of
    who wrote the spec of that.
    """

    kind: DecisionKind
    shapes: tuple[tuple[int, ...], ...] = ()
    specs: tuple[str, ...] = ()
    """As JAX writes them, `P('data', None)`."""
    sizes: tuple[int, ...] = ()
    """Bytes of the whole arrays."""
    applied: tuple[Frame, ...] = ()
    made: tuple[Frame, ...] = ()
    written: tuple[Frame, ...] = ()
    of: str = ""
    """The spec of the constraint whose value a constraint is put on; empty if it is on another."""

    @property
    def key(self) -> DecisionKey:
        lines = tuple([frame.line for frame in self.applied])
        return self.kind, lines, self.shapes, self.specs


class OtherDecision(Record, frozen=True, kw_only=True):
    """Another decision instead of one that was noted."""

    decision: Decision
    specs: tuple[str, ...] = ()
    """The constraints to put instead, one after another; none leaves it out.

    Of a `shard_map` the specs to exchange, `P('a') -> P('a', 'b')`. Of a loop those of the arrays
    that it begins with, in their order; without any its body is recomputed. A gather and the slices
    of it become an all-to-all. What is hoisted is done in the loop instead, to each part.
    """
    dropped: tuple[str, ...] = ()
    """The operations whose results are not kept by a loop's body, where others are."""
    is_used: bool = False
    """Whether what follows reads the constraint's value instead of that which it is put on."""

    @property
    def key(self) -> DecisionKey:
        return self.decision.key


class OtherValue(Record, frozen=True, kw_only=True):
    """Another value of an expression of the source, as `jax/probes/levers.py` has it."""

    key: str
    change: str
    site: str = ""
    """The line whose calls are meant; empty for all."""


class Exchange(Record, frozen=True, kw_only=True):
    """A gather over axes of which each device takes the part with its own number: an all-to-all."""

    gathered: str
    """`file:line` of the gather, the innermost of the user's."""
    taken: str
    """The same of what takes the part."""
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    """Dimensions of what a device hands to the gather."""
    split: int
    """The dimension of what is gathered that a device keeps one part of."""
    concat: int
    """The dimension that is gathered."""
    is_tiled: bool
    """Whether that is one of `shape`; else it is a new one."""
    is_moved: bool
    """Whether dimensions change their order or sizes between both."""
    size: int
    """Bytes of what is gathered."""
    devices: int
