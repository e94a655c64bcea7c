"""A program at a size nobody compiled: its shapes are those XLA's own module has there."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem import hlo
from hlomem.base.errors import CommandError, UnsupportedError
from hlomem.hlo.scaling import Growth, GrowthError, Sizes
from tests.places import GOLDENS

SIZED = sorted((GOLDENS / "sizes").iterdir())
ELSEWHERE = {("train_step", 16)}
"""The sizes at which XLA makes another program."""


def sizes_of(program: Path) -> list[int]:
    """The sizes at which XLA makes one program."""
    found = sorted(int(path.name) for path in program.iterdir() if path.is_dir())
    return [size for size in found if (program.name, size) not in ELSEWHERE]


def module_at(program: Path, size: int) -> hlo.HloModule:
    """XLA's module."""
    return hlo.parse((program / str(size) / "module.hlo").read_text(), f"{program.name} {size}")


def _shapes(module: hlo.HloModule) -> list[tuple[str, str]]:
    return [(each.name, each.shape.text) for each in module.iter_instructions()]


@pytest.mark.parametrize("program", SIZED, ids=lambda path: path.name)
def test_a_third_size_has_the_shapes_of_xla(program: Path) -> None:
    for one, other, third in permutations(sizes_of(program), 3):
        growth = Growth(module_at(program, one), module_at(program, other), (one, other))
        true = module_at(program, third)
        assert _shapes(hlo.parse(growth.text_at(third))) == _shapes(true)
        shapes = growth.shapes_at(third)
        assert shapes is not None
        pairs = zip(
            module_at(program, one).iter_outer_instructions(),
            true.iter_outer_instructions(),
            strict=True,
        )
        for before, after in pairs:
            for part, grown in zip(before.shape.leaves(), after.shape.leaves(), strict=True):
                assert shapes.get(part[1], part[1]) == grown[1]


def test_a_program_that_xla_compiles_otherwise_is_refused_at_its_line() -> None:
    home = GOLDENS / "sizes" / "train_step"
    with pytest.raises(UnsupportedError) as caught:
        Growth(module_at(home, 8), module_at(home, 16), (8, 16))
    assert "these are two programs" in str(caught.value)
    assert caught.value.line > 1


@given(
    st.integers(1, 1000),
    st.integers(1, 1000),
    st.integers(1, 10_000),
    st.sampled_from([-1, 1, 2, 3]),
    st.integers(1, 64),
)
def test_powers_and_inverses_are_found(
    one: int, other: int, third: int, power: int, factor: int
) -> None:
    if one == other:
        return
    whole = one * other * third

    def extent(size: int) -> int:
        return factor * size**power if power > 0 else factor * whole // size

    assert Sizes(one, other).extent(extent(one), extent(other), third) == extent(third)


@given(
    st.lists(st.integers(2, 1000), min_size=2, max_size=2, unique=True),
    st.integers(1, 10_000),
    st.integers(1, 64),
    st.integers(-1, 1000),
)
def test_lines_are_found(sizes: list[int], third: int, slope: int, base: int) -> None:
    (one, other), (first, last) = sizes, [slope * size + base for size in sizes]
    if not any(first * other**power == last * one**power for power in (2, 3)):
        assert Sizes(one, other).extent(first, last, third) == slope * third + base


@pytest.mark.parametrize(
    ("extents", "said"),
    [
        ((8, 16), "not be an integer at 47"),  # half of 16 and 32
        ((120, 496), "grows faster than the size"),  # pairs of positions
    ],
)
def test_extents_that_cannot_be_told_are_refused(extents: tuple[int, int], said: str) -> None:
    with pytest.raises(GrowthError, match=said):
        Sizes(16, 32).extent(*extents, 47)


HEAD = "HloModule m, is_scheduled=true\n\nENTRY %main (a: f32[{n},8]) -> f32[{n},8] {{\n"


def _module(size: int, body: str, **extents: int) -> hlo.HloModule:
    text = HEAD + "  %a = f32[{n},8]{{1,0}} parameter(0)\n" + body + "\n}}\n"
    return hlo.parse(text.format(n=size, **extents))


def test_a_reshape_that_would_lose_elements_is_refused() -> None:
    body = "  ROOT %b = f32[{m}]{{0}} bitcast(%a)"
    growth = Growth(_module(4, body, m=32), _module(8, body, m=64), (2, 4))
    assert growth.shapes_at(3) is not None
    odd = Growth(_module(3, body, m=24), _module(8, body, m=64), (2, 4))
    with pytest.raises(GrowthError, match="not be an integer"):
        odd.shapes_at(3)
    square = "  %b = f32[{n},{n}]{{1,0}} broadcast(%a)\n  ROOT %c = f32[{m}]{{0}} bitcast(%b)"
    bent = Growth(_module(12, square, m=144), _module(14, square, m=196), (2, 4))
    with pytest.raises(GrowthError, match="would change the number of elements"):
        bent.shapes_at(6)


def test_arrays_that_are_alike_at_one_size_alone_are_noticed() -> None:
    body = "  %b = f32[4,8]{{1,0}} constant({{...}})\n  ROOT %c = f32[{n},8]{{1,0}} negate(%a)"
    growth = Growth(_module(4, body), _module(6, body), (4, 6))
    assert growth.shapes_at(9) is None
    assert growth.shapes_at(9, of_other=True) is not None
    assert growth.shapes_at(4, of_other=True) is None


def test_sizes_must_differ_and_arrays_have_bytes_to_count() -> None:
    body = "  ROOT %c = f32[{n},8]{{1,0}} negate(%a)"
    with pytest.raises(CommandError, match="at two different sizes"):
        Growth(_module(4, body), _module(4, body), (4, 4))
    with pytest.raises(CommandError, match="nothing grows"):
        Growth(_module(4, body), _module(4, body), (4, 6))
    with pytest.raises(CommandError, match="in the order of the programs"):
        Growth(_module(4, body), _module(6, body), (6, 4))
    growth = Growth(_module(4, body), _module(6, body), (4, 6))
    with pytest.raises(GrowthError, match="is too large"):
        growth.shapes_at(2**62)
