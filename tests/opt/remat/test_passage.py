"""Bytes on their way through a computation: cuts that are known tell the same as new ones."""

from __future__ import annotations

from functools import partial
from operator import lt
from pathlib import Path

import pytest

from hlomem.opt.orders.flow import flows_of
from hlomem.opt.remat.passage import Passage
from tests.opt.remat.scanned import SCANNED, scanned_stages


@pytest.mark.parametrize("path", SCANNED)
def test_a_number_that_counts_is_the_least_whatever_cuts_are_known(path: Path) -> None:
    builder = flows_of(scanned_stages(path))
    peaks = builder.peaks()
    for computation in builder.computations():
        flow = builder.build(computation, peaks)
        known, most = Passage(flow, frozenset()), 0
        for node, values in enumerate(flow.made_by):
            there = {flow.values[value].buffer for value in values}
            later = 1 << node
            least = Passage(flow, frozenset()).least(there, later)
            told = known.least(there, later, partial(lt, most))
            assert told == least if told > most else least <= told
            most = max(most, told)
