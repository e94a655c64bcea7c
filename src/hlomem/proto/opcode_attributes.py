"""The attributes of single opcodes as XLA prints them (`PrintExtraAttributesImpl`).

Memory does not depend on literals of custom calls, groups of devices by axes of a mesh,
configurations of infeeds, and sparsity, which are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from hlomem.proto.names import (
    ALGORITHMS,
    API_VERSIONS,
    DISTRIBUTIONS,
    FFT_TYPES,
    PADDING_TYPES,
    PRECISIONS,
    RANDOM_ALGORITHMS,
    SCHEDULES,
    TRANSPOSES,
    name_of,
)
from hlomem.proto.shape import make_shape
from hlomem.proto.sharding import format_device_list, format_iota
from hlomem.proto.strings import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hlomem.hlo.ir import HloInstruction
    from hlomem.proto.attributes import Item


def own_attributes(proto: Any, operands: tuple[HloInstruction, ...]) -> Iterator[Item]:
    for make in _BY_OPCODE.get(proto.opcode, ()):
        yield from make(proto)
    if proto.opcode == "compare":
        yield "direction", proto.comparison_direction
        kind = operands[0].shape.element_type.text if operands else ""
        usual = {"p": "UNSIGNED", "u": "UNSIGNED", "s": "SIGNED"}.get(kind[:1], "FLOAT")
        if proto.comparison_order == "TOTAL" and usual == "FLOAT":
            yield "order", "TOTAL"
        if proto.comparison_type and proto.comparison_type != usual:
            yield "type", proto.comparison_type


def _integers(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


Make: TypeAlias = "Callable[[Any], Iterator[Item]]"
"""From the message of an instruction to some of its attributes."""


def _field(name: str, show: Callable[[Any], str], field: str = "") -> Make:
    """One attribute, from the field of its name or another; left out where the text is empty."""

    def make(proto: Any) -> Iterator[Item]:
        if text := show(getattr(proto, field or name)):
            yield name, text

    return make


def _number(name: str, field: str = "") -> Make:
    """A number that is always printed."""
    return _field(name, str, field)


def _list(name: str, field: str = "") -> Make:
    """Numbers that are always printed."""
    return _field(name, _integers, field)


def _flag(name: str) -> Make:
    """A flag that is printed where it is true."""
    return _field(name, lambda is_set: "true" if is_set else "")


def _truth(name: str) -> Make:
    """A flag that is printed in any case."""
    return _field(name, lambda is_set: "true" if is_set else "false")


def _above(least: int, name: str) -> Make:
    """A number that is printed if it is larger."""
    return _field(name, lambda number: str(number) if number > least else "")


def _name(name: str, field: str, names: dict[int, str]) -> Make:
    """A choice by its name; the one that says nothing is left out."""
    return _field(name, lambda number: name_of(names, number), field)


def _numbers(field: str, *names: str) -> Make:
    """Numbers and lists of a message, in their order; `?` marks lists left out where empty."""

    def make(proto: Any) -> Iterator[Item]:
        for name in names:
            found = getattr(getattr(proto, field), name.lstrip("?"))
            if found or not name.startswith("?"):
                text = str(found) if isinstance(found, int) else _integers(found)
                yield name.lstrip("?").replace("dimensions", "dims"), text

    return make


def _aliasing(proto: Any) -> Iterator[Item]:
    if proto.output_operand_aliasing:
        items = [
            f"{_integers(alias.output_shape_index)}: "
            f"({alias.operand_index}, {_integers(alias.operand_shape_index)})"
            for alias in proto.output_operand_aliasing
        ]
        yield "output_to_operand_aliasing", f"{{{', '.join(items)}}}"


def _layout_constraints(proto: Any) -> Iterator[Item]:
    if proto.constrain_layout:
        shapes = [make_shape(shape).text for shape in proto.operand_shapes_with_layout]
        yield "operand_layout_constraints", f"{{{', '.join(shapes)}}}"


def _outfeed_shape(proto: Any) -> Iterator[Item]:
    if proto.HasField("outfeed_shape"):
        yield "outfeed_shape", make_shape(proto.outfeed_shape).text


def _prefetch_index(proto: Any) -> Iterator[Item]:
    if proto.HasField("cross_program_prefetch_index"):
        yield "cross_program_prefetch_index", str(proto.cross_program_prefetch_index)


def _replica_groups(proto: Any) -> Iterator[Item]:
    if proto.HasField("iota_collective_device_list"):
        yield "replica_groups", format_iota(proto.iota_collective_device_list)
    elif proto.HasField("collective_device_list"):
        yield "replica_groups", format_device_list(proto.collective_device_list)
    else:
        groups = [_integers(group.replica_ids) for group in proto.replica_groups]
        yield "replica_groups", f"{{{','.join(groups)}}}"


def _pairs(proto: Any) -> Iterator[Item]:
    pairs = [f"{{{pair.source},{pair.target}}}" for pair in proto.source_target_pairs]
    yield "source_target_pairs", f"{{{','.join(pairs)}}}"


def _slice(proto: Any) -> Iterator[Item]:
    has_stride = any(dimension.stride != 1 for dimension in proto.slice_dimensions)
    ranges = [
        f"[{dimension.start}:{dimension.limit}{f':{dimension.stride}' if has_stride else ''}]"
        for dimension in proto.slice_dimensions
    ]
    yield "slice", f"{{{', '.join(ranges)}}}"


def _padding(proto: Any) -> Iterator[Item]:
    sizes = proto.padding_config.dimensions
    has_interior = any(dimension.interior_padding for dimension in sizes)
    texts = [
        f"{dimension.edge_padding_low}_{dimension.edge_padding_high}"
        f"{f'_{dimension.interior_padding}' if has_interior else ''}"
        for dimension in sizes
    ]
    if texts:
        yield "padding", "x".join(texts)


_WINDOW: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("size", "", lambda dimension: str(dimension.size)),
    ("stride", "1", lambda dimension: str(dimension.stride)),
    ("pad", "0_0", lambda dimension: f"{dimension.padding_low}_{dimension.padding_high}"),
    ("lhs_dilate", "1", lambda dimension: str(dimension.base_dilation)),
    ("rhs_dilate", "1", lambda dimension: str(dimension.window_dilation)),
    ("rhs_reversal", "0", lambda dimension: str(int(dimension.window_reversal))),
)
"""The parts of a window: name, usual text, and the text of a dimension."""


def _window(proto: Any) -> Iterator[Item]:
    """`window={size=2x2 stride=2x2}` (`window_util::ToString`); parts as usual are left out."""
    sizes = proto.window.dimensions
    columns = [(name, usual, [show(size) for size in sizes]) for name, usual, show in _WINDOW]
    shown = [f"{name}={'x'.join(found)}" for name, usual, found in columns if {*found} - {usual}]
    if shown:
        yield "window", f"{{{' '.join(shown)}}}"


_MAX_RANK = 64


def _dimension_labels(proto: Any) -> Iterator[Item]:
    """`dim_labels=b01f_01io->b01f` (`ConvolutionDimensionNumbersToString`)."""
    if not proto.HasField("convolution_dimension_numbers"):
        return
    n = proto.convolution_dimension_numbers
    lhs = _labels(
        "b", n.input_batch_dimension, "f", n.input_feature_dimension, n.input_spatial_dimensions
    )
    rhs = _labels(
        "i",
        n.kernel_input_feature_dimension,
        "o",
        n.kernel_output_feature_dimension,
        n.kernel_spatial_dimensions,
    )
    out = _labels(
        "b", n.output_batch_dimension, "f", n.output_feature_dimension, n.output_spatial_dimensions
    )
    yield "dim_labels", f"{lhs}_{rhs}->{out}"


def _labels(one: str, first: int, two: str, second: int, spatial: Iterable[int]) -> str:
    """The letter or number of every dimension; `?` for one that has none."""
    label_of = {first: one, second: two, **{at: str(n) for n, at in enumerate(spatial)}}
    rank = min(max(label_of, default=0) + 1, _MAX_RANK)
    return "".join(label_of.get(at, "?") for at in range(rank))


_DOT = _numbers(
    "dot_dimension_numbers",
    *("?lhs_batch_dimensions", "lhs_contracting_dimensions"),
    *("?rhs_batch_dimensions", "rhs_contracting_dimensions"),
)
_GATHER = _numbers(
    "gather_dimension_numbers",
    *("offset_dims", "collapsed_slice_dims", "start_index_map", "?operand_batching_dims"),
    *("?start_indices_batching_dims", "index_vector_dim"),
)
_SCATTER = _numbers(
    "scatter_dimension_numbers",
    *("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
    *("?input_batching_dims", "?scatter_indices_batching_dims", "index_vector_dim"),
)


def _precision(proto: Any) -> Iterator[Item]:
    config = proto.precision_config
    if any(config.operand_precision):
        names = [name_of(PRECISIONS, precision) for precision in config.operand_precision]
        yield "operand_precision", f"{{{','.join(names)}}}"
    if config.algorithm:
        yield "algorithm", name_of(ALGORITHMS, config.algorithm)


def _triangular_solve(proto: Any) -> Iterator[Item]:
    options = proto.triangular_solve_options
    for name in ("left_side", "lower", "unit_diagonal"):
        if getattr(options, name):
            yield name, "true"
    if options.transpose_a:
        yield "transpose_a", name_of(TRANSPOSES, options.transpose_a)


_DIMENSIONS = _list("dimensions")
_GLOBAL_IDS = _flag("use_global_device_ids")
_CHANNEL = _above(0, "channel_id")
_COLLECTIVE = (_CHANNEL, _replica_groups, _flag("constrain_layout"))
_ALL_REDUCE = (*_COLLECTIVE, _GLOBAL_IDS)
_ALL_GATHER = (*_COLLECTIVE, _DIMENSIONS, _GLOBAL_IDS)
_PERMUTE = (_CHANNEL, _pairs)
_SEND_OR_RECEIVE = (_CHANNEL, _flag("is_host_transfer"))
_IS_ASSOCIATIVE = _field("is_associative", lambda said: {0: "", 1: "true"}.get(said, "false"))
_BATCH_NORM = (_field("epsilon", "{:g}".format), _number("feature_index"))
_CONVOLUTION = (
    _window,
    _dimension_labels,
    _above(1, "feature_group_count"),
    _above(1, "batch_group_count"),
)

_BY_OPCODE: dict[str, tuple[Make, ...]] = {
    "all-gather": _ALL_GATHER,
    "all-gather-start": _ALL_GATHER,
    "all-reduce": _ALL_REDUCE,
    "all-reduce-start": _ALL_REDUCE,
    "all-to-all": (*_COLLECTIVE, _field("dimensions", lambda of: _integers(of) if of else "")),
    "async-start": (
        _field("async_execution_thread", lambda of: "" if of in ("", "main") else f'"{of}"'),
        _aliasing,
    ),
    "async-update": (_aliasing,),
    "batch-norm-grad": _BATCH_NORM,
    "batch-norm-inference": _BATCH_NORM,
    "batch-norm-training": _BATCH_NORM,
    "broadcast": (_DIMENSIONS,),
    "cholesky": (_field("lower", lambda of: "true" if of.lower else "", "cholesky_options"),),
    "collective-broadcast": (*_COLLECTIVE, _truth("has_dynamic_root")),
    "collective-permute": _PERMUTE,
    "collective-permute-start": _PERMUTE,
    "collective-reduce": (*_ALL_REDUCE, _truth("has_dynamic_root")),
    "concatenate": (_DIMENSIONS,),
    "convolution": (*_CONVOLUTION, _precision),
    "copy-start": (_prefetch_index,),
    "custom-call": (
        *_CONVOLUTION,
        _precision,
        _name("padding_type", "padding_type", PADDING_TYPES),
        _field("custom_call_target", quote),
        _layout_constraints,
        _flag("custom_call_has_side_effect"),
        _aliasing,
        _name("schedule", "custom_call_schedule", SCHEDULES),
        _name("api_version", "custom_call_api_version", API_VERSIONS),
    ),
    "dot": (_DOT, _precision),
    "dynamic-slice": (_list("dynamic_slice_sizes"),),
    "fft": (_name("fft_type", "fft_type", FFT_TYPES), _list("fft_length")),
    "fusion": (_field("kind", lambda kind: kind or "kLoop", "fusion_kind"), _aliasing),
    "gather": (_GATHER, _list("slice_sizes", "gather_slice_sizes"), _flag("indices_are_sorted")),
    "get-dimension-size": (_DIMENSIONS,),
    "get-tuple-element": (_number("index", "tuple_index"),),
    "iota": (_field("iota_dimension", lambda of: str(of[0] if of else 0), "dimensions"),),
    "map": (_DIMENSIONS,),
    "outfeed": (_outfeed_shape,),
    "pad": (_padding,),
    "ragged-all-to-all": _COLLECTIVE,
    "recv": _SEND_OR_RECEIVE,
    "recv-done": _SEND_OR_RECEIVE,
    "reduce": (_DIMENSIONS,),
    "reduce-precision": (_number("exponent_bits"), _number("mantissa_bits")),
    "reduce-scatter": (*_ALL_REDUCE, _DIMENSIONS),
    "reduce-window": (_window,),
    "reshape": (_field("inferred_dimension", lambda of: str(of[0]) if of else "", "dimensions"),),
    "reverse": (_DIMENSIONS,),
    "rng": (_name("distribution", "distribution", DISTRIBUTIONS),),
    "rng-bit-generator": (_name("algorithm", "rng_algorithm", RANDOM_ALGORITHMS),),
    "rng-get-and-update-state": (_number("delta"),),
    "scaled-dot": (_DOT, _precision),
    "scan": (_DIMENSIONS, _number("num_carries"), _flag("is_reverse"), _IS_ASSOCIATIVE),
    "scatter": (_SCATTER, _flag("indices_are_sorted"), _flag("unique_indices")),
    "select-and-scatter": (_window,),
    "send": _SEND_OR_RECEIVE,
    "send-done": _SEND_OR_RECEIVE,
    "set-dimension-size": (_DIMENSIONS,),
    "slice": (_slice,),
    "sort": (_DIMENSIONS, _flag("is_stable")),
    "topk": (_number("k"), _truth("largest"), _flag("is_stable")),
    "transpose": (_DIMENSIONS,),
    "triangular-solve": (_triangular_solve,),
}
