"""Integers of arguments lie below the sizes of what they index."""

from __future__ import annotations

from typing import Any

import pytest

from tools.indexed import index_bounds
from tools.run_gpu_fits import random_arguments

jax: Any = pytest.importorskip("jax", reason="jax is not installed")
jnp: Any = jax.numpy
lax: Any = jax.lax


def _shape(*sides: int, dtype: str = "int32") -> Any:
    return jax.ShapeDtypeStruct(sides, dtype)


TABLE = _shape(24, 8, dtype="float32")


def _bounds(function: Any, *shapes: Any) -> list[int | None]:
    return index_bounds(jax.make_jaxpr(function)(*shapes).jaxpr)


def test_edges_of_a_graph_lie_below_its_nodes() -> None:
    def step(nodes: Any, edges: Any) -> Any:
        source, target = edges
        return jax.ops.segment_sum(nodes[source], target, nodes.shape[0])

    assert _bounds(jax.jit(jax.grad(lambda *x: step(*x).sum())), TABLE, _shape(2, 200))[1] == 24
    assert _bounds(step, TABLE, _shape(2, 200)) == [None, 24]


def test_the_least_counts_where_several_are_indexed() -> None:
    def both(table: Any, words: Any) -> Any:
        return table[words], jnp.zeros((7, 3))[words[1:]]

    assert _bounds(both, TABLE, _shape(9)) == [None, 7]


def test_coordinates_lie_below_their_own_sides() -> None:
    def points(image: Any, x: Any, y: Any) -> Any:
        return image[y, x]

    shapes = _shape(30, 50, 4, dtype="float32"), _shape(9), _shape(9)
    assert _bounds(points, *shapes) == [None, 50, 30]


def test_labels_lie_below_the_classes() -> None:
    def taken(scores: Any, labels: Any) -> Any:
        return jnp.take_along_axis(scores, labels[:, None], 1)

    assert _bounds(taken, TABLE, _shape(24)) == [None, 8]
    assert _bounds(lambda x: jax.nn.one_hot(x.reshape(-1), 11), _shape(4, 5, dtype="uint8")) == [11]


def test_indices_are_followed_into_loops_and_branches() -> None:
    def scanned(table: Any, words: Any) -> Any:
        return lax.scan(lambda sum_, word: (sum_ + table[word].sum(), None), 0.0, words)[0]

    def stepped(table: Any, word: Any) -> Any:
        def body(i: Any, sum_: Any) -> Any:
            return sum_ + lax.dynamic_slice(table, (word, i), (4, 1)).sum()

        return lax.fori_loop(0, 8, body, 0.0)

    def chosen(table: Any, word: Any, which: Any) -> Any:
        branches = [lambda t, i: t[i], lambda t, _: t[0], lambda t, _: t[1]]
        return lax.switch(which, branches, table, word)

    assert _bounds(scanned, TABLE, _shape(9)) == [None, 24]
    assert _bounds(stepped, TABLE, _shape()) == [None, 21]
    assert _bounds(jax.checkpoint(chosen), TABLE, _shape(), _shape()) == [None, 24, 3]


def test_what_indexes_nothing_has_no_bound() -> None:
    assert _bounds(lambda x, y: x * y + 1, _shape(3), _shape(3)) == [None, None]
    assert _bounds(lambda t, i: t[i * 2 % 5], TABLE, _shape(3)) == [None, None]
    whole = _bounds(lambda t, i: lax.dynamic_slice(t, (0, i), (1, 8)), TABLE, _shape())
    assert whole == [None, None]


def test_arguments_are_drawn_below_their_bounds() -> None:
    numpy = pytest.importorskip("numpy")
    shapes = [_shape(9000), _shape(9000), _shape(9000, dtype="int8"), _shape(9000, dtype="bool")]
    drawn = [numpy.asarray(x) for x in random_arguments(shapes, [2000, None, 500, None], jax)]
    assert [int(x.min()) for x in drawn] == [0, 0, 0, 0]
    assert 1900 < drawn[0].max() < 2000
    assert drawn[1].max() == 63
    assert drawn[2].max() == 126
    assert drawn[3].max()
