"""The versions of the dump format and what changed between them, as data.

An era is a set of features, each seen in the text. `recognise` compares what a text shows with
every era; where the text does not show enough, several remain, and where it shows a combination
no known XLA writes, the answer is an era of its own, "?", which still reads and writes that text.
The evidence is in docs/dump-format.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from hlomem.dump.values import Style
from hlomem.errors import CommandError

ReportShape = Literal["none", "by-allocation", "by-space"]


@dataclass(frozen=True, slots=True)
class Features:
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
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if mine is None or theirs is None:
                continue
            if not (mine & theirs if each.name == "report" else mine == theirs):
                return False
        return True

    def merged_with(self, other: Features) -> Features:
        """Both together, the other's word counting where both speak."""
        known = {f.name: v for f in fields(other) if (v := getattr(other, f.name)) is not None}
        return replace(self, **known)


@dataclass(frozen=True, slots=True)
class Era:
    """A version of the format: its features and the releases that write it."""

    letter: str
    features: Features
    jaxlib: tuple[str, str] | None = None
    """First and last release."""
    libtpu: tuple[str, ...] = field(default=())
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
    Era("G", _G, ("0.7.1", "0.9.0"), ("0.0.24", "0.0.34")),
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


_VERSION = re.compile(r"(?:(jaxlib|libtpu)-)?(\d+(?:\.\d+){1,3})$")


def era_of(name: str) -> Era:
    """The era with a letter (`K`) or of a release (`jaxlib-0.7.2`, `libtpu-0.0.34`)."""
    for era in ERAS:
        if name.upper() == era.letter:
            return era
    match = _VERSION.match(name)
    if match is None:
        letters = ", ".join(era.letter for era in ERAS)
        raise CommandError(f"no era `{name}`: give one of {letters}, or `jaxlib-0.7.2`")
    wanted = _release(match[2])
    firsts = [
        (_release(_first_release(era, match[1])), era)
        for era in ERAS
        if _first_release(era, match[1])
    ]
    older = [era for first, era in firsts if first <= wanted]
    return older[-1] if older else firsts[0][1]


def _first_release(era: Era, package: str | None) -> str:
    if package == "libtpu":
        return era.libtpu[0] if era.libtpu else ""
    return era.jaxlib[0] if era.jaxlib else ""


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
