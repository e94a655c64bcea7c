"""The attributes each opcode may have: which XLA reads, which it needs, in what order it prints.

In: an opcode. Out: its `Attribute`s, those of any instruction included. Mirrors the tables in
`HloParserImpl::CreateInstruction` and `ParseInstructionRhs` of `hlo/parser/hlo_parser.cc`, and
`PrintExtraAttributes` of `hlo/ir/hlo_instruction.cc` and `hlo_instructions.cc`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import CALL_ATTRIBUTE_NAMES
from hlomem.hlo.text.body import CONTROL_PREDECESSORS
from hlomem.hlo.text.freeform import origins
from hlomem.hlo.text.freeform import values as read
from hlomem.hlo.text.freeform.literals import read_shaped_literal
from hlomem.hlo.text.freeform.sharding import read_replica_groups, read_sharding

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.text.freeform.tokens import Tokens


class Attribute(NamedTuple):
    """An attribute of an opcode."""

    name: str
    read: Callable[[Tokens], read.Value] | None
    """None where it names computations or instructions, or holds computations in braces."""
    is_needed: bool
    usual: str
    """The printed text of a missing attribute."""

    def is_default(self, text: str) -> bool:
        """Whether a value is a default that is not printed."""
        if not text or self.is_needed or self.usual:
            return not text
        return text in ("false", '""', _DEFAULT[self.name]) or (
            text == "{}" and self.name not in _SAID_EMPTY
        )


def _read_domain(tokens: Tokens) -> read.Value:
    """`{kind="sharding", entry={…}, exit={…}}` (`ParseDomain`)."""
    start = tokens.start
    readers = {"kind": read.read_string, "entry": read_sharding, "exit": read_sharding}
    fields = tokens.fields(readers, "a domain")
    if fields.keys() != readers.keys() or fields["kind"].data != "sharding":
        tokens.fail('a domain has `kind="sharding"`, `entry=` and `exit=`', start=start)
    return read.Value(read.braced([f"{name}={fields[name].text}" for name in readers], ", "))


def _words(text: str) -> Callable[[Tokens], read.Value]:
    return read.one_of(*text.split(), any_case=True)


_MODE = _words("cross_replica cross_partition cross_replica_and_partition flattened_id")


def _read_mode(tokens: Tokens) -> read.Value:
    """Read and not printed: releases of 2025 wrote it for a while."""
    return read.Value("", _MODE(tokens).data)


_READERS: dict[Callable[[Tokens], read.Value], str] = {
    read.read_accuracy: "result_accuracy",
    read.read_boolean: "constrain_layout custom_call_has_side_effect has_dynamic_root "
    "indices_are_sorted is_associative is_composite is_host_transfer is_reverse is_stable largest "
    "left_side lower unique_indices unit_diagonal use_global_device_ids",
    read.read_config: "backend_config",
    read.read_flags: "parameter_replication",
    read.read_float: "epsilon",
    read.read_integer: "batch_group_count channel_id delta exponent_bits feature_group_count "
    "feature_index index index_vector_dim inferred_dimension iota_dimension k mantissa_bits "
    "num_carries",
    read.read_integers: "collapsed_slice_dims dimensions dynamic_slice_sizes fft_length "
    "input_batching_dims inserted_window_dims lhs_batch_dims lhs_contracting_dims lhs_ragged_dims "
    "offset_dims operand_batching_dims rhs_batch_dims rhs_contracting_dims rhs_group_dims "
    "scatter_dims_to_operand_dims scatter_indices_batching_dims slice_sizes start_index_map "
    "start_indices_batching_dims update_window_dims",
    read.read_labels: "dim_labels",
    read.read_operand_aliases: "output_to_operand_aliasing",
    read.read_padding: "padding",
    read.read_pairs: "source_target_pairs",
    read.read_precisions: "operand_precision",
    read.read_shape: "outfeed_shape",
    read.read_shapes: "operand_layout_constraints",
    read.read_short_integer: "cross_program_prefetch_index",
    read.read_slices: "slice",
    read.read_sparsity: "sparsity_config",
    read.read_string: "async_execution_thread custom_call_target infeed_config outfeed_config",
    read.read_window: "window",
    read.one_of("EQ", "NE", "GE", "GT", "LE", "LT"): "direction",
    read.one_of("FFT", "IFFT", "RFFT", "IRFFT"): "fft_type",
    read.one_of("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"): "type",
    read.one_of("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"): "padding_type",
    read.one_of("TOTAL", "PARTIAL"): "order",
    read.one_of("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"): "transpose_a",
    read.one_of("fprop", "wgrad", "dgrad", "unset"): "convolution_kind",
    read.one_of("kLoop", "kInput", "kOutput", "kCustom"): "kind",
    _words("SCHEDULE_NONE SCHEDULE_LATEST SCHEDULE_EARLIEST"): "schedule",
    _words("rng_invalid rng_uniform rng_normal"): "distribution",
    _words(
        "API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING API_VERSION_STATUS_RETURNING_UNIFIED "
        "API_VERSION_TYPED_FFI"
    ): "api_version",
    _words(
        "unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 "
        "dot_f16_f16_f32 dot_bf16_bf16_bf16 dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 "
        "dot_bf16_bf16_f32_x6 dot_bf16_bf16_f32_x9 dot_tf32_tf32_f32 dot_tf32_tf32_f32_x3 "
        "dot_f32_f32_f32 dot_f64_f64_f64"
    ): "algorithm",
    _read_domain: "domain",
    _read_mode: "mode",
    origins.read_frontend_attributes: "frontend_attributes",
    origins.read_metadata: "metadata",
    origins.read_origin: "origin",
    origins.read_statistics: "statistics",
    read_replica_groups: "replica_groups",
    read_shaped_literal: "literal",
    read_sharding: "sharding",
}
"""Readers of values, and the names of attributes that have such values."""
_READER_OF = {name: reader for reader, names in _READERS.items() for name in names.split()}
_KINDS = {
    "hidden": read.read_hidden_integer,
    "lists": read.read_integer_lists,
    "one": read.read_one_integer,
    "random": _words("rng_default rng_three_fry rng_philox"),
}
"""Readers of values that are of another kind in some opcodes."""
_DEFAULT = dict.fromkeys([*_READER_OF, *CALL_ATTRIBUTE_NAMES, CONTROL_PREDECESSORS], "") | {
    "algorithm": "unset",
    "api_version": "API_VERSION_ORIGINAL",
    "async_execution_thread": '"main"',
    "batch_group_count": "1",
    "convolution_kind": "unset",
    "feature_group_count": "1",
    "inferred_dimension": "-1",
    "padding_type": "PADDING_INVALID",
    "schedule": "SCHEDULE_NONE",
    "transpose_a": "TRANSPOSE_INVALID",
}
"""Defaults; others are `false`, no items and empty strings."""
_SAID_EMPTY = ("backend_config", "operand_layout_constraints", "sharding")
_DOT = "lhs_batch_dims lhs_contracting_dims={} rhs_batch_dims rhs_contracting_dims={}"
_GROUPED = "channel_id replica_groups={} constrain_layout"

_OWN = {
    "all-gather all-gather-start": f"{_GROUPED} dimensions:one! use_global_device_ids",
    "all-reduce all-reduce-start": f"{_GROUPED} use_global_device_ids to_apply! mode",
    "all-to-all": f"{_GROUPED} dimensions:one",
    "async-done": "async_execution_thread calls",
    "async-start": "async_execution_thread output_to_operand_aliasing calls!",
    "async-update": "async_execution_thread output_to_operand_aliasing calls",
    "batch-norm-grad batch-norm-inference batch-norm-training": "epsilon! feature_index!",
    "broadcast reverse transpose": "dimensions!",
    "call": "to_apply! is_composite",
    "cholesky": "lower",
    "collective-broadcast": "channel_id replica_groups={} has_dynamic_root=false",
    "collective-permute collective-permute-start": "channel_id source_target_pairs! "
    "slice_sizes:lists",
    "collective-reduce": f"{_GROUPED} use_global_device_ids has_dynamic_root=false to_apply!",
    "compare": "direction! order type",
    "concatenate get-dimension-size set-dimension-size": "dimensions:one!",
    "conditional": "true_computation false_computation branch_computations",
    "convolution": "window dim_labels! feature_group_count batch_group_count convolution_kind "
    "operand_precision algorithm sparsity_config",
    "copy-start": "cross_program_prefetch_index",
    "custom-call": "window dim_labels feature_group_count batch_group_count operand_precision "
    "padding_type custom_call_target! operand_layout_constraints custom_call_has_side_effect "
    "literal output_to_operand_aliasing schedule api_version to_apply called_computations",
    "domain": "domain!",
    "dot scaled-dot": f"{_DOT} operand_precision algorithm",
    "dynamic-slice": "dynamic_slice_sizes!",
    "fft": "fft_type! fft_length!",
    "fusion": "kind! output_to_operand_aliasing calls!",
    "gather": "offset_dims! collapsed_slice_dims! start_index_map! operand_batching_dims "
    "start_indices_batching_dims index_vector_dim! slice_sizes! indices_are_sorted",
    "get-tuple-element": "index!",
    "infeed": "infeed_config",
    "iota": "iota_dimension!",
    "map": "dimensions={} to_apply!",
    "outfeed": "outfeed_shape outfeed_config",
    "pad": "padding!",
    "ragged-all-to-all": "channel_id replica_groups={} dimensions:hidden",
    "ragged-dot": f"{_DOT} lhs_ragged_dims rhs_group_dims operand_precision",
    "recv recv-done send send-done": "channel_id is_host_transfer",
    "reduce": "dimensions! to_apply!",
    "reduce-precision": "exponent_bits! mantissa_bits!",
    "reduce-scatter": f"{_GROUPED} use_global_device_ids dimensions:one! to_apply! mode",
    "reduce-window": "window to_apply!",
    "reshape": "inferred_dimension",
    "rng": "distribution!",
    "rng-bit-generator": "algorithm:random!",
    "rng-get-and-update-state": "delta!",
    "scan": "dimensions:one! num_carries! is_reverse is_associative=false to_apply!",
    "scatter": "update_window_dims! inserted_window_dims! scatter_dims_to_operand_dims! "
    "input_batching_dims scatter_indices_batching_dims index_vector_dim! indices_are_sorted "
    "unique_indices to_apply!",
    "select-and-scatter": "window select! scatter!",
    "slice": "slice!",
    "sort": "dimensions:one! is_stable to_apply!",
    "topk": "k! largest=true is_stable=true",
    "triangular-solve": "left_side lower unit_diagonal transpose_a",
    "while": "condition! body!",
}
"""Attributes in the order they are printed: `name!` is needed, `name=text` is printed with that
text where it is not given, `name:kind` has a value of another kind."""
_OWN_OF = {opcode: names for opcodes, names in _OWN.items() for opcode in opcodes.split()}
_ACCURATE = (
    "acos acosh asin asinh atanh cbrt cosh cosine erf exponential exponential-minus-one log "
    "log-plus-one logistic rsqrt sine sinh sqrt tan tanh"
)
"""Operations whose accuracy may be asked for."""


@cache
def attributes_of(opcode: str) -> dict[str, Attribute]:
    """The attributes of an opcode by name, in the order they are printed."""
    own, accuracy = (
        _OWN_OF.get(opcode, ""),
        "result_accuracy" if opcode in _ACCURATE.split() else "",
    )
    order = (
        f"{own} parameter_replication sharding frontend_attributes {CONTROL_PREDECESSORS} "
        f"statistics {accuracy} origin metadata backend_config"
    )
    return {attribute.name: attribute for attribute in map(_attribute, order.split())}


def _attribute(said: str) -> Attribute:
    word, _, usual = said.partition("=")
    name, _, kind = word.rstrip("!").partition(":")
    reader = _KINDS[kind] if kind else _READER_OF.get(name)
    return Attribute(name, reader, word.endswith("!"), usual)


def is_known(name: str) -> bool:
    """Whether an attribute is one of any opcode."""
    return name in _DEFAULT
