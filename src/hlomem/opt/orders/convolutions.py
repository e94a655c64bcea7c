"""The time of convolutions: matrix products of few features, in groups, of long windows.

cuDNN computes a convolution as a product of matrices whose rows are places, whose columns are the
features that it makes, and whose terms are the features of a window's positions. It is slow where
features do not fill its tiles; where it computes groups one by one; and where a window is as large
as what it moves over. XLA asks for that as the gradient by the filter of a dilated or transposed
convolution, and of single examples: few results, each the sum of very many terms. Volumes, whose
features XLA lays out before their positions, have no kernel for that that uses tensor cores at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt.orders.products import Part

if TYPE_CHECKING:
    from hlomem.opt.orders.products import Convolution, Work
    from hlomem.opt.orders.speeds import Speeds

_WIDE = ("f32", "f64")
_PLANE, _VOLUME = 2, 3


def convolution_time(work: Work, convolution: Convolution, moved: float, speeds: Speeds) -> float:
    """Seconds of a kernel that takes so many to move its bytes."""
    of = speeds.convolutions
    took = max(_work_time(work, convolution, speeds), _least(work, convolution, speeds))
    return max(took, moved) + of.overlap * min(took, moved) + of.start


def _rate(work: Work, speeds: Speeds, kind: str) -> float:
    if work.is_exact:
        return speeds.exact_flops
    return speeds.flops.get(kind) or speeds.flops["f32"]


def _work_time(work: Work, convolution: Convolution, speeds: Speeds) -> float:
    """Seconds of its operations."""
    of = speeds.convolutions
    features, summed = convolution.features, convolution.summed
    is_wide = work.type in _WIDE
    took = work.flops / _rate(work, speeds, work.type)
    if convolution.groups > 1:
        took *= max(of.group_share / min(features, summed), 1.0)
        is_common = convolution.dimensions == _PLANE and features == summed
        took *= of.slow_groups if is_wide and not is_common else 1.0
    else:
        took *= 1 + of.half_features / max(features, of.few_features)
        if convolution.window == 1:  # a matrix product
            return took
        wasted = max(of.few_features / features, 1.0) * max(of.few_summed / summed, 1.0)
        if wasted > 1:
            took *= wasted * max(_rate(work, speeds, work.type) / _rate(work, speeds, "f32"), 1.0)
        took *= of.dilated if convolution.is_dilated else 1.0
        took *= of.volumes if convolution.dimensions == _VOLUME else 1.0
    if convolution.part is Part.FILTER:
        took *= of.by_filter if is_wide else of.narrow_by_filter
    return took


def _least(work: Work, convolution: Convolution, speeds: Speeds) -> float:
    """Seconds of the terms of one sum after another, where these are not shared out."""
    of = speeds.convolutions
    if convolution.part is not Part.OUT or convolution.window <= of.long_window:
        return 0.0
    terms = convolution.groups * convolution.summed * convolution.window
    if convolution.dimensions == _VOLUME:
        return terms * (of.volume_term if work.type in _WIDE else of.narrow_volume_term)
    return terms * (of.term if work.type in _WIDE else of.narrow_term)
