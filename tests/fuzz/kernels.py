"""Native kernels called directly, on texts and numbers that no reader has looked at before.

In: a random generator, and the files of the current folder. A kernel may answer, leave the text to
Python, or raise `ValueError` or `TypeError`; a crash ends the process, and sanitizers say where
(`make sanitize`). What kernels answer is held to Python by the properties of each.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlomem import hlo
from hlomem.base.errors import HlomemError
from hlomem.base.native import kernel
from hlomem.dump.records import Position, Use
from hlomem.hlo.text.scanner import ComputationText

if TYPE_CHECKING:
    from random import Random

_LARGE = [0, 1, -1, 63, 64, 2**31, 2**53 - 1, 2**53, 2**61, 2**63 - 1, 2**64, -(2**63)]


def call_kernels(random: Random) -> None:
    """Each kernel that was built, a few times."""
    for path in sorted(Path().iterdir()):
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        for _ in range(3):
            _read(random, text)
        with suppress(HlomemError):
            module = hlo.parse(text)  # links bodies by the kernel, as far as they are right
            for computation in module.computations:
                _ = computation.instructions
    _pack(random)
    _sweep(random)


_PARTS = {
    "computations": re.compile(r"(?<=\n)\n(?=[^\n])"),
    "rows": re.compile(r"(?<=\{)\n  .*?(?=\n\})", re.DOTALL),
    "allocations": re.compile(r"^allocation \d", re.MULTILINE),
    "values": re.compile(r"^<\d", re.MULTILINE),
    "sequence": re.compile(r"(?<=InstructionSequence:\n)(?:    [^\n]*\n)*"),
    "ranges": re.compile(r"(?<=BufferLiveRange:\n)(?:    [^\n]*\n)*"),
}
"""Where a reader would call each kernel; what is read to the end of the text begins there."""


def _part(random: Random, text: str, kind: str) -> tuple[int, int]:
    """A part of a text: such as a reader would ask for, or any, even outside of it."""
    spans = [match.span() for match in _PARTS[kind].finditer(text)]
    if not spans or random.random() < 0.2:
        start, end = sorted(random.randint(-1, len(text) + 1) for _ in range(2))
        return start, end
    start, end = random.choice([spans[0], random.choice(spans)])
    return start, len(text) if kind in {"allocations", "values", "computations"} else end


def _read(random: Random, text: str) -> None:
    """The kernels that read texts."""
    scanner, lines = "hlomem.hlo.text._scanner", "hlomem.dump._lines"
    _call(scanner, "computations", text, _part(random, text, "computations")[0], ComputationText)
    rows = _part(random, text, "rows")
    for function in ("calling_rows", "operand_rows", "body_form"):
        _call(scanner, function, text, *rows)
    _call("hlomem.check._form", "blur", text[slice(*rows)])
    style = random.choice([(True, True), (True, False), (False, True), (False, False)])
    _call(lines, "read_values", text, *_part(random, text, "values"), *style, Position, Use)
    _call(lines, "read_allocations", text, *_part(random, text, "allocations"))
    for kind in ("sequence", "ranges"):
        _call(lines, f"read_{kind}", text[slice(*_part(random, text, kind))])


def _pack(random: Random) -> None:
    """The heap, on buffers that are mostly right."""
    slots, is_wild = random.choice([1, 5, 300]), random.random() < 0.2
    sizes, lives = [], []
    for _ in range(random.randint(0, 60)):
        sizes.append(random.choice(_LARGE) if is_wild else random.randint(1, 1 << 20))
        life = sorted(random.randint(0, slots - 1) for _ in range(2))
        if is_wild and random.random() < 0.1:
            life = [life[1] + 1, life[0] - 1]
        lives.append((tuple(life),) * random.randint(0 if is_wild else 1, 3))
    alignment = random.choice(_LARGE if is_wild else [1, 3, 64])
    below = random.choice([0, 0, 1 << 21, *(_LARGE if is_wild else ())])
    _call("hlomem.assign._heap", "place", sizes, lives, slots, alignment, below)


def _sweep(random: Random) -> None:
    """Pairs that share bytes, among stays that mostly have an order."""
    most, is_wild = random.choice([50, 1000, 2**40, 2**61, 2**70]), random.random() < 0.2
    stays = []
    for number in range(random.randint(0, 80)):
        first, start = random.randint(0, most), random.randint(0, most)
        length, size = (random.randint(-1 if is_wild else 0, most // 8 + 1) for _ in range(2))
        stays.append((first, first + length, number, start, start + size, object()))
    if not is_wild:
        stays.sort(key=lambda stay: stay[:3])
    limit = random.choice([0, 16 * len(stays), 1 << 40])
    _call("hlomem.view._sweep", "find_sharing", stays, limit)


def _call(module: str, function: str, *arguments: Any) -> None:
    native = kernel(module, function)
    if native is not None:
        with suppress(ValueError, TypeError, OverflowError):
            native(*arguments)
