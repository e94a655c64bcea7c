"""The loop of the optimiser: what cannot be written is a problem of one candidate alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.opt.candidate import Program
from hlomem.opt.goal import Rules
from hlomem.opt.search import OURS, find_fits, find_order, settle
from tests.opt.remat.scanned import SCANNED, scanned_stages

if TYPE_CHECKING:
    from hlomem.opt.candidate import Candidate


def test_a_candidate_that_cannot_be_written_leaves_the_others() -> None:
    ordered = find_order(Program(scanned_stages(SCANNED[-1]), Rules("low")))
    found = find_fits(ordered, ordered.total * 3 // 4)
    first, _ = settle(found, limit=ordered.total)
    assert first is not None

    def write(candidate: Candidate) -> bytes:
        if candidate.changes == first.changes:
            raise EditError("a new constant of `s4[]` cannot be written")
        return OURS.write(candidate)

    other, notes = settle(found, OURS._replace(write=write), ordered.total)
    assert other is None or other.changes != first.changes
    assert "cannot be written" in notes[0]
