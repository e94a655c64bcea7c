"""The axes that an argument could be split along, by how the other arguments are split.

An axis that splits only data, as that of a batch does, leaves the model on every device by choice,
unless it splits a part of the model, too. An axis of the model leaves nothing whole by choice.
"""

from __future__ import annotations

from functools import cached_property
from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING

from hlomem.report.data import roles
from hlomem.report.data.sharding.subject import top_of
from hlomem.report.data.sharding.value_findings import idle_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.sharding import Axis
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.sharding.layouts import Layout
    from hlomem.report.data.sharding.subject import Subject

_LARGE = 0.05
_HUGE = 0.2
"""The shares of the memory from which on an array that no axis splits is told."""
_MOST = 0.5
_MATRIX = 2


class Peers:
    """The arguments of a program, and the axes that split them."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def axes_for(self, name: str, buffer: Buffer, layout: Layout) -> list[Axis]:
        """The free axes along which an argument is whole though others tell that it need not."""
        assert layout.sharding is not None
        is_data = self._subject.is_input(name, buffer)
        share = buffer.size / max(self._subject.space.size, 1)
        if layout.sharding.used and is_data:
            return [
                axis
                for axis in layout.sharding.free
                if self._is_like_one_of_its_sizes(name, layout, axis)
            ]
        is_chosen = not is_data and self._has_split_state(name, layout)
        if not layout.sharding.used and share >= _HUGE and not is_chosen:
            return list(layout.sharding.free)
        free = layout.sharding.free
        if not is_data:
            return [
                axis
                for axis in free
                if self._is_like_model(name, layout, axis)
                or self._is_like_what_it_meets(name, layout, axis)
                or self._is_state_of_split(buffer, axis)
                or (share >= _LARGE and axis in idle_axes(self._subject))
            ]
        model = [its for _, _, its in self._model] if share >= _LARGE else []
        return [
            axis
            for axis in free
            if self._is_like_data(layout, axis)
            or _share_split(model, axis) > 0
            or (share >= _LARGE and axis in idle_axes(self._subject))
        ]

    def _has_split_state(self, name: str, layout: Layout) -> bool:
        """Whether an optimizer splits its state of the same shape: weights are whole by choice."""
        return any(
            its.whole == layout.whole and its.sharding is not None and its.sharding.used
            for other, buffer, its in self._model
            if self._is_elsewhere(top_of(name), other, buffer)
        )

    def _is_like_data(self, layout: Layout, axis: Axis) -> bool:
        """Whether an axis splits a dimension of this size of other data."""
        return bool(_sizes_split([its for _, _, its in self._data], axis) & set(layout.whole))

    def _is_like_one_of_its_sizes(self, name: str, layout: Layout, axis: Axis) -> bool:
        """Whether an axis splits an array of these sizes that is split as this one is, but more."""
        return len(layout.whole) >= _MATRIX and any(
            its.whole == layout.whole
            and axis in _used(its)
            and all(
                set(some) <= set(more)
                for some, more in zip_longest(_rows(layout), _rows(its), fillvalue=())
            )
            for other, _, its in self._subject.arguments
            if other != name
        )

    def _is_like_model(self, name: str, layout: Layout, axis: Axis) -> bool:
        """Whether an axis splits the model; most of it, where another splits the argument.

        It is not held to the state of its own optimizer, what is only read not to what changes,
        such as a cache, and what is trained not to what is not, such as the model of adapters.
        """
        assert layout.sharding is not None
        tree = top_of(name)
        shapes = {its.whole for other, _, its in self._model if top_of(other) == tree}
        others = [
            (other, its)
            for other, its_buffer, its in self._model
            if _kind(its) != _kind(layout)
            and not (its.whole in shapes and self._is_elsewhere(tree, other, its_buffer))
        ]
        has_update = self._subject.has_update(name)
        if self._subject.is_trained or not has_update:
            others = [one for one in others if self._subject.has_update(one[0]) == has_update]
        share = _share_split([its for _, its in others], axis)
        return share >= _MOST if layout.sharding.used else share > 0

    def _is_state_of_split(self, buffer: Buffer, axis: Axis) -> bool:
        """Whether it is an optimizer's, as the statistics of Shampoo, of a model that is split."""
        subject = self._subject
        learned = [its for name, one, its in self._model if subject.is_learned(name, one)]
        return buffer.role == roles.OPTIMIZER and _share_split(learned, axis) >= _MOST

    def _is_like_what_it_meets(self, name: str, layout: Layout, axis: Axis) -> bool:
        """Whether an axis splits a dimension of a cache in other things that the program reads."""
        if self._subject.is_trained or not self._subject.has_update(name):
            return False
        every = [its for other, _, its in self._subject.arguments if other != name]
        return bool(_sizes_split(every, axis) & set(layout.whole))

    def _is_elsewhere(self, tree: str, name: str, buffer: Buffer) -> bool:
        """Whether an argument is in another tree, such as that of an optimizer."""
        return top_of(name) != tree or buffer.role == roles.OPTIMIZER

    @cached_property
    def _data(self) -> list[tuple[str, Buffer, Layout]]:
        return [one for one in self._subject.arguments if self._subject.is_input(one[0], one[1])]

    @cached_property
    def _model(self) -> list[tuple[str, Buffer, Layout]]:
        return [
            one for one in self._subject.arguments if not self._subject.is_input(one[0], one[1])
        ]


def _share_split(layouts: Sequence[Layout], axis: Axis) -> float:
    """The share of all elements that an axis splits."""
    sizes = [(prod(layout.whole), axis in _used(layout)) for layout in layouts]
    return sum(size for size, is_split in sizes if is_split) / max(sum(s for s, _ in sizes), 1)


def _kind(layout: Layout) -> tuple[list[int], frozenset[str]]:
    """A key that weights which lead to and fro share: their sizes, and the axes that split them."""
    return sorted(layout.whole), frozenset([axis.name for axis in _used(layout)])


def _sizes_split(layouts: Sequence[Layout], axis: Axis) -> set[int]:
    """The sizes of the dimensions that an axis splits."""
    return {
        size
        for layout in layouts
        for size, axes in zip(layout.whole, _rows(layout), strict=False)
        if axis in axes
    }


def _rows(layout: Layout) -> tuple[tuple[Axis, ...], ...]:
    return layout.sharding.dimensions if layout.sharding is not None else ()


def _used(layout: Layout) -> tuple[Axis, ...]:
    return layout.sharding.used if layout.sharding is not None else ()
