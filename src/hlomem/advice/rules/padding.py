"""`padding`: choose dimensions that fill the tiles of a layout.

At most, copies to unpadded layouts and holes disappear as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.advice.trial import shrunk
from hlomem.base.sizes import format_bytes
from hlomem.report.data.advice import Advice
from hlomem.report.data.padding import build_padding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case

LINK = "https://openxla.org/xla/tiled_layout"
_LEAST = 0.8
"""The fraction of padding that is saved at least: other dimensions round up, too."""


def advise_padding(subject: Case) -> Iterator[Advice]:
    padding = build_padding(subject.memory, subject.space)
    worst = next((row for row in padding.rows if row.fix and row.padding_at_peak), None)
    if worst is None:
        return
    replay = subject.replay
    padded = [buffer for buffer in replay.buffers if buffer.padding]
    tight = {buffer.id: (shrunk(buffer, buffer.size - buffer.padding),) for buffer in padded}
    arguments = {
        buffer.elements
        for buffer in subject.memory.buffers
        if buffer.opcode == "parameter" and not buffer.padding
    }
    without_copies = tight | {
        buffer.id: ()
        for buffer in padded
        if buffer.opcode == "copy" or buffer.elements in arguments
    }
    saved = replay.saved(tight)
    most = max(saved, replay.saved(without_copies)) + replay.holes
    yield Advice(
        rule="padding",
        title=f"fill the tiles: {format_bytes(padding.padding_at_peak)} hold nothing,"
        f" most of it in {worst.shape.partition('{')[0]}",
        argument=worst.shape.partition("{")[0],
        least=round(saved * _LEAST),
        most=most,
        cost="changes the shapes of the model or of its activations",
        how=worst.fix,
        link=LINK,
    )
