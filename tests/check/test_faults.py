"""Faults in real plans: every harmful one is found, the right pair named, no other alarm."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import hlomem
from hlomem.backends import Backend, find_backend
from hlomem.check.verify import verify
from tests.check.faults import KINDS, Injector, judge
from tests.conftest import GOLDENS

DUMPS = sorted((GOLDENS / "xla").glob("*/*/*"))
ROUNDS = 1


def backend_of(path: Path) -> Backend:
    """The backend a golden is of: its folders are `jaxlib-0.7.2/cpu`, `libtpu-0.0.2/tpu-v5p`."""
    name, _, chip = path.parent.name.partition("-")
    return find_backend(name, chip, path.parent.parent.name.removeprefix("jaxlib-"))


def test_there_are_at_least_fifteen_kinds() -> None:
    assert len(KINDS) >= 15


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: "/".join(path.parts[-3:]))
def test_every_harmful_fault_is_found_and_no_other(path: Path) -> None:
    dump, backend = hlomem.load(path), backend_of(path)
    assert verify(dump, backend=backend).is_clean
    named = Counter[bool]()
    for number, fault in enumerate(Injector(dump, backend, seed=7).faults(ROUNDS)):
        label = judge(dump, fault)
        verdict = verify(fault.dump, backend=backend)
        where = f"{fault.kind} (fault {number}): {[str(each) for each in verdict.findings]}"
        if label.harmful is not None:
            assert bool(verdict.findings) is label.harmful, where
        if label.pairs:
            pairs = {frozenset(each.id for each in found.values) for found in verdict.findings}
            named[bool(pairs & label.pairs)] += 1
    assert named[False] <= named[True] / 99
