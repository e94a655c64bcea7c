"""The CPU."""

from __future__ import annotations

import pytest

from hlomem.machines.cpu import CPU
from hlomem.machines.options import options_for
from hlomem.machines.releases import find_release


@pytest.mark.parametrize(("release", "alignment"), [("0.4.34", 16), ("0.4.35", 64), ("K", 64)])
def test_offsets_are_aligned_as_the_release_does(release: str, alignment: int) -> None:
    machine = options_for(CPU, find_release(release)).machine
    assert machine.alignment(0) == alignment
    # What an older release made of the machine does not stick to it.
    assert options_for(machine, find_release("K")).machine == CPU
