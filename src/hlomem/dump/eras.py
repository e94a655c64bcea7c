"""The versions of the dump format and what changed between them, as data.

An era is a set of features, each seen in the text. `recognise` compares what a text shows with
every era; where the text does not show enough, several remain, and where it shows a combination
no known XLA writes, the answer is an era of its own, "?", which still reads and writes that text.
The evidence is in docs/dump-format.md.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from msgspec.structs import asdict, replace

from hlomem.base.errors import CommandError
from hlomem.dump.records import Record
from hlomem.dump.values import Style

ReportShape = Literal["none", "by-allocation", "by-space"]


class Features(Record, frozen=True):
    """What a text shows of the XLA that wrote it; None where it shows nothing."""

    split: bool | None = None
    """Four files rather than one."""
    space_before_instruction: bool | None = None
    """`from instruction: %x` rather than `from instruction:%x`."""
    newline_after_instruction: bool | None = None
    """The next value begins on a line of its own."""
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
    """The shapes the usage report may have."""

    def agrees_with(self, other: Features) -> bool:
        """Whether no feature known to both differs; reports agree when they share a shape."""
        said = asdict(other)
        for name, mine in asdict(self).items():
            theirs = said[name]
            if mine is None or theirs is None:
                continue
            if not (mine & theirs if name == "report" else mine == theirs):
                return False
        return True

    def merged_with(self, other: Features) -> Features:
        """Both together, the other's word counting where both speak."""
        known = {name: said for name, said in asdict(other).items() if said is not None}
        return replace(self, **known)


class Era(Record, frozen=True):
    """A version of the format: its features and the releases that write it."""

    letter: str
    features: Features
    jaxlib: tuple[str, str] | None = None
    """First and last release."""
    libtpu: tuple[str, ...] = ()
    """Releases seen."""

    @property
    def style(self) -> Style:
        """How values are laid out."""
        return Style(
            space_before_instruction=self.features.space_before_instruction is not False,
            newline_after_instruction=self.features.newline_after_instruction is not False,
            says_none=bool(self.features.says_none),
        )

    def __str__(self) -> str:
        if self.jaxlib is None:
            return f"era {self.letter}"
        first, last = self.jaxlib
        releases = f"jaxlib {first}" if first == last else f"jaxlib {first} to {last}"
        tpu = f", libtpu {', '.join(self.libtpu)}" if self.libtpu else ""
        return f"era {self.letter} ({releases}{tpu})"


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

ERAS: tuple[Era, ...] = (
    Era("A", _A, ("0.4.13", "0.4.23")),
    Era("B", _B, ("0.4.24", "0.4.35"), ("0.0.2",)),
    Era("C", _C, ("0.4.36", "0.5.1"), ("0.0.4",)),
    Era("D", _D, ("0.5.3", "0.5.3"), ("0.0.11.1",)),
    Era("E", _E, ("0.6.0", "0.6.0")),
    Era("F", _F, ("0.6.1", "0.7.0"), ("0.0.17",)),
    Era("G", _G, ("0.7.1", "0.9.1"), ("0.0.24", "0.0.34")),
    Era("H", _H, ("0.9.2", "0.9.2")),
    Era("I", _I, ("0.10.0", "0.10.1")),
    Era("J", _J, ("0.10.2", "0.11.0")),
    Era("K", _K, ("0.11.1", "0.12.0.1"), ("0.0.51",)),
)
NEWEST = ERAS[-1]


def recognise(seen: Features) -> tuple[Era, ...]:
    """The eras a text with these features can be of, oldest first; never empty."""
    return tuple([era for era in ERAS if era.features.agrees_with(seen)]) or (Era("?", seen),)


def describe(eras: tuple[Era, ...]) -> str:
    """The recognised eras in words."""
    if eras[0].letter == "?":
        return "era unknown (no XLA we know writes this combination)"
    if len(eras) == 1:
        return str(eras[0])
    first, last = eras[0].jaxlib, eras[-1].jaxlib
    releases = f" (jaxlib {first[0]} to {last[1]})" if first and last else ""
    return f"one of eras {', '.join(era.letter for era in eras)}{releases}"


class Release(NamedTuple):
    """A version of the package XLA came in."""

    package: str
    """`jaxlib`, or `libtpu` on TPU."""
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.package}-{'.'.join(map(str, self.version))}"


_RELEASE = r"(?:(jaxlib|libtpu)-)?([0-9]{1,9}(?:\.[0-9]{1,9}){1,3})$"


def find_release(name: str, package: str = "jaxlib") -> Release:
    """The release with a version (`jaxlib-0.7.2`, `0.7.2`), or the last of an era (`K`).

    `package` is meant where the name does not say, or the era has none of the package it says.
    """
    for era in ERAS:
        if name.upper() == era.letter:
            return _last_release(era, package)
    match = re.match(_RELEASE, name)
    if match is None:
        letters = ", ".join(era.letter for era in ERAS)
        raise CommandError(f"no era `{name}`: give one of {letters}, or a release: jaxlib-0.7.2")
    return Release(match[1] or package, _version(match[2]))


def era_of(release: Release) -> Era:
    """The era whose format a release writes; older and newer ones count as the nearest."""
    firsts = [(first, era) for era in ERAS if (first := _first_version(era, release.package))]
    older = [era for first, era in firsts if first <= release.version]
    return older[-1] if older else firsts[0][1]


def releases_of(era: Era, package: str) -> list[Release]:
    """Releases that write an era's format, the newest first: all seen, or the last and the first.

    Those of jaxlib where the package has none.
    """
    if package == "libtpu" and era.libtpu:
        return [Release(package, _version(each)) for each in reversed(era.libtpu)]
    assert era.jaxlib is not None
    first, last = era.jaxlib
    return [Release("jaxlib", _version(each)) for each in dict.fromkeys((last, first))]


def nearest_libtpu(release: Release) -> Release:
    """The libtpu of a release's time: the last one seen of its era, or of an era before."""
    if release.package == "libtpu":
        return release
    until = ERAS.index(era_of(release)) + 1
    seen = [era for era in ERAS[:until] if era.libtpu] or [era for era in ERAS if era.libtpu][:1]
    return _last_release(seen[-1], "libtpu")


def _first_version(era: Era, package: str) -> tuple[int, ...]:
    if package == "libtpu":
        return _version(era.libtpu[0]) if era.libtpu else ()
    return _version(era.jaxlib[0]) if era.jaxlib else ()


def _last_release(era: Era, package: str) -> Release:
    if package == "libtpu" and era.libtpu:
        return Release(package, _version(era.libtpu[-1]))
    assert era.jaxlib is not None
    return Release("jaxlib", _version(era.jaxlib[1]))


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
