"""Whole texts made to hurt a reader or a planner: deep, long, huge, cyclic, exponential.

Each function returns one text, of a size that grows with `many`; the figures in the docstrings are
those of 100,000. Those in `VALID_MODULES` are programs that XLA would compile, so they must be
planned; the others may be read or refused. None of them is large for what it says: what may explode
is only the work done with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz import hostile_dumps as dumps
from tests.fuzz import hostile_programs as programs
from tests.fuzz import hostile_texts as texts

if TYPE_CHECKING:
    from collections.abc import Callable

DUMPS: list[Callable[[int], str]] = [
    dumps.many_allocations,
    dumps.many_overlapping_values,
    dumps.same_values,
    dumps.endless_size,
    dumps.largest_sizes,
    dumps.negative_sizes,
    dumps.many_unknown_attributes,
    dumps.open_bars,
    dumps.many_commas,
    dumps.long_index,
    dumps.deep_value_shape,
    dumps.blank_lines,
    dumps.long_sequence,
    dumps.endless_ranges,
    dumps.late_peak,
    dumps.deep_tree,
    dumps.wide_tree,
    dumps.forged_tree,
    dumps.half_nodes,
    dumps.almost_nodes,
    dumps.name_of_lines,
    dumps.log_lines,
    dumps.many_positions,
]

VALID_MODULES: list[Callable[[int], str]] = [
    programs.many_parameters,
    programs.deep_calls,
    programs.nested_whiles,
    programs.wide_tuple,
    programs.deep_tuple,
    programs.all_alive,
    programs.many_operands,
    programs.long_chain,
    programs.stack_frame_cycle,
    programs.long_op_name,
    programs.deep_backend_config,
    programs.deep_origin,
    programs.long_name,
    programs.huge_constant,
    programs.huge_sharding,
    programs.many_fusions,
    texts.slashes,
    texts.slashed_lines,
    texts.many_attributes,
    texts.many_empty_lines,
    texts.many_blank_lines,
    texts.blanks_at_the_end,
    texts.blanks_before,
    texts.other_line_ends,
    texts.forged_line,
]

MODULES: list[Callable[[int], str]] = [
    *VALID_MODULES,
    programs.many_calls,
    programs.deeper_calls,
    programs.deeper_tuple,
    programs.call_bomb,
    texts.open_parentheses,
    texts.deep_shape,
    texts.deep_shape_in_head,
    texts.deep_shape_in_header,
    texts.huge_dimension,
    texts.endless_dimension,
    texts.many_dimensions,
    texts.long_parameter_number,
    texts.long_tuple_index,
    texts.long_compact_index,
    texts.long_stack_frame,
    texts.long_metadata_number,
    texts.open_comments,
    texts.open_comments_before,
    texts.open_strings,
    texts.many_quotes,
    texts.many_backslashes,
    texts.open_braces,
    texts.closing_braces,
    texts.equal_signs,
    texts.half_opcodes,
    texts.half_operands,
    texts.many_computations_without_end,
    texts.cyclic_calls,
    texts.self_call,
    texts.cyclic_fusions,
    texts.self_operand,
    texts.later_operand,
    texts.cyclic_operands,
    texts.cyclic_control,
    texts.same_names,
    texts.wrong_alias,
    texts.wrong_tuple_index,
    texts.loop_of_other_shape,
]
