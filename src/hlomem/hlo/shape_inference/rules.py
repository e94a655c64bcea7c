"""The shape of an instruction whose text leaves it out: one rule for each opcode.

In: the opcode, the shapes of operands, the values of attributes, the shapes of the computations it
calls. Out: the shape XLA's parser infers, layout included, or `InferenceError`. The table lists the
opcodes of `CanInferShape` of `hlo/parser/hlo_parser.cc`, the rules are those of
`service/shape_inference.cc`; an opcode that is not listed always has its shape written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.shape_inference import calls, contractions, dimensions, elementwise, indexing
from hlomem.hlo.shape_inference.elements import Case, InferenceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.hlo.shape import Shape

_RULES: dict[str, Callable[[Case], Shape]] = {
    "abs": elementwise.infer_abs,
    "add maximum minimum mulhi multiply": elementwise.infer_binary,
    "add-dependency copy domain": lambda case: case.operands[0],
    "after-all": elementwise.infer_token,
    "and or xor": elementwise.infer_logical,
    "acos acosh asin asinh atanh cosh cosine exponential exponential-minus-one log log-plus-one "
    "logistic rsqrt sine sinh sqrt tan tanh": elementwise.infer_transcendental,
    "atan2": elementwise.infer_atan2,
    "batch-norm-grad batch-norm-inference batch-norm-training": contractions.infer_normalization,
    "broadcast": dimensions.infer_broadcast,
    "call": calls.infer_call,
    "cbrt ceil erf floor round-nearest-afz round-nearest-even": elementwise.infer_floating,
    "cholesky": contractions.infer_cholesky,
    "clamp": elementwise.infer_clamp,
    "compare": elementwise.infer_compare,
    "complex": elementwise.infer_complex,
    "concatenate": dimensions.infer_concatenate,
    "conditional": calls.infer_conditional,
    "convolution": contractions.infer_convolution,
    "count-leading-zeros popcnt": elementwise.infer_integral,
    "divide power remainder shift-left shift-right-arithmetic shift-right-logical "
    "subtract": elementwise.infer_arithmetic,
    "dot scaled-dot": contractions.infer_dot,
    "fft": contractions.infer_fft,
    "gather": indexing.infer_gather,
    "get-dimension-size": dimensions.infer_dimension_size,
    "get-tuple-element": calls.infer_element,
    "imag real": elementwise.infer_component,
    "is-finite": elementwise.infer_is_finite,
    "map": calls.infer_map,
    "negate": elementwise.infer_negate,
    "not": elementwise.infer_not,
    "pad": dimensions.infer_pad,
    "partition-id replica-id": elementwise.infer_device,
    "ragged-dot": contractions.infer_ragged_dot,
    "reduce": dimensions.infer_reduce,
    "reduce-window": dimensions.infer_reduce_window,
    "reverse": dimensions.infer_reverse,
    "scan": calls.infer_scan,
    "scatter": indexing.infer_scatter,
    "select": elementwise.infer_select,
    "select-and-scatter": dimensions.infer_select_and_scatter,
    "set-dimension-size": dimensions.infer_sized,
    "sign": elementwise.infer_sign,
    "sort": dimensions.infer_sort,
    "topk": dimensions.infer_top_k,
    "transpose": dimensions.infer_transpose,
    "triangular-solve": contractions.infer_triangular_solve,
    "tuple": calls.infer_tuple,
    "while": calls.infer_while,
}
RULES: Mapping[str, Callable[[Case], Shape]] = {
    opcode: rule for opcodes, rule in _RULES.items() for opcode in opcodes.split()
}
"""`opt-barrier` is one of XLA's list too, but none of its rules infers it."""


def infer_shape(case: Case) -> Shape:
    """The shape of an instruction; raises `InferenceError` where none follows."""
    rule = RULES.get(case.opcode)
    if rule is None:
        raise InferenceError
    return rule(case)
