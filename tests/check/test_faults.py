"""Faults in real plans: every harmful one is found, the right pair named, no other alarm."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.backends import Backend, find_backend
from hlomem.check.verify import verify
from tests.check.faults import KINDS, Injector, judge
from tests.conftest import GOLDENS

DUMPS = sorted((GOLDENS / "xla").glob("*/*/*"))
SAMPLE = 3
"""Every dump gets each third kind, another third than its neighbours: some 1,500 faults."""


def backend_of(path: Path) -> Backend:
    """The backend a golden is of: its folders are `jaxlib-0.7.2/cpu`, `libtpu-0.0.2/tpu-v5p`."""
    name, _, chip = path.parent.name.partition("-")
    version = path.parent.parent.name.partition("-")[2]
    return find_backend(name, chip, tuple(map(int, version.split("."))))


def test_there_are_at_least_fifteen_kinds() -> None:
    assert len(KINDS) >= 15


@pytest.mark.parametrize("number", range(len(DUMPS)), ids=lambda n: "/".join(DUMPS[n].parts[-3:]))
def test_every_harmful_fault_is_found_and_no_other(number: int) -> None:
    path = DUMPS[number]
    dump, backend = hlomem.load(path), backend_of(path)
    module = hlo.parse((path / "module.hlo").read_text())
    assert verify(dump, backend=backend).is_clean
    injector = Injector(dump, module, backend, seed=7)
    named = Counter[bool]()
    for kind, maker in list(KINDS.items())[number % SAMPLE :: SAMPLE]:
        fault = injector.make(kind, maker)
        if fault is None:
            continue
        label = judge(dump, fault)
        for known in (None, module):
            verdict = verify(fault.dump, module=known, backend=backend)
            where = f"{kind}: {[str(each) for each in verdict.findings]}"
            if label.harmful is not None and (known is not None or not fault.by_module):
                assert bool(verdict.findings) is label.harmful, where
        if label.pairs:
            pairs = {frozenset(each.id for each in found.values) for found in verdict.findings}
            named[bool(pairs & label.pairs)] += 1
    assert named[False] <= named[True] / 99
