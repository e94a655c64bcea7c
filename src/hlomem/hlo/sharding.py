"""Shardings as data: which axes of a mesh split which dimension of an array.

In: the text of a sharding in a module, by names (`{mesh['data'=4], [{'data'}, {}]}`), as Shardy
hands it to XLA (`#sdy.sharding<@mesh, [{"data"}, {}]>`), or by devices (`{devices=[4,2]<=[8]}`).
Out: a `Sharding`; None where it says nothing about splitting (manual, unknown) or is damaged.
Mirrors `hlo/ir/hlo_sharding.cc`, `named_sharding.cc`, `mesh_and_axis.cc` and `tile_assignment.cc`.
Devices without names are told by the axes of a given mesh where they follow its order.
"""

from __future__ import annotations

import ast
from math import prod
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.patterns import lazy_pattern, repeated

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Sequence

_MESH = lazy_pattern(
    r"(?:mesh|#sdy\.mesh)?[<\[]{1,2}("
    + repeated(r"['\"][^'\"\n]{1,200}+['\"]=\d{1,9}+,? ?+")
    + r")\]"
)
_AXIS_SIZE = lazy_pattern(r"['\"]([^'\"\n]{1,200}+)['\"]=(\d{1,9})")
_DIMENSIONS = lazy_pattern(r"\[(" + repeated(r"\{[^{}\n]*+\}(?:p\d++)?,? ?+") + r")\]")
_BRACES = lazy_pattern(r"\{([^{}\n]*+)\}")
_AXIS = lazy_pattern(r"['\"]([^'\"\n]{1,200}+)['\"](?::\((\d{1,9})\)(\d{1,9}))?")
_NAMED_MESH = lazy_pattern(r"@(?:\"([^\"\n]++)\"|([\w.$-]++))")
_MESHES = lazy_pattern(
    r"(?:\"([^\"\n]++)\"|([\w.$-]++)) ?+= ?+#sdy\.mesh<(\[[^\]\n]*+\])"
    r"(?:, device_ids=\[[^\]]*+\])?>"
)
_TILES = lazy_pattern(r"devices=\[([\d,]++)\](?:<=\[([\d,]++)\](?:T\(([\d,]++)\))?|(\d[\d,]*+))")
_SUBGROUPS = lazy_pattern(r"last_tile_dims=\{([\w, ]*+)\}")
_MAX_DEVICES = 1 << 16
"""Devices up to which an order is compared with a mesh's."""


class Axis(Struct, frozen=True):
    """An axis of a mesh, or a part of one."""

    name: str
    size: int
    part: str = ""
    """`:(2)2` where only a part of the axis is meant."""


class Mesh(Struct, frozen=True):
    """The axes of a mesh in order; devices count along the last first."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        return prod([axis.size for axis in self.axes])

    def describe(self) -> str:
        """`data=4, model=2`"""
        return ", ".join([f"{axis.name}={axis.size}" for axis in self.axes])


class Sharding(Struct, frozen=True):
    """The axes that split each dimension of an array; dimensions beyond the last are whole."""

    mesh: Mesh
    dimensions: tuple[tuple[Axis, ...], ...] = ()

    def split_of(self, dimension: int) -> int:
        """The number of parts of a dimension."""
        if dimension >= len(self.dimensions):
            return 1
        return prod([axis.size for axis in self.dimensions[dimension]])

    def shard(self, dimensions: Sequence[int]) -> tuple[int, ...]:
        """The dimensions on one device, the last part filled up."""
        return tuple([-(-size // self.split_of(at)) for at, size in enumerate(dimensions)])

    @property
    def replication(self) -> int:
        """The number of devices that hold the same part."""
        split = prod([self.split_of(at) for at in range(len(self.dimensions))])
        return max(self.mesh.size // max(split, 1), 1)

    @property
    def used(self) -> tuple[Axis, ...]:
        return tuple([axis for axes in self.dimensions for axis in axes])

    @property
    def free(self) -> tuple[Axis, ...]:
        """The axes, of more than one device, that split no dimension."""
        taken = {axis.name for axis in self.used}
        return tuple([axis for axis in self.mesh.axes if axis.size > 1 and axis.name not in taken])

    def with_axis(self, dimension: int, axis: Axis) -> Sharding:
        """The same with one more axis on a dimension."""
        rank = max(len(self.dimensions), dimension + 1)
        rows = [self.dimensions[at] if at < len(self.dimensions) else () for at in range(rank)]
        rows[dimension] = (*rows[dimension], axis)
        return Sharding(self.mesh, tuple(rows))

    def with_moved(self, dimension: int, other: int) -> Sharding:
        """The same with the axes of one dimension on another."""
        rank = max(len(self.dimensions), other + 1)
        rows = [self.dimensions[at] if at < len(self.dimensions) else () for at in range(rank)]
        rows[dimension], rows[other] = rows[other], rows[dimension]
        return Sharding(self.mesh, tuple(rows))

    def spec(self) -> str:
        """As JAX writes it: `P('data', None)`; without `None`s at the end."""
        words = [_spec_of(axes) for axes in self.dimensions]
        while words and words[-1] == "None":
            words.pop()
        return f"P({', '.join(words)})"


def _spec_of(axes: tuple[Axis, ...]) -> str:
    names = [f"'{axis.name}{axis.part}'" for axis in axes]
    if not names:
        return "None"
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def parse_spec(text: str, mesh: Mesh) -> Sharding | None:
    """A sharding of its text, `P('data', None)`; None if it names other axes, or none."""
    try:
        rows = ast.literal_eval(f"[{text.removeprefix('P(').removesuffix(')')}]")
    except (ValueError, SyntaxError):
        return None
    of_name = {axis.name: axis for axis in mesh.axes}
    names = [() if row is None else (row,) if isinstance(row, str) else tuple(row) for row in rows]
    if any(name not in of_name for row in names for name in row):
        return None
    return Sharding(mesh, tuple([tuple([of_name[name] for name in row]) for row in names]))


def parts_of(spec: str, mesh: Mesh) -> int:
    """The parts that a spec splits an array into."""
    sharding = parse_spec(spec, mesh)
    return 1 if sharding is None else prod(axis.size for axis in sharding.used)


def bare_spec(text: str) -> str:
    """The parts of a spec, `'data', None`, without dimensions at its end that are not split."""
    parts = text.removeprefix("P(").removesuffix(")").rstrip(", ")
    while parts.endswith("None"):
        parts = parts.removesuffix("None").rstrip(", ")
    return parts


def replicated(mesh: Mesh) -> Sharding:
    return Sharding(mesh)


def split_tuple(text: str) -> list[str]:
    """The shardings of a tuple's parts, or the one of an array."""
    inner = text.strip()
    if not inner.startswith("{{"):
        return [inner]
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(inner):
        if letter == "{":
            depth += 1
            start = at if depth == 2 else start
        elif letter == "}":
            depth -= 1
            if depth == 1:
                parts.append(inner[start : at + 1])
    return parts


