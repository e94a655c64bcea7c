"""Shardings and groups of devices, in the three forms XLA reads.

In: tokens, at a value. Out: the text XLA prints for it. Lists of devices are `[2,2]0,1,2,3`, or an
order of all (`[2,2]<=[4]`), or axes of a mesh. Mirrors `ParseSharding`, `ParseSingleSharding`,
`ParseMesh` and `ParseCollectiveDeviceListBase` of `hlo/parser/hlo_parser.cc`, and the printers and
normal forms of `hlo/ir/hlo_sharding.cc`, `tile_assignment.cc`, `named_sharding.cc` and
`mesh_and_axis.cc`. Not brought into normal form: subgroups of several types, which XLA merges and
sorts.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.hlo.text.freeform.origins import read_metadata_list
from hlomem.hlo.text.freeform.tokens import Tokens
from hlomem.hlo.text.freeform.values import Value, braced, one_of, read_integer_lists
from hlomem.hlo.text.strings import indexed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_REDUCTION = "sdy::reduction_op"
_OPERATIONS = ("sum", "max", "min")
_SUBGROUPS = ("maximal", "replicated", "manual", "unreduced")
_WHOLE = ("replicated", "manual", "unknown", "unreduced")
_MARKS = ("last_tile_dim_replicate", "shard_as", "shard_like")
_FORMS = "`{replicated}`, `{maximal device=0}` and `{devices=[2,1]<=[2]}` are shardings"
_DEVICE_IDS = "device_ids="
_ONE_DEVICE = ("single_device", "maximal_mesh")
"""The word for a mesh of one device, and the word of releases before jaxlib 0.12."""
_MAX_DEVICES = 2**40
"""More than any machine has: a product is counted no further."""


class _Tiles(NamedTuple):
    """An assignment of devices to tiles (`TileAssignment`)."""

    dimensions: list[int]
    devices: list[int]
    """Each by its number; empty where an order says it."""
    reshape: list[int]
    transpose: list[int]

    def format(self) -> str:
        """As `TileAssignment::Print` writes it, without `devices=`."""
        shape = f"[{_joined(self.dimensions)}]"
        if not self.reshape:
            return shape + _joined(self.devices)
        return f"{shape}<={_format_iota(self.reshape, self.transpose)}"


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _format_iota(reshape: Sequence[int], transpose: Sequence[int]) -> str:
    text = f"[{_joined(reshape)}]"
    return text if len(reshape) == 1 else f"{text}T({_joined(transpose)})"


def read_replica_groups(tokens: Tokens) -> Value:
    """`{{0,1},{2,3}}`, `[2,2]<=[4]` or `mesh['x'=4] {'x'}`."""
    if tokens.kind == "{":
        return read_integer_lists(tokens)
    if tokens.kind == "word" and tokens.value in ("mesh", *_ONE_DEVICE):
        mesh, axes = _read_mesh(tokens)
        return Value(f"{mesh} {_read_axes(tokens, axes)}")
    start = tokens.start
    tiles = _read_tiles(tokens, may_list=False)
    if len(tiles.dimensions) != 2:
        tokens.fail("expected groups such as `[2,4]<=[8]`", start=start)
    _check_order(tokens, tiles, start)
    return Value(tiles.format())


def _check_order(tokens: Tokens, tiles: _Tiles, start: int) -> None:
    if _count(tiles.dimensions) != _count(tiles.reshape):
        tokens.fail("the order is not of as many devices as there are tiles", start=start)


def _count(sizes: Sequence[int]) -> int:
    """A product, of valid sizes."""
    return prod(sizes) if all(0 <= size < _MAX_DEVICES for size in sizes[:64]) else -1


def _read_tiles(tokens: Tokens, *, may_list: bool = True) -> _Tiles:
    """`[2,2]0,1,2,3` or `[2,2]<=[4]` (`ParseTileAssignment`)."""
    dimensions = tokens.listed(Tokens.expect_integer, "[]")
    if tokens.eat("<="):
        return _Tiles(dimensions, [], *_read_iota(tokens))
    if not may_list:
        tokens.fail("expected `<=` after the number of groups and of devices in each")
    return _Tiles(dimensions, _read_integers(tokens), [], [])


def _read_integers(tokens: Tokens) -> list[int]:
    numbers = [tokens.expect_integer()]
    while tokens.eat(","):
        numbers.append(tokens.expect_integer())
    return numbers


def _read_iota(tokens: Tokens) -> tuple[list[int], list[int]]:
    """`[4]` or `[2,2]T(1,0)`, in normal form (`ParseIotaTileAssignmentArray`)."""
    start, reshape = tokens.start, tokens.listed(Tokens.expect_integer, "[]")
    if len(reshape) == 1:
        return reshape, [0]
    one_of("T")(tokens)
    transpose = tokens.listed(Tokens.expect_integer, "()")
    if sorted(transpose) != list(range(len(reshape))):
        tokens.fail("`T(…)` does not order the dimensions", start=start)
    return _merged(reshape, transpose)


def _merged(reshape: list[int], transpose: list[int]) -> tuple[list[int], list[int]]:
    """Without dimensions of 1, those that stay together as one (`CanonicalizeIotaDims`)."""
    runs: list[list[int]] = []
    kept = [at for at in range(len(reshape)) if reshape[at] != 1]
    number_of = {at: number for number, at in enumerate(kept)}
    for at in [number_of[axis] for axis in transpose if axis in number_of]:
        if runs and runs[-1][-1] + 1 == at:
            runs[-1].append(at)
        else:
            runs.append([at])
    order = sorted(runs)
    new_of = {run[0]: number for number, run in enumerate(order)}
    sizes = [prod(reshape[kept[at]] for at in run) for run in order]
    return sizes or [1], [new_of[run[0]] for run in runs] or [0]


def read_sharding(tokens: Tokens) -> Value:
    """`{replicated}`, or `{{replicated}, {devices=[2]0,1}}` of the arrays of a tuple."""
    if tokens.peek() not in ("{", "}"):
        return Value(_read_single(tokens))
    parts = tokens.listed(_read_single)
    return Value(tuple_sharding(parts), parts)


def tuple_sharding(parts: Iterable[str]) -> str:
    """Shardings of the arrays of a tuple, as `HloSharding::Print` writes them."""
    return f"{{{indexed(parts)}}}"


class _Parts(Struct):
    """The parts of one sharding."""

    words: set[str] = set()
    devices: list[int] = []
    tiles: _Tiles | None = None
    subgroups: list[str] = []
    group: str = ""
    origins: list[str] = []


def _read_single(tokens: Tokens) -> str:
    """One sharding (`ParseSingleSharding`)."""
    tokens.expect("{")
    if tokens.kind == "word" and tokens.value in ("mesh", *_ONE_DEVICE):
        return _read_named(tokens)
    start, parts = tokens.start, _Parts()
    while tokens.kind != "}":
        _read_part(tokens, parts)
    tokens.advance()
    return f"{{{_format_single(tokens, parts, start)}}}"


def _read_part(tokens: Tokens, parts: _Parts) -> None:
    kind, value = tokens.kind, tokens.value
    if kind not in ("attribute", *_WHOLE, "maximal", *_MARKS):
        tokens.fail("expected a part of a sharding", _FORMS)
    tokens.advance()
    if kind in ("shard_as", "shard_like"):
        parts.group = f" {kind} {tokens.expect_integer()}"
    elif kind != "attribute":
        parts.words.add(kind)
    elif value == "device":
        parts.devices = [tokens.expect_integer()]
    elif value == "devices":
        parts.tiles = _read_tiles(tokens)
        parts.devices = parts.tiles.devices
    elif value == "metadata":
        parts.origins = read_metadata_list(tokens)
    elif value == "last_tile_dims":
        parts.subgroups = [subgroup.text for subgroup in tokens.listed(one_of(*_SUBGROUPS))]
    else:
        tokens.fail("expected a part of a sharding", _FORMS)


def _format_single(tokens: Tokens, parts: _Parts, start: int) -> str:
    """As `HloSharding::Print` writes it."""
    if parts.subgroups and "last_tile_dim_replicate" in parts.words:
        tokens.fail("`last_tile_dims` and `last_tile_dim_replicate` say the same", start=start)
    whole = next((word for word in ("replicated", "maximal", *_WHOLE) if word in parts.words), "")
    if whole == "maximal":
        if len(parts.devices) != 1:
            tokens.fail("`maximal` needs one device", start=start)
        text = f"maximal device={parts.devices[0]}"
    elif whole:
        if parts.devices:
            tokens.fail(f"`{whole}` has no devices", start=start)
        text = whole
    else:
        text = _format_tiles(tokens, parts, start)
    return f"{text}{parts.group}{_format_origins(text, parts.origins)}"


def _format_origins(text: str, origins: list[str]) -> str:
    """The metadata, with the reduction of an unreduced sharding."""
    if "unreduced" in text and not any(_REDUCTION in origin for origin in origins):
        origins = [*origins, f'op_type="{_REDUCTION}" op_name="SUM"']
    if not origins:
        return ""
    several = ", ".join(f"{{{origin}}}" for origin in origins)
    return f" metadata={{{origins[0] if len(origins) == 1 else several}}}"


def _format_tiles(tokens: Tokens, parts: _Parts, start: int) -> str:
    tiles = parts.tiles
    if tiles is None:
        tokens.fail("a sharding names its devices", _FORMS, start)
    if tiles.reshape:
        _check_order(tokens, tiles, start)
    elif len(tiles.devices) < 2 or len(tiles.devices) != _count(tiles.dimensions):
        count = len(tiles.devices)
        tokens.fail(f"{count} devices are not those of the tiles", start=start)
    types = ["replicated"] if "last_tile_dim_replicate" in parts.words else parts.subgroups
    return _format_subgroups(tiles, types)


def _format_subgroups(tiles: _Tiles, types: list[str]) -> str:
    """Tiles whose last dimensions are subgroups (`HloSharding::Subgroup`, `PartialTile`)."""
    sizes = tiles.dimensions
    is_whole = len(set(types)) == 1 and _count(sizes[: len(sizes) - len(types)]) == 1
    if is_whole and types[0] != "maximal":
        return types[0]
    if types == ["replicated"]:
        if sizes[-1] == 1:
            return f"devices={tiles._replace(dimensions=sizes[:-1]).format()}"
        group, devices = sizes[-1], tiles.devices
        ordered = [sorted(devices[at : at + group]) for at in range(0, len(devices), group)]
        tiles = tiles._replace(devices=[device for part in ordered for device in part])
        return f"devices={tiles.format()} last_tile_dim_replicate"
    shown = f" last_tile_dims={{{', '.join(types)}}}" if types else ""
    return f"devices={tiles.format()}{shown}"


def _read_mesh(tokens: Tokens) -> tuple[str, list[str]]:
    """`mesh['x'=2,'y'=4], device_ids=(…)`: its text, and the names of its axes (`ParseMesh`)."""
    if tokens.take() in _ONE_DEVICE:
        tokens.expect("[")
        start, name = tokens.start, tokens.expect("attribute")
        if name != "device_id":
            tokens.fail("expected `device_id=`", start=start)
        return f"single_device[device_id={tokens.form('i]')[0]}]", []
    start, sizes = tokens.start, dict(tokens.listed(_read_mesh_axis, "[]"))
    axes = ",".join(f"'{name}'={size}" for name, size in sizes.items())
    ids = _read_device_ids(tokens, list(sizes.values()), start) if sizes else ""
    return f"mesh[{axes}]{ids}", list(sizes)


def _read_mesh_axis(tokens: Tokens) -> tuple[str, int]:
    name = tokens.expect("string")
    return name, int(tokens.form("=i")[0])


def _read_device_ids(tokens: Tokens, sizes: list[int], start: int) -> str:
    if tokens.kind != "," or tokens.peek(len(_DEVICE_IDS)) != _DEVICE_IDS:
        return ""
    tokens.advance()
    tokens.advance()
    tokens.expect("(")
    if tokens.kind == "[":
        reshape, transpose = _read_iota(tokens)
        count, text = _count(reshape), _format_iota(reshape, transpose)
        shown = "" if len(reshape) == 1 else f", device_ids=({text})"
    else:
        devices = _read_integers(tokens)
        count, shown = len(devices), f", device_ids=({_joined(devices)})"
    tokens.expect(")")
    if count != _count(sizes):
        tokens.fail("the mesh has not as many devices as its axes say", start=start)
    return shown


def _read_axes(tokens: Tokens, names: list[str]) -> str:
    """`{'x', 'y':(1)2, ?}` (`ParseAxisRefList`, `ParseDimensionSharding`)."""
    return braced(tokens.listed(lambda at: _read_axis(at, names)), ", ")


def _read_axis(tokens: Tokens, names: list[str]) -> str:
    if tokens.eat("?"):
        return "?"
    start, name = tokens.start, tokens.expect("string")
    if name not in names:
        is_number = name.isdecimal() and name.isascii() and len(name) < 10
        if not is_number or int(name) >= len(names):
            known = ", ".join(f"'{axis}'" for axis in names[:8])
            tokens.fail(f"the mesh has no axis `{name[:40]}`", f"it has {known or 'none'}", start)
        name = names[int(name)]
    return "'{}':({}){}".format(name, *tokens.form(":(i)i")) if tokens.kind == ":" else f"'{name}'"


def _read_named(tokens: Tokens) -> str:
    """A sharding by axes of a mesh whose brace is open."""
    is_mesh = tokens.value == "mesh"
    mesh, names = _read_mesh(tokens)
    if not is_mesh:
        return f"{{{mesh}{_read_named_rest(tokens, names, ()).get('metadata', '')}}}"
    tokens.eat(",")
    if tokens.kind == "[":
        dimensions = tokens.listed(lambda at: _read_axes(at, names), "[]")
        return f"{{{mesh}{_format_named(dimensions, names, _read_named_rest(tokens, names))}}}"
    word = ""
    if tokens.value in ("replicated", "manual", "unreduced"):
        word = tokens.value
        is_named = tokens.kind == "attribute" or tokens.peek() == "="
        tokens.advance()
        tokens.eat("=")
        operation = _read_operation(tokens) if is_named else ""
        axes = _read_axes(tokens, names) if tokens.kind == "{" else _all_axes(names)
        if word == "unreduced":
            word = _format_named([], names, {word: f"{operation}{axes}"}).removeprefix(", ")
    else:
        tokens.fail("expected a part of a sharding", _FORMS)
    rest = _read_named_rest(tokens, names)
    return f"{{{mesh}{f', {word}' if word else ''}{rest.get('metadata', '')}}}"


def _all_axes(names: list[str]) -> str:
    return braced([f"'{name}'" for name in names], ", ")


def _format_named(dimensions: list[str], names: list[str], rest: dict[str, str]) -> str:
    """The axes of dimensions and of the rest; what all axes have in common is one word."""
    for operation in ("", "max", "min"):
        whole = {"unreduced": f"{operation}{_all_axes(names)}"}
        if not dimensions and rest == whole:
            return f", unreduced{f'={operation}' if operation else ''}"
    if not dimensions and not rest:
        return ", replicated"
    said = [
        f", {name}={rest[name]}" for name in ("replicated", "unreduced", "manual") if name in rest
    ]
    return f", [{', '.join(dimensions)}]{''.join(said)}{rest.get('metadata', '')}"


def _read_named_rest(
    tokens: Tokens, names: list[str], known: Sequence[str] = ("replicated", "unreduced", "manual")
) -> dict[str, str]:
    """`replicated={…}, unreduced=max{…}, manual={…}, metadata={…}}` to the brace that ends it."""
    said: dict[str, str] = {}
    while tokens.eat(",") or tokens.kind == "attribute":
        start, name = tokens.start, tokens.expect("attribute")
        if name == "metadata":
            origins = read_metadata_list(tokens)
            said[name] = f", metadata={braced([braced([origin]) for origin in origins], ', ')}"
            continue
        if name not in known:
            tokens.fail(f"a sharding has no `{name}=`", start=start)
        operation = _read_operation(tokens) if name == "unreduced" else ""
        axes = _read_axes(tokens, names)
        if axes != "{}":
            said[name] = f"{operation}{axes}"
    tokens.expect("}")
    return said


def _read_operation(tokens: Tokens) -> str:
    """`max` or `min`, empty for a sum, the default."""
    if tokens.kind != "word":
        return ""
    return one_of(*_OPERATIONS)(tokens).text.replace("sum", "")
