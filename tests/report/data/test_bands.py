"""The steps of called computations, with a module and without."""

from __future__ import annotations

from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.report.data.bands import build_bands
from hlomem.report.data.memory import build_memory
from tests.places import GOLDENS

NESTED = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_while"


def test_bands_nest_and_come_in_order() -> None:
    module = hlo.parse((NESTED / "module.hlo").read_text())
    for program in (module, None):
        memory = build_memory(hlomem.load(NESTED), program)
        bands = build_bands(memory)
        assert [band.start for band in bands] == sorted(band.start for band in bands)
        assert max(band.depth for band in bands) >= 1
        for band in bands:
            around = [
                other
                for other in bands
                if other is not band and other.start <= band.start and band.end <= other.end
            ]
            assert band.depth <= len(around)
            assert 0 <= band.start <= band.end < memory.steps


def test_a_dump_alone_has_a_band_for_every_loop() -> None:
    memory = build_memory(replace(hlomem.load(NESTED), open_module=None))
    loops = {loop.instruction for loop in memory.structure.loops}
    assert {band.name for band in build_bands(memory) if band.kind == "while"} == loops
