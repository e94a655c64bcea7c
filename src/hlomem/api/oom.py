"""An out-of-memory error and the program it is of, made one note and one page.

In: the memory of the program, what the message says (`hlomem.report.oom`), and a file for the page.
Out: the note, which `hlomem.jax` puts below a traceback and `hlomem run` prints. What cannot be
made is left out, and the note says so: an error that is being reported must not become another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.api.advise import advise_on
from hlomem.base.errors import HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.report.data.summary import build_hints
from hlomem.report.oom.explanation import build_oom
from hlomem.report.oom.log import read_oom
from hlomem.report.oom.note import HEAD, Remark, draw_note

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.api.explain import MemoryExplanation
    from hlomem.report.data.advice import Advice
    from hlomem.report.oom.log import Failure

MAX_ADVISED = 20_000
"""Values of a program for which changes are tried by planning anew."""


def find_failure(text: str) -> Failure | None:
    """The out-of-memory error in a message or a log; None where there is none.

    A warning of rematerialization alone ends no program.
    """
    oom = build_oom(read_oom(text))
    return None if oom is None or oom.failure.moment == "rematerialization" else oom.failure


def describe_failure(
    explanation: MemoryExplanation, failure: Failure, reason: str, page: Path | None
) -> str:
    """The note for an error; the page is written on the way, over one that is there."""
    remark = Remark(
        reason=reason,
        advice=_best_advice(explanation),
        page="" if page is None else _write_page(explanation, page),
    )
    return "\n".join(draw_note(explanation.memory, explanation.space, failure, remark))


def describe_unknown(failure: Failure, count: int) -> str:
    """The note for an error that no program is known for, of `count` that are."""
    asked = "memory" if failure.needed is None else format_bytes(failure.needed)
    if failure.moment == "compile":
        name = (failure.module or "a program").removeprefix("jit_")
        there = "" if failure.available is None else f", {format_bytes(failure.available)} there"
        return "\n".join(
            [
                f"{HEAD} {name} needs {asked}{there}; its plan cannot be seen from this process",
                "  `hlomem run -- COMMAND` reads the dump XLA writes before it gives up",
            ]
        )
    programs = f"none of the {count} programs seen" if count else "no program was seen that"
    return "\n".join(
        [
            f"{HEAD} {asked} could not be had, and {programs} asks for so much at once",
            "  arrays that are put on a device need memory, too; jax.live_arrays() lists them",
        ]
    )


def _write_page(explanation: MemoryExplanation, page: Path) -> str:
    try:
        explanation.write_page(page, force=True)
    except HlomemError as error:
        return f"no page: {error}"
    return f"page: {page.resolve()}"


def _best_advice(explanation: MemoryExplanation) -> str:
    """The change that saves most: tried where the program is not too large, else counted."""
    memory, space = explanation.memory, explanation.space
    if len(memory.buffers) <= MAX_ADVISED:
        try:
            found = advise_on(memory, space=space.name).advice
        except HlomemError:
            found = ()
        if found:
            return _in_words(found[0])
    hints = build_hints(memory, space)
    return f"up to {format_bytes(hints[0].size)}: {hints[0].what}" if hints else ""


def _in_words(advice: Advice) -> str:
    least, most = format_bytes(advice.least), format_bytes(advice.most)
    saved = most if least == most else f"{least} to {most}"
    how = advice.how.strip().partition("\n")[0]
    return f"{advice.title}; saves {saved} ({advice.method}): {how}"
