"""Computations sorted by what they contain, as libtpu numbered values until January 2025.

Mirrors `SortComputationsByContent` of `hlo/ir/hlo_module.cc` as it was then (by size, then by the
text's fingerprint) and `HloPrintOptions::ModuleFingerprint`: numbers for names, callees inlined,
no metadata.
"""

from __future__ import annotations

import re
import struct
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from hlomem.hlo.opcodes import CALL_ATTRIBUTE_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction

    Item = TypeVar("Item")
    Less = Callable[[Item, Item], bool]


_LEFT_OUT = frozenset({"backend_config", "control-predecessors", "metadata"})
_LISTS = frozenset({"branch_computations", "called_computations"})
_NAME = re.compile(r"[^{},% ]+")
_SCALAR_SPACE = re.compile(r"S\(6\)")
_ANY_SPACE = re.compile(r"S\([0-9]+\)")


def sorted_by_content(call_graph: CallGraph) -> list[HloComputation]:
    """The computations of a module, small ones first."""
    size_of = {
        computation: _instruction_count(computation, call_graph)
        for computation in call_graph.module.computations
    }

    @cache
    def fingerprint(computation: HloComputation) -> int:
        return fingerprint64(_content(computation, call_graph, "").encode())

    def is_before(one: HloComputation, other: HloComputation) -> bool:
        if size_of[one] != size_of[other] or one is other:
            return size_of[one] < size_of[other]
        return fingerprint(one) < fingerprint(other)

    order = list(call_graph.module.computations)
    introsort(order, is_before)
    return order


def _instruction_count(computation: HloComputation, call_graph: CallGraph) -> int:
    if call_graph.is_fused(computation):
        return call_graph.bodies[computation].instruction_count
    return len(computation.instructions)


def _content(computation: HloComputation, call_graph: CallGraph, indent: str) -> str:
    """A computation as it is printed for its fingerprint."""
    number_of: dict[HloInstruction, int] = {}
    spaces = _ANY_SPACE if call_graph.is_fused(computation) else _SCALAR_SPACE
    lines = [f"{indent}{{\n"]
    for instruction in call_graph.post_order(computation):
        number_of.setdefault(instruction, len(number_of))
        is_root = "ROOT " if instruction.is_root else ""
        attributes = _attributes(instruction, call_graph, indent + "  ")
        lines.append(
            f"{indent}  {is_root}tmp_{number_of[instruction]} = {_shape(instruction, spaces)} "
            f"{instruction.opcode}({_operands(instruction, number_of)}){attributes}\n"
        )
    lines.append(f"{indent}}}")
    return "".join(lines)


def _shape(instruction: HloInstruction, spaces: re.Pattern[str]) -> str:
    """The shape less the memory spaces that were only written into it once buffers were assigned.

    Scalars get one of their own then, except by copies, and the insides of fusions any.
    """
    text = instruction.shape.text
    if "S(" not in text or (instruction.opcode == "copy" and spaces is _SCALAR_SPACE):
        return text
    return spaces.sub("", text).replace("{:}", "")


def _operands(instruction: HloInstruction, number_of: dict[HloInstruction, int]) -> str:
    if instruction.opcode == "constant":
        return _essence(instruction)
    if not instruction.operands:
        return instruction.payload
    return ", ".join([f"tmp_{number_of[operand]}" for operand in instruction.operands])


def _essence(constant: HloInstruction) -> str:
    """The part of a constant that is printed: integers, and otherwise only zeros and ones."""
    numbers = set(_NUMBER.findall(constant.payload))
    for digit, spellings in _ZERO_AND_ONE.items():
        if numbers and numbers <= spellings:
            return digit
    return constant.payload if constant.shape.element_type.text[0] in "su" else "{...}"


_NUMBER = re.compile(r"[^\s{},()]+")
_ZERO_AND_ONE = {"0": {"0", "-0", "false"}, "1": {"1", "true"}}


def _attributes(instruction: HloInstruction, call_graph: CallGraph, indent: str) -> str:
    parts = []
    for name, value in instruction.attributes.items():
        if name in _LEFT_OUT:
            continue
        if name not in CALL_ATTRIBUTE_NAMES:
            parts.append(f", {name}={value}")
            continue
        by_name = call_graph.module.computation_by_name
        called = [_content(by_name[callee], call_graph, indent) for callee in _NAME.findall(value)]
        shown = "calls" if instruction.opcode == "reduce-scatter" else name
        if name in _LISTS:
            parts.append(f", {shown}={{\n" + ",\n".join(called) + "\n}")
        else:
            parts.append(f", {shown}=\n" + ", ".join(called))
    return "".join(parts)


