"""`std::sort` of LLVM's C++ library, whose order of equal elements is part of libtpu's answers.

Follows `__introsort` of `libcxx/include/__algorithm/sort.h`; the heap sort it falls back to is left
out, as no list of computations needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    Item = TypeVar("Item")
    Less = Callable[[Item, Item], bool]

_SHORT = 24  # shorter lists are sorted by insertion
_LONG = 128  # longer ones get a pivot from nine elements
_TINY = 5
_MAY_MOVE = 8  # elements an attempt at insertion may move before it gives up


def introsort(items: list[Item], less: Less[Item]) -> None:
    """Sort a list in place."""
    _Sorter(items, less).sort(0, len(items), is_leftmost=True)


class _Sorter:
    def __init__(self, items: list[Item], less: Less[Item]) -> None:
        self._items = items
        self._less = less

    def sort(self, first: int, last: int, *, is_leftmost: bool) -> None:
        """Sort a part of the list."""
        items, less = self._items, self._less
        while last - first >= _SHORT:
            self._choose_pivot(first, last)
            if not is_leftmost and not less(items[first - 1], items[first]):
                first = self._partition_equals_left(first, last)
                continue
            pivot, was_partitioned = self._partition_equals_right(first, last)
            if was_partitioned:
                is_left_sorted = self._try_insertion(first, pivot)
                if self._try_insertion(pivot + 1, last):
                    if is_left_sorted:
                        return
                    last = pivot
                    continue
                if is_left_sorted:
                    first = pivot + 1
                    continue
            self.sort(first, pivot, is_leftmost=is_leftmost)
            is_leftmost = False
            first = pivot + 1
        if last - first <= _TINY:
            self._sort_tiny(first, last)
        else:
            self._insert_all(first, first + 1, last)

    def _swap(self, i: int, j: int) -> None:
        items = self._items
        items[i], items[j] = items[j], items[i]

    def _choose_pivot(self, first: int, last: int) -> None:
        middle = first + (last - first) // 2
        if last - first <= _LONG:
            self._sort3(middle, first, last - 1)
            return
        self._sort3(first, middle, last - 1)
        self._sort3(first + 1, middle - 1, last - 2)
        self._sort3(first + 2, middle + 1, last - 3)
        self._sort3(middle - 1, middle, middle + 1)
        self._swap(first, middle)

    def _sort3(self, x: int, y: int, z: int) -> None:
        items, less = self._items, self._less
        if not less(items[y], items[x]):
            if less(items[z], items[y]):
                self._swap(y, z)
                if less(items[y], items[x]):
                    self._swap(x, y)
        elif less(items[z], items[y]):
            self._swap(x, z)
        else:
            self._swap(x, y)
            if less(items[z], items[y]):
                self._swap(y, z)

    def _sort_tiny(self, first: int, last: int) -> None:
        """Up to five elements: the first three, then the others one by one."""
        items, less = self._items, self._less
        if last - first == 2 and less(items[first + 1], items[first]):
            self._swap(first, first + 1)
        elif last - first > 2:
            self._sort3(first, first + 1, first + 2)
            self._insert_all(first, first + 3, last)

    def _insert_all(self, first: int, begin: int, last: int) -> None:
        for i in range(begin, last):
            self._insert(first, i)

    def _insert(self, first: int, i: int) -> bool:
        """Move an element to its place among those before it; whether it had to move."""
        items, less = self._items, self._less
        item = items[i]
        j = i
        while j > first and less(item, items[j - 1]):
            items[j] = items[j - 1]
            j -= 1
        items[j] = item
        return j != i

    def _try_insertion(self, first: int, last: int) -> bool:
        """Sort by insertion unless too many move; whether the part is sorted."""
        if last - first <= _TINY:
            self._sort_tiny(first, last)
            return True
        self._sort3(first, first + 1, first + 2)
        moved = 0
        for i in range(first + 3, last):
            moved += self._insert(first, i)
            if moved == _MAY_MOVE:
                return i + 1 == last
        return True

    def _partition_equals_right(self, begin: int, end: int) -> tuple[int, bool]:
        """Smaller ones before the pivot, all others behind; where it is, and if nothing moved."""
        items, less = self._items, self._less
        pivot = items[begin]
        first = begin + 1
        while less(items[first], pivot):
            first += 1
        last = end - 1
        while (first <= last or first > begin + 1) and not less(items[last], pivot):
            last -= 1
        was_partitioned = first >= last
        while first < last:
            self._swap(first, last)
            first += 1
            while less(items[first], pivot):
                first += 1
            last -= 1
            while not less(items[last], pivot):
                last -= 1
        items[begin] = items[first - 1]
        items[first - 1] = pivot
        return first - 1, was_partitioned

    def _partition_equals_left(self, begin: int, end: int) -> int:
        """All but larger ones before the pivot; where the larger ones begin."""
        items, less = self._items, self._less
        pivot = items[begin]
        first = begin + 1
        while first < end and not less(pivot, items[first]):
            first += 1
        last = end
        if first < last:
            last -= 1
            while less(pivot, items[last]):
                last -= 1
        while first < last:
            self._swap(first, last)
            first += 1
            while not less(pivot, items[first]):
                first += 1
            last -= 1
            while less(pivot, items[last]):
                last -= 1
        items[begin] = items[first - 1]
        items[first - 1] = pivot
        return first
