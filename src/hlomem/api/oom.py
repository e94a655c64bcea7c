"""The note and page of an out-of-memory error, for tracebacks (`hlomem.jax`) and `hlomem run`.

Parts that cannot be made are omitted with a remark: reporting an error must not raise another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.api.advise import advise_on
from hlomem.base.errors import HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.kernels.blocks import parts_of
from hlomem.report.data.summary import build_hints
from hlomem.report.oom.explanation import build_oom
from hlomem.report.oom.kernel import describe_kernel
from hlomem.report.oom.log import Failure, read_oom
from hlomem.report.oom.note import HEAD, Remark, draw_note
from hlomem.report.oom.verdict import draw_verdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hlomem.api.explain import MemoryExplanation
    from hlomem.kernels.blocks import KernelFacts
    from hlomem.report.data.advice import Advice
    from hlomem.report.oom.explanation import Oom
    from hlomem.report.oom.verdict import Verdict

MAX_ADVISED = 20_000
"""Values up to which changes of a program are tried by planning it again."""


def find_oom(text: str) -> Oom | None:
    """The out-of-memory error in a message or a log, if any; not a mere remat warning."""
    oom = build_oom(read_oom(text))
    return None if oom is None or oom.failure.moment == "rematerialization" else oom


def describe_verdict(verdict: Verdict | None, note: str) -> str:
    """A note that begins with why memory ran out, as far as that can be told."""
    lines = [] if verdict is None else draw_verdict(verdict)
    if not lines:
        return note
    [first, *rest] = lines
    return "\n".join([f"{HEAD} {first}", *rest, note.removeprefix(f"{HEAD} ")]).rstrip()


def describe_failure(
    explanation: MemoryExplanation, failure: Failure, reason: str, page: Path | None
) -> str:
    """The note for an error; also writes the page, replacing an existing one."""
    remark = Remark(
        reason=reason,
        advice=_best_advice(explanation),
        page="" if page is None else _write_page(explanation, page),
    )
    return "\n".join(draw_note(explanation.memory, explanation.space, failure, remark))


def describe_unknown(failure: Failure, count: int) -> str:
    """The note for an error that matches none of `count` programs."""
    asked = "memory" if failure.needed is None else format_bytes(failure.needed)
    if failure.moment == "compile":
        name = (failure.module or "a program").removeprefix("jit_")
        size = "" if failure.available is None else format_bytes(failure.available)
        there = size and f", {size} available"
        return (
            f"{HEAD} {name} needs {asked}{there}; its plan is not visible from this process\n"
            "  `hlomem run -- COMMAND` reads the dump XLA writes before it fails"
        )
    programs = f"none of the {count} programs seen" if count else "no program was seen that"
    return (
        f"{HEAD} {asked} could not be allocated, and {programs} requests as much at once\n"
        "  arrays on a device need memory as well; jax.live_arrays() lists them"
    )


def describe_kernel_failure(oom: Oom, kernels: Sequence[KernelFacts] = ()) -> str:
    """The note for a kernel that needs more VMEM or SMEM than it may use.

    `kernels` are those of the function that failed, if it is known: the blocks of the one that the
    message names are told, and its line.
    """
    assert oom.kernel is not None
    lines = [f"{HEAD} {describe_kernel(oom.kernel)}"]
    facts = _named_kernel(oom.kernel.name, kernels)
    if facts is not None:
        at = f" at {facts.line}" if facts.line else ""
        size = f"{format_bytes(facts.bound)} or more with its operands in HBM"
        lines.append(f"  {facts.name}{at}: {size}, of which")
        parts = [f"{format_bytes(part.size)} {part.name}" for part in parts_of(facts, None)]
        lines.append(f"    {', '.join(parts)}")
        blocks = sorted(facts.in_vmem("in", "out", "scratch"), key=lambda block: -block.total)
        for block in blocks[:2]:
            copies = f" in {block.copies} buffers" if block.copies > 1 else ""
            lines.append(f"    {format_bytes(block.total)}  {block.label}{copies}")
    else:
        lines += [f"  {finding}" for finding in oom.findings[1:]]
    for step in oom.steps:
        lines.append(f"  {step.text}")
        lines += [f"    {step.command}"] if step.command else []
    return "\n".join(visible(line) for line in lines)


def _named_kernel(name: str, kernels: Sequence[KernelFacts]) -> KernelFacts | None:
    """The kernel of an instruction: XLA appends a number to its name; or the only one."""
    base = name.rstrip("0123456789").removesuffix(".")
    found = [facts for facts in kernels if facts.name == base]
    if not found and len(kernels) == 1:
        return kernels[0]
    return found[0] if len(found) == 1 else None


def _write_page(explanation: MemoryExplanation, page: Path) -> str:
    try:
        explanation.write_page(page, force=True)
    except HlomemError as error:
        return f"no page: {error}"
    return f"page: {page.resolve()}"


def _best_advice(explanation: MemoryExplanation) -> str:
    """The change that saves most: tried if the program is small enough, else counted."""
    memory, space = explanation.memory, explanation.space
    if len(memory.buffers) <= MAX_ADVISED:
        try:
            found = advise_on(memory, space=space.name).advice
        except HlomemError:
            found = ()
        if found:
            possible = next((piece for piece in found[1:] if piece.rule == "checkpoint"), None)
            also = f"; also possible: {possible.title}" if possible is not None else ""
            return _in_words(found[0], is_exact=not memory.is_planned) + also
    hints = build_hints(memory, space)
    return f"up to {format_bytes(hints[0].size)}: {hints[0].what}" if hints else ""


def _in_words(advice: Advice, *, is_exact: bool) -> str:
    """An advice in a line; what it saves is not known where the plan is not XLA's."""
    if advice.least is None or advice.most is None:
        return f"{advice.title}; `hlomem advise FILE:FACTORY` compiles it and says what it saves"
    how = advice.how.strip().partition("\n")[0]
    if not is_exact:
        return f"{advice.title}: {how}"
    least, most = format_bytes(advice.least), format_bytes(advice.most)
    saved = most if least == most else f"{least} to {most}"
    return f"{advice.title}; saves {saved} ({advice.method}): {how}"
