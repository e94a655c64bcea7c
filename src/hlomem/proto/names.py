"""The names of the numbers in XLA's protos, as the text of HLO spells them.

Those of `xla/xla_data.proto` and `xla/service/hlo.proto`; a number whose name says nothing in a
text has none here.
"""

from __future__ import annotations

from hlomem.base.errors import InputError
from hlomem.hlo.shape import ElementType

ELEMENT_TYPES = {
    1: ElementType.PRED,
    2: ElementType.S8,
    3: ElementType.S16,
    4: ElementType.S32,
    5: ElementType.S64,
    6: ElementType.U8,
    7: ElementType.U16,
    8: ElementType.U32,
    9: ElementType.U64,
    10: ElementType.F16,
    11: ElementType.F32,
    12: ElementType.F64,
    13: ElementType.TUPLE,
    14: ElementType.OPAQUE,
    15: ElementType.C64,
    16: ElementType.BF16,
    17: ElementType.TOKEN,
    18: ElementType.C128,
    19: ElementType.F8E5M2,
    20: ElementType.F8E4M3FN,
    21: ElementType.S4,
    22: ElementType.U4,
    23: ElementType.F8E4M3B11FNUZ,
    24: ElementType.F8E5M2FNUZ,
    25: ElementType.F8E4M3FNUZ,
    26: ElementType.S2,
    27: ElementType.U2,
    28: ElementType.F8E4M3,
    29: ElementType.F8E3M4,
    30: ElementType.S1,
    31: ElementType.U1,
    32: ElementType.F4E2M1FN,
    33: ElementType.F8E8M0FNU,
    34: ElementType.BUFFER,
    35: ElementType.F6E3M2FN,
    36: ElementType.F6E2M3FN,
}
"""`PrimitiveType`."""
NUMBER_OF_TYPE = {kind: number for number, kind in ELEMENT_TYPES.items()}

PRECISIONS = {0: "default", 1: "high", 2: "highest"}
ALGORITHMS = {
    1: "dot_any_f8_any_f8_f32",
    2: "dot_any_f8_any_f8_f32_fast_accum",
    3: "dot_f16_f16_f16",
    4: "dot_f16_f16_f32",
    5: "dot_bf16_bf16_bf16",
    6: "dot_bf16_bf16_f32",
    7: "dot_bf16_bf16_f32_x3",
    8: "dot_bf16_bf16_f32_x6",
    9: "dot_tf32_tf32_f32",
    10: "dot_tf32_tf32_f32_x3",
    11: "dot_f32_f32_f32",
    12: "dot_f64_f64_f64",
    13: "dot_bf16_bf16_f32_x9",
}
DISTRIBUTIONS = {0: "rng_invalid", 1: "rng_uniform", 2: "rng_normal"}
RANDOM_ALGORITHMS = {0: "rng_default", 1: "rng_three_fry", 2: "rng_philox"}
FFT_TYPES = {0: "FFT", 1: "IFFT", 2: "RFFT", 3: "IRFFT"}
TRANSPOSES = {1: "NO_TRANSPOSE", 2: "TRANSPOSE", 3: "ADJOINT"}
PADDING_TYPES = {0: "", 1: "PADDING_VALID", 2: "PADDING_SAME"}
SCHEDULES = {0: "", 1: "SCHEDULE_LATEST", 2: "SCHEDULE_EARLIEST"}
API_VERSIONS = {
    0: "",
    1: "",
    2: "API_VERSION_STATUS_RETURNING",
    3: "API_VERSION_STATUS_RETURNING_UNIFIED",
    4: "API_VERSION_TYPED_FFI",
}
MUST_ALIAS = 2
"""Of `Kind` in HloInputOutputAliasProto."""


def name_of(names: dict[int, str], number: int) -> str:
    """The name of a choice; one that XLA got after us keeps its number."""
    return names.get(number, f"unknown_{number}")


def element_type_of(number: int) -> ElementType:
    """The type of a shape's elements."""
    found = ELEMENT_TYPES.get(number)
    if found is None:
        raise InputError(f"a shape has elements of type {number}, which no XLA we know has")
    return found