# FarmHash's `Fingerprint64` (google/farmhash, `farmhashna::Hash64`), of more than 64 bytes.


_MASK = (1 << 64) - 1
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_SEED = 81
_BLOCK = 64
_WORDS = struct.Struct("<8Q")


def fingerprint64(data: bytes) -> int:
    """The fingerprint of more than 64 bytes."""
    assert len(data) > _BLOCK
    x = (_SEED * _K2 + int.from_bytes(data[:8], "little")) & _MASK
    y = (_SEED * _K1 + 113) & _MASK
    z = (_shift_mix((y * _K2 + 113) & _MASK) * _K2) & _MASK
    v = w = (0, 0)
    end = (len(data) - 1) // _BLOCK * _BLOCK
    for start in range(0, end, _BLOCK):
        x, y, z, v, w = _mix(_WORDS.unpack_from(data, start), x, y, z, v, w, _K1, 1)
    multiplier = (_K1 + ((z & 0xFF) << 1)) & _MASK
    first = (w[0] + ((len(data) - 1) & (_BLOCK - 1))) & _MASK
    v = ((v[0] + first) & _MASK, v[1])
    w = ((first + v[0]) & _MASK, w[1])
    last = _WORDS.unpack_from(data, len(data) - _BLOCK)
    x, y, z, v, w = _mix(last, x, y, z, v, w, multiplier, 9)
    return _hash_pair(
        (_hash_pair(v[0], w[0], multiplier) + _shift_mix(y) * _K0 + z) & _MASK,
        (_hash_pair(v[1], w[1], multiplier) + x) & _MASK,
        multiplier,
    )


_Pair = tuple[int, int]


def _mix(
    words: tuple[int, ...], x: int, y: int, z: int, v: _Pair, w: _Pair, multiplier: int, weight: int
) -> tuple[int, int, int, _Pair, _Pair]:
    """One round over 64 bytes; x and z change places in it."""
    x = _rotate(x + y + v[0] + words[1], 37) * multiplier & _MASK
    y = _rotate(y + v[1] + words[6], 42) * multiplier & _MASK
    x ^= w[1] * weight & _MASK
    y = (y + v[0] * weight + words[5]) & _MASK
    z = _rotate(z + w[0], 33) * multiplier & _MASK
    v = _weak_hash(words[:4], v[1] * multiplier, x + w[0])
    w = _weak_hash(words[4:], z + w[1], y + words[2])
    return z, y, x, v, w


def _weak_hash(words: tuple[int, ...], a: int, b: int) -> _Pair:
    a += words[0]
    b = _rotate(b + a + words[3], 21)
    c = a
    a += words[1] + words[2]
    b += _rotate(a, 44)
    return (a + words[3]) & _MASK, (b + c) & _MASK


def _hash_pair(u: int, v: int, multiplier: int) -> int:
    a = (u ^ v) * multiplier & _MASK
    a ^= a >> 47
    b = (v ^ a) * multiplier & _MASK
    b ^= b >> 47
    return b * multiplier & _MASK


def _shift_mix(value: int) -> int:
    return value ^ (value >> 47)


def _rotate(value: int, count: int) -> int:
    value &= _MASK
    return ((value >> count) | (value << (64 - count))) & _MASK


# `std::sort` of LLVM's C++ library (`__introsort` of `libcxx/include/__algorithm/sort.h`), whose
# order of equal elements is part of libtpu's answers; no list here needs its heap sort.


_SHORT = 24  # shorter lists are sorted by insertion
_LONG = 128  # longer ones get a pivot from nine elements
_TINY = 5
_MAY_MOVE = 8  # elements an attempt at insertion may move before it gives up


def introsort(items: list[Item], less: Less[Item]) -> None:
    _Sorter(items, less).sort(0, len(items), is_leftmost=True)


class _Sorter:
    def __init__(self, items: list[Item], less: Less[Item]) -> None:
        self._items = items
        self._less = less

    def sort(self, first: int, last: int, *, is_leftmost: bool) -> None:
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
        """Insert an element among the sorted ones before it; whether it had to move."""
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
        """Smaller ones before the pivot, all others after; its index, and if nothing moved."""
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
