"""Windows over arrays and the dimensions of convolutions, with the field names of XLA's protos.

Mirrors `Window` and `ConvolutionDimensionNumbers` of `xla_data.proto`, `window_util.cc` and
`ConvolutionDimensionNumbersToString` of `hlo/ir/hlo_instruction.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_MAX_RANK = 64


class WindowDimension(NamedTuple):
    """A window along one dimension."""

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    window_reversal: bool = False


Window = tuple[WindowDimension, ...]

_PARTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("size", "", lambda dimension: str(dimension.size)),
    ("stride", "1", lambda dimension: str(dimension.stride)),
    ("pad", "0_0", lambda dimension: f"{dimension.padding_low}_{dimension.padding_high}"),
    ("lhs_dilate", "1", lambda dimension: str(dimension.base_dilation)),
    ("rhs_dilate", "1", lambda dimension: str(dimension.window_dilation)),
    ("rhs_reversal", "0", lambda dimension: str(int(dimension.window_reversal))),
)
"""The parts of a window: name, default, and the text of a dimension."""


def format_window(window: Sequence[Any]) -> str:
    """`size=2x2 stride=2x2`, without defaults (`window_util::ToString`)."""
    columns = [
        (name, usual, [show(dimension) for dimension in window]) for name, usual, show in _PARTS
    ]
    return " ".join(
        [f"{name}={'x'.join(texts)}" for name, usual, texts in columns if {*texts} - {usual}]
    )


class ConvolutionLabels(NamedTuple):
    """The dimensions of a convolution's input, kernel and output."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]


def format_labels(n: Any) -> str:
    """`b01f_01io->b01f`; `?` where a dimension has no label."""
    lhs = n.input_batch_dimension, n.input_feature_dimension, n.input_spatial_dimensions
    rhs = (
        n.kernel_input_feature_dimension,
        n.kernel_output_feature_dimension,
        n.kernel_spatial_dimensions,
    )
    out = n.output_batch_dimension, n.output_feature_dimension, n.output_spatial_dimensions
    return f"{_label('bf', *lhs)}_{_label('io', *rhs)}->{_label('bf', *out)}"


def _label(letters: str, first: int, second: int, spatial: Iterable[int]) -> str:
    """The letter or number of every dimension."""
    label_of = {first: letters[0], second: letters[1]}
    label_of |= {at: str(number) for number, at in enumerate(spatial)}
    rank = min(max(label_of) + 1, _MAX_RANK)
    return "".join(label_of.get(at, "?") for at in range(rank))
