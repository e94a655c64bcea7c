"""The collector comes back as it was, and leaves alone what was made without it."""

from __future__ import annotations

import gc

import pytest

from hlomem.base.gc_pause import collector_off


def test_it_is_off_meanwhile_and_on_again_after_an_error() -> None:
    with collector_off():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), collector_off():
        divmod(1, 0)
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off() -> None:
    with collector_off():
        with collector_off():
            pass
        assert not gc.isenabled()


def test_what_was_made_meanwhile_is_old() -> None:
    with collector_off():
        made: list[list[int]] = [[number] for number in range(10_000)]
    young = {id(each) for each in gc.get_objects(generation=0)}
    assert young.isdisjoint(map(id, made))
