"""The time of convolutions: by what they differ, all else equal."""

from __future__ import annotations

from math import prod

from hlomem.opt.orders.convolutions import convolution_time
from hlomem.opt.orders.products import Convolution, Part, Work
from hlomem.opt.orders.speeds import H200

PLAIN = Convolution(Part.OUT, 128, 128, 1, 2, 9, is_dilated=False)
FLOPS = 10**11


def _time(convolution: Convolution, kind: str = "f32", flops: int = FLOPS) -> float:
    return convolution_time(Work(flops, kind, False, convolution), convolution, 0.0, H200)


def test_what_fills_its_tiles_is_as_fast_as_a_product_of_its_size() -> None:
    least = FLOPS / H200.flops["f32"]
    assert least < _time(PLAIN) < 2 * least
    assert _time(PLAIN._replace(features=1024)) < _time(PLAIN)


def test_few_features_take_as_long_as_a_tile_of_them_in_any_type() -> None:
    few = PLAIN._replace(features=4)
    assert _time(few, flops=FLOPS // 12) > 0.9 * _time(PLAIN._replace(features=48))
    assert _time(few, "bf16") == _time(few)
    assert _time(PLAIN, "bf16") < 0.6 * _time(PLAIN)
    assert _time(PLAIN._replace(summed=4)) > 3 * _time(PLAIN)


def test_the_gradient_by_the_filter_takes_longer() -> None:
    assert _time(PLAIN._replace(part=Part.FILTER)) > 1.8 * _time(PLAIN)
    assert _time(PLAIN._replace(part=Part.IMAGE)) == _time(PLAIN)


def test_a_window_of_one_place_is_a_matrix_product() -> None:
    product = PLAIN._replace(window=1, part=Part.FILTER, summed=4)
    assert _time(product) == _time(PLAIN)


def test_a_sum_over_a_window_as_long_as_a_line_is_not_shared_out() -> None:
    """The gradient by the filter of a dilated convolution, as XLA asks cuDNN for it."""
    window = (16, 8192)
    long = Convolution(Part.OUT, 32, 16, 1, 1, window[1], is_dilated=False)
    assert _time(long, flops=1) > 2e-8 * prod(window)
    assert _time(long, "bf16", flops=1) < _time(long, flops=1) / 4
    assert _time(long._replace(groups=8), flops=1) > 7 * _time(long, flops=1)
    assert _time(long._replace(part=Part.FILTER), flops=1) < _time(long, flops=1) / 100


def test_in_volumes_16_bits_do_not_help_with_long_sums() -> None:
    """The gradient by the filter of a transposed convolution, batches of 2."""
    cube = Convolution(Part.OUT, 32, 2, 1, 3, 64**3, is_dilated=False)
    plane = cube._replace(dimensions=2)
    assert _time(cube, flops=1) > 1.5 * _time(plane, flops=1)
    assert _time(cube, "bf16", flops=1) > 2 * _time(cube, flops=1)
    assert _time(cube._replace(window=32**3), "bf16", flops=1) < _time(cube, "bf16", flops=1) / 7
    small = cube._replace(window=27)
    assert _time(small, "bf16", flops=1) < 1e-5


def test_groups_are_slow_by_their_features() -> None:
    grouped = PLAIN._replace(groups=32, features=8, summed=8)
    assert _time(grouped) < _time(grouped._replace(features=1, summed=1)) / 6
    assert _time(grouped._replace(dimensions=1)) > 6 * _time(grouped)
    assert _time(grouped._replace(dimensions=1), "bf16") < _time(grouped)


def test_what_is_moved_counts_where_it_takes_longer() -> None:
    work = Work(FLOPS, "f32", False, PLAIN)
    assert convolution_time(work, PLAIN, 1.0, H200) > 1.0
