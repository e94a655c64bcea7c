"""Users as memory-space assignment leaves them."""

from __future__ import annotations

from tests.history.instructions.test_tpu import MODULE
from tests.history.orders import users


def test_who_reads_the_copy_leaves_its_place_to_the_copy() -> None:
    # Once `b, c, result` read it; `copy-start` came last, and took the place of `b`.
    assert users("tpu", MODULE)["a"] == ["copy-start", "c", "result"]


def test_the_last_part_takes_the_place_of_a_dropped_one() -> None:
    assert users("tpu", MODULE)["fusion"] == ["part.0", "part.3", "part.2"]
