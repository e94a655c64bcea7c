"""The names of numbers in `xla_data.proto` and `hlo.proto` of XLA, as HLO text spells them."""

from __future__ import annotations

from hlomem.base.errors import InputError
from hlomem.hlo.shape import ElementType

_TYPES = """
PRED S8 S16 S32 S64 U8 U16 U32 U64 F16 F32 F64 TUPLE OPAQUE C64 BF16 TOKEN C128 F8E5M2 F8E4M3FN
S4 U4 F8E4M3B11FNUZ F8E5M2FNUZ F8E4M3FNUZ S2 U2 F8E4M3 F8E3M4 S1 U1 F4E2M1FN F8E8M0FNU BUFFER
F6E3M2FN F6E2M3FN"""
ELEMENT_TYPES = {number: ElementType[name] for number, name in enumerate(_TYPES.split(), 1)}
"""`PrimitiveType`."""
NUMBER_OF_TYPE = {kind: number for number, kind in ELEMENT_TYPES.items()}

PRECISIONS = {0: "default", 1: "high", 2: "highest"}
_ALGORITHMS = """
any_f8_any_f8_f32 any_f8_any_f8_f32_fast_accum f16_f16_f16 f16_f16_f32 bf16_bf16_bf16 bf16_bf16_f32
bf16_bf16_f32_x3 bf16_bf16_f32_x6 tf32_tf32_f32 tf32_tf32_f32_x3 f32_f32_f32 f64_f64_f64
bf16_bf16_f32_x9"""
ALGORITHMS = {number: f"dot_{types}" for number, types in enumerate(_ALGORITHMS.split(), 1)}
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
    found = ELEMENT_TYPES.get(number)
    if found is None:
        raise InputError(f"a shape has elements of type {number}, which no XLA we know has")
    return found
