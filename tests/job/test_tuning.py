"""The autotuner's memory: the model against what was recorded on a device."""

from __future__ import annotations

import gzip
from itertools import count
from typing import TYPE_CHECKING

import pytest

from hlomem import hlo
from hlomem.api.protos import programs_in
from hlomem.job.tuning import requests_of, tuned_in
from tests.job.recorded import DEVICE, JOBS, timeline_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.job.plans import Tuned

MIB = 1 << 20


def _tuned() -> Iterator[Tuned]:
    """What is tuned of the programs of a server, by their compiled modules."""
    data = gzip.decompress((JOBS / "serve.xplane.pb.gz").read_bytes())
    for program in programs_in(data, "serve", 1 << 31):
        opened = program.open()
        module = opened if isinstance(opened, hlo.HloModule) else opened.module
        assert module is not None
        yield from tuned_in(module)


def _kind(name: str) -> str:
    return name.rstrip("0123456789").rstrip(".")


def test_requests_of_fusions_are_those_that_a_device_saw() -> None:
    calls = timeline_of("serve").attribution(DEVICE).calls
    recorded: dict[str, set[int]] = {}
    for call in calls:
        if call.cause.kind == "tuning" and not call.is_free:
            recorded.setdefault(_kind(call.cause.name), set()).add(call.asked)
    modelled: dict[str, set[int]] = {}
    keys = count()
    for instruction in _tuned():
        asked = {size for _, size in requests_of(instruction, keys.__next__) if size}
        # Products that cuBLAS won were fusions of Triton's while they were tuned.
        kind = _kind(instruction.name).replace("custom-call", "gemm_fusion_dot")
        modelled.setdefault(kind, set()).update(asked)
    assert modelled.keys() == recorded.keys()
    for kind, sizes in modelled.items():
        assert max(sizes) == max(recorded[kind])
        assert sizes <= recorded[kind]


FUSION = """HloModule m, is_scheduled=true

%less (x: f32[], y: f32[]) -> pred[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %lt = pred[] compare(%x, %y), direction=LT
}

%body (p: f32[1024,1024]) -> f32[1024,1024] {
  %p = f32[1024,1024]{1,0} parameter(0)
  ROOT %made = f32[1024,1024]{1,0} OPCODE
}

ENTRY %main (a: f32[1024,1024]) -> f32[1024,1024] {
  %a = f32[1024,1024]{1,0} parameter(0)
  ROOT %NAME = f32[1024,1024]{1,0} fusion(%a), kind=kInput, calls=%body
}
"""


@pytest.mark.parametrize(
    ("name", "opcode", "is_tuned"),
    [
        ("input_transpose_fusion", "transpose(%p), dimensions={1,0}", True),
        ("loop_negate_fusion", "negate(%p)", False),
        ("input_reduce_fusion", "sort(%p), dimensions={1}, to_apply=%less", False),
    ],
)
def test_fusions_are_tuned_by_their_names_and_bodies(
    name: str, opcode: str, is_tuned: bool
) -> None:
    text = FUSION.replace("OPCODE", opcode).replace("NAME", name)
    found = tuned_in(hlo.parse(text))
    assert [(one.inputs, one.outputs, one.workspace) for one in found] == (
        [((4 * MIB,), (4 * MIB,), 0)] if is_tuned else []
    )
