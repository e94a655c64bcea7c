"""The versions (eras) of the format (docs/dump-format.md); "?" reads and writes unknown text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec.structs import asdict, replace

from hlomem.dump.records import Record
from hlomem.dump.values import Style
from hlomem.machines.releases import (
    ERA_RELEASES,
    JAXLIB,
    LIBTPU,
    EraReleases,
    era_number,
    releases_of_era,
)

if TYPE_CHECKING:
    from hlomem.machines.releases import Release

ReportShape = Literal["none", "by-allocation", "by-space"]


class Features(Record, frozen=True):
    """The features of a text's format; None where the text does not show."""

    split: bool | None = None
    """Four files rather than one."""
    space_before_instruction: bool | None = None
    """`from instruction: %x` rather than `from instruction:%x`."""
    newline_after_instruction: bool | None = None
    """The next value begins on its own line."""
    operand_shapes: bool | None = None
    """`add(f32[2] %a, f32[2] %b)` rather than `add(%a, %b)`."""
    peak_index: bool | None = None
    """Buffers at the peak carry their shape index."""
    peak_cumulative: bool | None = None
    """Buffers at the peak are sorted by size and summed up."""
    stack_trace: bool | None = None
    """The peak is broken down by stack trace."""
    says_none: bool | None = None
    """A value without uses says `(none)`."""
    pages: bool | None = None
    """Allocations name their page."""
    report: frozenset[ReportShape] | None = None
    """The possible shapes of the usage report."""

    def agrees_with(self, other: Features) -> bool:
        """Whether no feature known to both differs; reports agree if they share a shape."""
        said = asdict(other)
        for name, mine in asdict(self).items():
            theirs = said[name]
            if mine is None or theirs is None:
                continue
            if not (mine & theirs if name == "report" else mine == theirs):
                return False
        return True

    def merged_with(self, other: Features) -> Features:
        """The union of both; `other` takes precedence."""
        known = {name: said for name, said in asdict(other).items() if said is not None}
        return replace(self, **known)


class Era(Record, frozen=True):
    """A version of the format."""

    letter: str
    features: Features
    jaxlib: tuple[str, str] | None = None
    """The first and last release that writes it."""
    libtpu: tuple[str, ...] = ()
    """The releases seen that write it."""

    @property
    def style(self) -> Style:
        return Style(
            space_before_instruction=self.features.space_before_instruction is not False,
            newline_after_instruction=self.features.newline_after_instruction is not False,
            says_none=bool(self.features.says_none),
        )

    def __str__(self) -> str:
        return self.describe()

    def describe(self, package: str = "") -> str:
        """The era with its releases, of one package or of all."""
        if self.jaxlib is None:
            return f"era {self.letter}"
        first, last = self.jaxlib
        releases = [f"jaxlib {first}" if first == last else f"jaxlib {first} to {last}"]
        if package == LIBTPU and self.libtpu:
            releases.clear()
        if package != JAXLIB and self.libtpu:
            releases.append(f"libtpu {', '.join(self.libtpu)}")
        return f"era {self.letter} ({', '.join(releases)})"


_NONE: frozenset[ReportShape] = frozenset({"none"})
_BY_ALLOCATION: frozenset[ReportShape] = frozenset({"by-allocation"})
_BY_SPACE: frozenset[ReportShape] = frozenset({"by-space"})

_A = Features(
    split=False,
    space_before_instruction=False,
    newline_after_instruction=True,
    operand_shapes=True,
    peak_index=False,
    peak_cumulative=False,
    stack_trace=False,
    says_none=False,
    pages=False,
    report=_NONE,
)
_B = replace(
    _A,
    space_before_instruction=True,
    newline_after_instruction=False,
    report=_NONE | _BY_ALLOCATION,  # jaxlib 0.4.35 and libtpu 0.0.2 write one, older ones do not
)
_C = replace(_B, newline_after_instruction=True, report=_BY_ALLOCATION)
_D = replace(_C, operand_shapes=False)
_E = replace(_D, peak_index=True)
_F = replace(_E, peak_cumulative=True)
_G = replace(_F, stack_trace=True)
_H = replace(_G, report=_BY_SPACE)
_I = replace(_H, split=True)
_J = replace(_I, says_none=True)
_K = replace(_J, pages=True)

_FEATURES = (_A, _B, _C, _D, _E, _F, _G, _H, _I, _J, _K)

ERAS: tuple[Era, ...] = tuple(
    Era(era.letter, features, era.jaxlib, era.libtpu)
    for era, features in zip(ERA_RELEASES, _FEATURES, strict=True)
)
NEWEST = ERAS[-1]


def recognise(seen: Features) -> tuple[Era, ...]:
    """The eras that match a text's features, oldest first; never empty."""
    return tuple([era for era in ERAS if era.features.agrees_with(seen)]) or (Era("?", seen),)


def describe(eras: tuple[Era, ...], package: str = "") -> str:
    """The recognised eras as text, with the releases of one package or of all."""
    if eras[0].letter == "?":
        return "era unknown (no known XLA writes this combination)"
    if len(eras) == 1:
        return eras[0].describe(package)
    first, last = eras[0].jaxlib, eras[-1].jaxlib
    releases = f" (jaxlib {first[0]} to {last[1]})" if first and last else ""
    return f"one of eras {', '.join(era.letter for era in eras)}{releases}"


def era_of(release: Release) -> Era:
    """The era of a release, or the nearest one."""
    return ERAS[era_number(release)]


def releases_of(era: Era, package: str) -> list[Release]:
    assert era.jaxlib is not None
    return releases_of_era(EraReleases(era.letter, era.jaxlib, era.libtpu), package)
