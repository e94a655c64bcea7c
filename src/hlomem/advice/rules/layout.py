"""`layout`: give an argument, or take a result, in the layout that XLA would copy it to or from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.advice.trial import Trial
from hlomem.hlo.rewrite import Rewriter
from hlomem.report.data.advice import Advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape

LINK = "https://docs.jax.dev/en/latest/jax.experimental.layout.html"
_MAX_COPIES = 4
_WORTH = 0.01
"""Smallest fraction of the space that a copy must have."""


def advise_layout(subject: Case) -> Iterator[Advice]:
    """One advice per copy, for the largest."""
    size_of = {
        buffer.name: buffer.size
        for buffer in subject.memory.buffers
        if buffer.color == subject.space.color and buffer.opcode == "copy"
    }
    large = [name for name, size in size_of.items() if size > _WORTH * subject.space.size]
    large.sort(key=lambda name: -size_of[name])
    for name in large[:_MAX_COPIES]:
        copy = subject.module.entry.find(name)
        if copy is not None and copy.opcode == "copy":
            [source] = copy.operands
            if _order(source.shape) != _order(copy.shape):
                yield from _without(subject, copy)


def _without(subject: Case, copy: HloInstruction) -> Iterator[Advice]:
    [source] = copy.operands
    if source.opcode == "parameter" and source.users == [copy]:
        name = source.metadata.op_name or f"argument {source.parameter_number}"
        title = f"give {name} in layout {format_layout(copy.shape)}, in which it is read"
        advice = _advice(title, name, "in_shardings", copy.shape)
        yield _trial(subject, copy, advice, takes_layout_of_copy=True).evaluate(subject)
    elif copy.is_root or copy.users == [copy.parent.root]:
        own = format_layout(source.shape)
        title = f"take the result that {copy.name} copies in layout {own}, as it is computed"
        advice = _advice(title, copy.name, "out_shardings", source.shape)
        yield _trial(subject, copy, advice, takes_layout_of_copy=False).evaluate(subject)
    elif (result := _output_of(copy)) is not None and not _is_default(result.shape):
        yield _requested(copy, result)


def _output_of(copy: HloInstruction) -> HloInstruction | None:
    """The program output that a copy reaches through views and single-operand fusions."""
    made = copy
    while made.users:
        if len(made.users) > 1:
            return None
        [reader] = made.users
        if reader.opcode == "tuple" and reader.is_root:
            return made
        is_opaque = reader.opcode == "bitcast" or reader.opcode == "fusion"
        is_view = is_opaque and len(reader.operands) == 1
        if not is_view or sum(1 for _ in reader.shape.leaves()) > 1:
            return None
        made = reader
    return made if made.is_root else None


def _is_default(shape: Shape) -> bool:
    return _order(shape) == tuple(reversed(range(len(shape.dimensions))))


def _requested(copy: HloInstruction, result: HloInstruction) -> Advice:
    """Advice against requesting a result in a layout that requires a copy."""
    own = format_layout(result.shape)
    advice = _advice("", result.name, "out_shardings", result.shape)
    return replace(
        advice,
        title=f"do not request the result {result.name} in layout {own}: {copy.name} converts it",
        method="possible",
        confidence="low",
        how="jax.jit(f, out_shardings=...)  # a sharding, without a Layout",
    )


def _trial(
    subject: Case, copy: HloInstruction, advice: Advice, *, takes_layout_of_copy: bool
) -> Trial:
    rewriter = Rewriter(subject.module)
    rewriter.drop_copy(copy, takes_layout_of_copy=takes_layout_of_copy)
    return Trial(rewriter.finish(), advice)


def _order(shape: Shape) -> tuple[int, ...]:
    return tuple(shape.layout.minor_to_major) if shape.layout else ()


def format_layout(shape: Shape) -> str:
    """A shape's order of dimensions, from minor to major."""
    return f"{{{','.join(map(str, _order(shape)))}}}"


def _advice(title: str, argument: str, option: str, shape: Shape) -> Advice:
    major_to_minor = ", ".join(map(str, reversed(_order(shape))))
    code = f"Format(Layout(({major_to_minor})), sharding)"
    return Advice(
        rule="layout",
        title=title,
        argument=argument,
        method="re-planned",
        confidence="medium",
        cost="other users of the array must use that layout as well, or copy it",
        how=f"from jax.experimental.layout import Format, Layout\njax.jit(f, {option}={code})",
        link=LINK,
    )