def parse_meshes(text: str) -> dict[str, Mesh]:
    """The meshes of a module by name, as its attribute `xla.sdy.meshes` has them."""
    found = {}
    for quoted, plain, axes in _MESHES.findall(text.replace('\\"', '"')):
        mesh = _read_mesh(f"mesh{axes}")
        if mesh is not None:
            found[quoted or plain] = mesh
    return found


def parse_sharding(
    text: str, rank: int, mesh: Mesh | None = None, meshes: dict[str, Mesh] | None = None
) -> Sharding | None:
    """The sharding of one array; `mesh` names devices, `meshes` are those of the module."""
    text = text.replace('\\"', '"')
    if "devices=[" in text and "mesh[" not in text:
        return _by_devices(text, rank, mesh)
    if "manual" in text.partition("]")[2] or "{manual" in text or "unknown" in text:
        return None
    found = _mesh_of(text, meshes or {}) or mesh
    if found is None:
        return None
    dimensions = _DIMENSIONS.search(text, text.find("]") + 1 if "mesh[" in text else 0)
    if dimensions is None:
        return replicated(found) if "replicated" in text else None
    sizes = {axis.name: axis.size for axis in found.axes}
    rows = [tuple(_axes(inside, sizes)) for inside in _BRACES.findall(dimensions[1])]
    return Sharding(found, tuple(rows))


def _mesh_of(text: str, meshes: dict[str, Mesh]) -> Mesh | None:
    if named := _NAMED_MESH.search(text):
        return meshes.get(named[1] or named[2])
    return _read_mesh(text[text.find("mesh") :]) if "mesh" in text else None


def _read_mesh(text: str) -> Mesh | None:
    match = _MESH.match(text)
    if match is None:
        return None
    return Mesh(tuple([Axis(name, int(size)) for name, size in _AXIS_SIZE.findall(match[1])]))


def _axes(inside: str, sizes: dict[str, int]) -> Iterator[Axis]:
    for name, before, size in _AXIS.findall(inside):
        if size:
            yield Axis(name, int(size), f":({before}){size}")
        elif name in sizes:
            yield Axis(name, sizes[name])


