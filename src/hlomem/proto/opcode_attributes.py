"""The attributes that only some opcodes have, as the texts XLA would print.

In: the message of an instruction, and its operands. Out: names and texts in the order of XLA's
printer. Mirrors `PrintExtraAttributesImpl` of the classes in `hlo/ir/hlo_instructions.cc`. Left
out, because nothing about memory depends on them: literals of custom calls, groups of devices by
axes of a mesh, configurations of infeeds, sparsity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    """The attributes only its opcode has, in the order they are printed."""
    for make in _BY_OPCODE.get(proto.opcode, ()):
        yield from make(proto)
    if proto.opcode == "compare":
        yield from _comparison(proto, operands)


def _integers(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _comparison(proto: Any, operands: tuple[HloInstruction, ...]) -> Iterator[Item]:
    yield "direction", proto.comparison_direction
    kind = operands[0].shape.element_type.text if operands else ""
    usual = {"p": "UNSIGNED", "u": "UNSIGNED", "s": "SIGNED"}.get(kind[:1], "FLOAT")
    if proto.comparison_order == "TOTAL" and usual == "FLOAT":
        yield "order", "TOTAL"
    if proto.comparison_type and proto.comparison_type != usual:
        yield "type", proto.comparison_type


def _number(name: str, field: str = "") -> Callable[[Any], Iterator[Item]]:
    """A number that is always printed."""

    def make(proto: Any) -> Iterator[Item]:
        yield name, str(getattr(proto, field or name))

    return make


def _epsilon(proto: Any) -> Iterator[Item]:
    yield "epsilon", f"{proto.epsilon:g}"


def _list(name: str, field: str = "") -> Callable[[Any], Iterator[Item]]:
    """Numbers that are always printed."""

    def make(proto: Any) -> Iterator[Item]:
        yield name, _integers(getattr(proto, field or name))

    return make


def _flag(name: str) -> Callable[[Any], Iterator[Item]]:
    """A flag that is printed where it is true."""

    def make(proto: Any) -> Iterator[Item]:
        if getattr(proto, name):
            yield name, "true"

    return make


def _truth(name: str) -> Callable[[Any], Iterator[Item]]:
    """A flag that is printed in any case."""

    def make(proto: Any) -> Iterator[Item]:
        yield name, "true" if getattr(proto, name) else "false"

    return make


def _count(name: str) -> Callable[[Any], Iterator[Item]]:
    """A number that is printed unless it is 1; 0 was never set."""

    def make(proto: Any) -> Iterator[Item]:
        if getattr(proto, name) > 1:
            yield name, str(getattr(proto, name))

    return make


def _name(name: str, field: str, names: dict[int, str]) -> Callable[[Any], Iterator[Item]]:
    """A choice by its name; the one that says nothing is left out."""

    def make(proto: Any) -> Iterator[Item]:
        found = name_of(names, getattr(proto, field))
        if found:
            yield name, found

    return make


def _aliasing(proto: Any) -> Iterator[Item]:
    if proto.output_operand_aliasing:
        items = [
            f"{_integers(alias.output_shape_index)}: "
            f"({alias.operand_index}, {_integers(alias.operand_shape_index)})"
            for alias in proto.output_operand_aliasing
        ]
        yield "output_to_operand_aliasing", f"{{{', '.join(items)}}}"


def _fusion_kind(proto: Any) -> Iterator[Item]:
    yield "kind", proto.fusion_kind or "kLoop"


def _custom_call_target(proto: Any) -> Iterator[Item]:
    yield "custom_call_target", quote(proto.custom_call_target)


def _layout_constraints(proto: Any) -> Iterator[Item]:
    if proto.constrain_layout:
        shapes = [make_shape(shape).text for shape in proto.operand_shapes_with_layout]
        yield "operand_layout_constraints", f"{{{', '.join(shapes)}}}"


def _outfeed_shape(proto: Any) -> Iterator[Item]:
    if proto.HasField("outfeed_shape"):
        yield "outfeed_shape", make_shape(proto.outfeed_shape).text


def _async_thread(proto: Any) -> Iterator[Item]:
    if proto.async_execution_thread not in ("", "main"):
        yield "async_execution_thread", f'"{proto.async_execution_thread}"'


def _prefetch_index(proto: Any) -> Iterator[Item]:
    if proto.HasField("cross_program_prefetch_index"):
        yield "cross_program_prefetch_index", str(proto.cross_program_prefetch_index)


def _channel(proto: Any) -> Iterator[Item]:
    if proto.channel_id > 0:
        yield "channel_id", str(proto.channel_id)


def _replica_groups(proto: Any) -> Iterator[Item]:
    if proto.HasField("iota_collective_device_list"):
        yield "replica_groups", format_iota(proto.iota_collective_device_list)
    elif proto.HasField("collective_device_list"):
        yield "replica_groups", format_device_list(proto.collective_device_list)
    else:
        groups = [_integers(group.replica_ids) for group in proto.replica_groups]
        yield "replica_groups", f"{{{','.join(groups)}}}"


def _split_dimension(proto: Any) -> Iterator[Item]:
    if proto.dimensions:
        yield "dimensions", _integers(proto.dimensions)


def _pairs(proto: Any) -> Iterator[Item]:
    pairs = [f"{{{pair.source},{pair.target}}}" for pair in proto.source_target_pairs]
    yield "source_target_pairs", f"{{{','.join(pairs)}}}"


def _inferred_dimension(proto: Any) -> Iterator[Item]:
    if proto.dimensions:
        yield "inferred_dimension", str(proto.dimensions[0])


def _iota_dimension(proto: Any) -> Iterator[Item]:
    yield "iota_dimension", str(proto.dimensions[0] if proto.dimensions else 0)


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


def _window(proto: Any) -> Iterator[Item]:
    """`window={size=2x2 stride=2x2}` (`window_util::ToString`)."""
    sizes = proto.window.dimensions
    if not sizes:
        return
    columns: list[tuple[str, list[str], bool]] = [
        ("size", [str(dimension.size) for dimension in sizes], True),
        (
            "stride",
            [str(dimension.stride) for dimension in sizes],
            any(dimension.stride != 1 for dimension in sizes),
        ),
        (
            "pad",
            [f"{dimension.padding_low}_{dimension.padding_high}" for dimension in sizes],
            any(dimension.padding_low or dimension.padding_high for dimension in sizes),
        ),
        (
            "lhs_dilate",
            [str(dimension.base_dilation) for dimension in sizes],
            any(dimension.base_dilation != 1 for dimension in sizes),
        ),
        (
            "rhs_dilate",
            [str(dimension.window_dilation) for dimension in sizes],
            any(dimension.window_dilation != 1 for dimension in sizes),
        ),
        (
            "rhs_reversal",
            [str(int(dimension.window_reversal)) for dimension in sizes],
            any(dimension.window_reversal for dimension in sizes),
        ),
    ]
    shown = [f"{name}={'x'.join(texts)}" for name, texts, is_shown in columns if is_shown]
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


def _dot(proto: Any) -> Iterator[Item]:
    numbers = proto.dot_dimension_numbers
    if numbers.lhs_batch_dimensions:
        yield "lhs_batch_dims", _integers(numbers.lhs_batch_dimensions)
    yield "lhs_contracting_dims", _integers(numbers.lhs_contracting_dimensions)
    if numbers.rhs_batch_dimensions:
        yield "rhs_batch_dims", _integers(numbers.rhs_batch_dimensions)
    yield "rhs_contracting_dims", _integers(numbers.rhs_contracting_dimensions)


def _precision(proto: Any) -> Iterator[Item]:
    config = proto.precision_config
    if any(config.operand_precision):
        names = [name_of(PRECISIONS, precision) for precision in config.operand_precision]
        yield "operand_precision", f"{{{','.join(names)}}}"
    if config.algorithm:
        yield "algorithm", name_of(ALGORITHMS, config.algorithm)


def _gather(proto: Any) -> Iterator[Item]:
    numbers = proto.gather_dimension_numbers
    yield "offset_dims", _integers(numbers.offset_dims)
    yield "collapsed_slice_dims", _integers(numbers.collapsed_slice_dims)
    yield "start_index_map", _integers(numbers.start_index_map)
    if numbers.operand_batching_dims:
        yield "operand_batching_dims", _integers(numbers.operand_batching_dims)
    if numbers.start_indices_batching_dims:
        yield "start_indices_batching_dims", _integers(numbers.start_indices_batching_dims)
    yield "index_vector_dim", str(numbers.index_vector_dim)


def _scatter(proto: Any) -> Iterator[Item]:
    numbers = proto.scatter_dimension_numbers
    yield "update_window_dims", _integers(numbers.update_window_dims)
    yield "inserted_window_dims", _integers(numbers.inserted_window_dims)
    yield "scatter_dims_to_operand_dims", _integers(numbers.scatter_dims_to_operand_dims)
    if numbers.input_batching_dims:
        yield "input_batching_dims", _integers(numbers.input_batching_dims)
    if numbers.scatter_indices_batching_dims:
        yield "scatter_indices_batching_dims", _integers(numbers.scatter_indices_batching_dims)
    yield "index_vector_dim", str(numbers.index_vector_dim)


def _triangular_solve(proto: Any) -> Iterator[Item]:
    options = proto.triangular_solve_options
    for name in ("left_side", "lower", "unit_diagonal"):
        if getattr(options, name):
            yield name, "true"
    if options.transpose_a:
        yield "transpose_a", name_of(TRANSPOSES, options.transpose_a)


def _cholesky(proto: Any) -> Iterator[Item]:
    if proto.cholesky_options.lower:
        yield "lower", "true"


def _scan_is_associative(proto: Any) -> Iterator[Item]:
    if proto.is_associative:
        yield "is_associative", "true" if proto.is_associative == 1 else "false"


_DIMENSIONS = _list("dimensions")
_GLOBAL_IDS = _flag("use_global_device_ids")
_COLLECTIVE = (_channel, _replica_groups, _flag("constrain_layout"))
_ALL_REDUCE = (*_COLLECTIVE, _GLOBAL_IDS)
_ALL_GATHER = (*_COLLECTIVE, _DIMENSIONS, _GLOBAL_IDS)
_PERMUTE = (_channel, _pairs)
_SEND_OR_RECEIVE = (_channel, _flag("is_host_transfer"))
_BATCH_NORM = (_epsilon, _number("feature_index"))
_CONVOLUTION = (
    _window,
    _dimension_labels,
    _count("feature_group_count"),
    _count("batch_group_count"),
)

_BY_OPCODE: dict[str, tuple[Callable[[Any], Iterator[Item]], ...]] = {
    "all-gather": _ALL_GATHER,
    "all-gather-start": _ALL_GATHER,
    "all-reduce": _ALL_REDUCE,
    "all-reduce-start": _ALL_REDUCE,
    "all-to-all": (*_COLLECTIVE, _split_dimension),
    "async-start": (_async_thread, _aliasing),
    "async-update": (_aliasing,),
    "batch-norm-grad": _BATCH_NORM,
    "batch-norm-inference": _BATCH_NORM,
    "batch-norm-training": _BATCH_NORM,
    "broadcast": (_DIMENSIONS,),
    "cholesky": (_cholesky,),
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
        _custom_call_target,
        _layout_constraints,
        _flag("custom_call_has_side_effect"),
        _aliasing,
        _name("schedule", "custom_call_schedule", SCHEDULES),
        _name("api_version", "custom_call_api_version", API_VERSIONS),
    ),
    "dot": (_dot, _precision),
    "dynamic-slice": (_list("dynamic_slice_sizes"),),
    "fft": (_name("fft_type", "fft_type", FFT_TYPES), _list("fft_length")),
    "fusion": (_fusion_kind, _aliasing),
    "gather": (_gather, _list("slice_sizes", "gather_slice_sizes"), _flag("indices_are_sorted")),
    "get-dimension-size": (_DIMENSIONS,),
    "get-tuple-element": (_number("index", "tuple_index"),),
    "iota": (_iota_dimension,),
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
    "reshape": (_inferred_dimension,),
    "reverse": (_DIMENSIONS,),
    "rng": (_name("distribution", "distribution", DISTRIBUTIONS),),
    "rng-bit-generator": (_name("algorithm", "rng_algorithm", RANDOM_ALGORITHMS),),
    "rng-get-and-update-state": (_number("delta"),),
    "scaled-dot": (_dot, _precision),
    "scan": (_DIMENSIONS, _number("num_carries"), _flag("is_reverse"), _scan_is_associative),
    "scatter": (_scatter, _flag("indices_are_sorted"), _flag("unique_indices")),
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
