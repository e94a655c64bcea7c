"""Wrong edits of a module's text, for checks that judges refuse them.

`spoil(text, chance)` lets an instruction read another value of the same shape, or makes a counter's
constant another number. What comes out still reads as a module, mostly.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_LINE = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = (\S+|\(.*?\)) ([\w\-]+)\(", re.MULTILINE)
_BODY = re.compile(r"^(?:ENTRY )?%[^\n]*\{\n.*?^\}", re.MULTILINE | re.DOTALL)
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