def _by_devices(text: str, rank: int, mesh: Mesh | None) -> Sharding | None:
    match = _TILES.search(text)
    if match is None:
        return None
    tiles = _numbers(match[1])
    devices = _device_order(tiles, match)
    subgroups = _SUBGROUPS.search(text)
    if (subgroups and "manual" in subgroups[1]) or len(tiles) < rank or devices is None:
        return None
    strides = [prod(tiles[at + 1 :]) for at in range(rank)]
    place = [0] * len(devices)
    for position, device in enumerate(devices):
        if device >= len(place):
            return None
        place[device] = position
    if mesh is None or mesh.size != len(devices):
        mesh = _unnamed(tiles[:rank], len(devices))
    rows = []
    for at in range(rank):
        tile_of = [position // strides[at] % tiles[at] for position in place]
        axes = _axes_of(tile_of, tiles[at], mesh)
        rows.append(axes if axes is not None else (Axis(f"{tiles[at]} parts", tiles[at]),))
    return Sharding(mesh, tuple(rows))


def mesh_of_devices(texts: Iterable[str]) -> Mesh | None:
    """A mesh without names that explains lists of devices: the one of most axes that they tell."""
    best: list[int] = []
    for text in texts:
        match = _TILES.search(text)
        if match is None or not match[2]:
            continue
        sizes = _numbers(match[2])
        if len(sizes) == 1:
            sizes = _numbers(match[1])
        sizes = [size for size in sizes if size > 1]
        best = max(best, sizes, key=len)
    return Mesh(tuple([Axis(f"axis {at}", size) for at, size in enumerate(best)])) if best else None


def _unnamed(tiles: Sequence[int], count: int) -> Mesh:
    """A mesh with an axis for each dimension that is split, and one for the rest."""
    axes = [Axis(f"axis {at}", size) for at, size in enumerate(tiles) if size > 1]
    rest = count // max(prod(tiles), 1)
    return Mesh((*axes, Axis("others", rest)) if rest > 1 else tuple(axes))


def _axes_of(tile_of: list[int], count: int, mesh: Mesh) -> tuple[Axis, ...] | None:
    """The axes by which devices differ in a tile's number; None where no axes tell it."""
    stride, found = mesh.size, []
    for axis in mesh.axes:
        stride //= axis.size
        if axis.size > 1 and tile_of[stride] != tile_of[0]:
            found.append((tile_of[stride] - tile_of[0], axis))
    found.sort(key=lambda step: -step[0])
    axes = tuple([axis for _, axis in found])
    return axes if prod([axis.size for axis in axes]) == count else None


def _device_order(tiles: Sequence[int], match: re.Match[str]) -> list[int] | None:
    groups = match.groups()
    count = prod(tiles)
    if not 0 < count <= _MAX_DEVICES:
        return None
    if groups[3]:
        devices = _numbers(groups[3])
        return devices if len(devices) == count else None
    reshape = _numbers(groups[1])
    if prod(reshape) != count:
        return None
    order = _numbers(groups[2]) if groups[2] else list(range(len(reshape)))
    if sorted(order) != list(range(len(reshape))):
        return None
    return _transposed(reshape, order)


def _transposed(sizes: Sequence[int], order: Sequence[int]) -> list[int]:
    """The numbers from 0 in an array of these sizes, read with its dimensions in another order."""
    strides = [prod(sizes[at + 1 :]) for at in range(len(sizes))]
    numbers = [0]
    for at in order:
        numbers = [one + step * strides[at] for one in numbers for step in range(sizes[at])]
    return numbers


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word and len(word) < 10]


_GROUPS = lazy_pattern(r"\[(\d{1,9}),(\d{1,9})\]<=\[([\d,]++)\](?:T\(([\d,]++)\))?")
_LISTED = lazy_pattern(r"\{\{([\d,]++)\}")
_OF_MESH = lazy_pattern(r"mesh\[([^\]\n]*+)\][^{\n]*+\{([^}\n]*+)\}")


def group_axes(text: str, mesh: Mesh) -> tuple[Axis, ...] | None:
    """The axes along which the devices of a group differ; None where no axes tell it."""
    first = _first_group(text)
    if not first or max(first) >= mesh.size:
        return None
    found, stride = [], mesh.size
    for axis in mesh.axes:
        stride //= axis.size
        places = {device // stride % axis.size for device in first}
        if len(places) == axis.size > 1:
            found.append(axis)
        elif len(places) > 1:
            found.append(Axis(axis.name, len(places), f" in part ({len(places)})"))
    return tuple(found) if prod([axis.size for axis in found]) == len(first) else None


def _first_group(text: str) -> list[int]:
    if match := _LISTED.match(text):
        return _numbers(match[1])
    if match := _GROUPS.match(text):
        sizes = _numbers(match[3])
        order = _numbers(match[4]) if match[4] else list(range(len(sizes)))
        is_valid = sorted(order) == list(range(len(sizes))) and 0 < prod(sizes) <= _MAX_DEVICES
        return _transposed(sizes, order)[: int(match[2])] if is_valid else []
    if match := _OF_MESH.match(text):
        return _group_of_mesh(match[1], match[2])
    return []


def _group_of_mesh(mesh: str, axes: str) -> list[int]:
    devices, sizes = [0], [(name, int(size)) for name, size in _AXIS_SIZE.findall(mesh)]
    if not 0 < prod([size for _, size in sizes]) <= _MAX_DEVICES:
        return []
    for name, before, size in _AXIS.findall(axes):
        known = [at for at, axis in enumerate(sizes) if axis[0] == name]
        if not known:
            return []
        stride = prod([one for _, one in sizes[known[0] + 1 :]])
        whole = sizes[known[0]][1]
        if size:
            stride, whole = stride * (whole // max(int(before) * int(size), 1)), int(size)
        devices = [one + step * stride for one in devices for step in range(whole)]
    return devices
