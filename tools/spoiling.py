"""Wrong edits of a module's text, for checks that judges refuse them.

`spoil(text, chance)` lets an instruction read another value of the same shape, or makes a counter's
constant another number. `spoil_results` does it to fusions with several results: two of them change
places, one is taken for another, or one goes that is still taken. What comes out still reads as a
module, mostly.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_LINE = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = (\S+|\(.*?\)) ([\w\-]+)\(", re.MULTILINE)
_BODY = re.compile(r"^(?:ENTRY )?%[^\n]*\{\n.*?^\}", re.MULTILINE | re.DOTALL)
_SHAPE = re.compile(r"[a-z]+[0-9]*[a-z0-9]*\[[^\]]*\](?:\{[^}]*\})?")
_ROOT = re.compile(r"^  ROOT %[\w.\-]+ = \(.*?\) tuple\((.*?)\).*$", re.MULTILINE)
MAX_TRIES = 50


def spoil(text: str, chance: Random) -> str | None:
    """The text with one operand or number changed for another; None where nothing was found."""
    bodies = list(_BODY.finditer(text))
    for _ in range(MAX_TRIES):
        body = chance.choice(bodies)
        lines = list(_LINE.finditer(body.group()))
        line = chance.choice(lines)
        end = body.group().find("\n", line.end())
        whole = body.group()[line.start() : end]
        names = re.findall(r"%([\w.\-]+)", whole[line.end() - line.start() :])
        shape_of = {one[1]: one[2] for one in lines if one.start() < line.start()}
        wanted = [name for name in names if name in shape_of]
        if line[3] == "constant" and line[2].startswith("s32[]"):
            new = re.sub(r"constant\((-?\d+)\)", lambda m: f"constant({int(m[1]) + 1})", whole)
        elif wanted:
            name = chance.choice(wanted)
            others = [one for one in shape_of if shape_of[one] == shape_of[name] and one != name]
            if not others:
                continue
            new = whole.replace(f"%{name}", f"%{chance.choice(others)}", 1)
        else:
            continue
        if new != whole:
            start = body.start() + line.start()
            return f"{text[:start]}{new}{text[start + len(whole) :]}"
    return None


def spoil_results(text: str, chance: Random) -> str | None:
    """The text with the results of a fusion mixed up; None where none has two of one shape."""
    ways = [_swap_results, _take_another, _drop_result]
    for _ in range(MAX_TRIES):
        way = chance.choice(ways)
        new = way(text, chance)
        if new is not None and new != text:
            return new
    return None


def _fusions(text: str) -> list[tuple[re.Match[str], list[str]]]:
    """Fusions with several results, and the shapes of these."""
    found = [
        (line, _SHAPE.findall(line[2]))
        for line in _LINE.finditer(text)
        if line[3] == "fusion" and line[2].startswith("(")
    ]
    return [(line, shapes) for line, shapes in found if len(shapes) > 1]


def _swap_results(text: str, chance: Random) -> str | None:
    """Let the body of a fusion end in the same values in another order."""
    roots = [line for line in _ROOT.finditer(text) if line[1].count("%") > 1]
    if not roots:
        return None
    root = chance.choice(roots)
    names = re.findall(r"%[\w.\-]+", root[1])
    one, other = chance.sample(range(len(names)), 2)
    shapes = _SHAPE.findall(root[0].partition(" tuple(")[0])
    if len(shapes) != len(names) or shapes[one] != shapes[other]:
        return None
    names[one], names[other] = names[other], names[one]
    return f"{text[: root.start(1)]}{', '.join(names)}{text[root.end(1) :]}"


def _take_another(text: str, chance: Random) -> str | None:
    """Take a result of a fusion for another of its shape."""
    fusions = _fusions(text)
    if not fusions:
        return None
    fusion, shapes = chance.choice(fusions)
    pattern = rf"get-tuple-element\(%{re.escape(fusion[1])}\), index=(\d+)"
    taken = list(re.finditer(pattern, text))
    if not taken:
        return None
    taker = chance.choice(taken)
    number = int(taker[1])
    others = [one for one in range(len(shapes)) if one != number and shapes[one] == shapes[number]]
    if not others:
        return None
    return f"{text[: taker.start(1)]}{chance.choice(others)}{text[taker.end(1) :]}"


def _drop_result(text: str, chance: Random) -> str | None:
    """Drop the last result of a fusion, though somebody takes it."""
    fusions = _fusions(text)
    if not fusions:
        return None
    fusion, _ = chance.choice(fusions)
    callee = re.search(r"calls=%([\w.\-]+)", text[fusion.end() : text.find("\n", fusion.end())])
    if callee is None:
        return None
    body = re.compile(rf"^%{re.escape(callee[1])} .*?^  ROOT [^\n]*$", re.MULTILINE | re.DOTALL)
    found = body.search(text)
    if found is None:
        return None
    start = found.group().rindex("\n") + 1
    root = found.group()[start:]
    name = re.findall(r"%[\w.\-]+", root.partition(" tuple(")[2].partition(")")[0])[-1]
    fewer = re.sub(rf", (?:/\*index=\d+\*/)?{re.escape(name)}\)", ")", root, count=1)
    fewer = fewer.replace(_tuple_text(fewer), _without_last(_tuple_text(fewer)), 1)
    line = fusion.group()
    shorter = line.replace(fusion[2], _without_last(fusion[2]), 1)
    place = found.start() + start
    new = f"{text[:place]}{fewer}{text[place + len(root) :]}"
    return new.replace(line, shorter, 1)


def _tuple_text(line: str) -> str:
    return line.partition(" = ")[2].partition(" tuple(")[0]


def _without_last(shape: str) -> str:
    """A tuple's shape without its last element."""
    parts = re.split(r", (?=(?:/\*index=\d+\*/)?[a-z]+[0-9]*[a-z0-9]*\[)", shape[1:-1])
    return f"({', '.join(parts[:-1])})"
