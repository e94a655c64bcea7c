"""Edits as files anyone can read: a program, what is done to it, and what becomes of it.

`tests/opt/edits/README.md` tells what stands in such a file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.hlo.text.printer import format_computation
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt.candidate import Candidate, Program, choose_cheapest, start_text
from hlomem.opt.goal import Budget, Offload, Order, Rules, WorkLeft
from hlomem.opt.loops.change import change_loops
from hlomem.opt.loops.relaid import relay_stacks
from hlomem.opt.loops.segments import segment_loops
from hlomem.opt.orders.planned_orders import other_bytes, temporary_bytes
from hlomem.opt.remat.copies import drop_copies
from hlomem.opt.remat.cut import cut, cut_inside
from hlomem.opt.remat.inside import lower_inside
from hlomem.opt.strategies import prepared, propose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloModule
    from hlomem.pipeline import Stages

HOME = Path(__file__).parent / "edits"
RUN, BECOMES = "// RUN: ", "// BECOMES "
_RUN = re.compile(rf"^{RUN}([\w-]+)((?: \w+=\S+)*)$", re.MULTILINE)


class Fixture(NamedTuple):
    """One of the files."""

    path: Path
    text: str
    """All of it."""

    @property
    def command(self) -> str:
        """What is done."""
        return self._run()[1]

    @property
    def settings(self) -> Mapping[str, str]:
        """How it is done."""
        return dict(pair.split("=") for pair in self._run()[2].split())

    @property
    def may_run(self) -> bool:
        """Whether XLA:CPU wrote the program, or takes it."""
        is_known = "// Origin: jaxlib" in self.text or "XLA:CPU runs it" in self.text
        return is_known and "machine" not in self.settings

    @property
    def program(self) -> str:
        """The text of the program."""
        head, _, rest = self.text.partition("HloModule ")
        assert head.startswith(RUN), f"{self.path.name} begins with its RUN line"
        return f"HloModule {rest.partition(BECOMES)[0]}"

    @property
    def expected(self) -> str:
        """What becomes of it."""
        before, mark, after = self.text.partition(BECOMES)
        return f"{mark}{after}" if before else ""

    @property
    def temporaries(self) -> tuple[int, int]:
        """Bytes before the edit and after it."""
        found = re.match(rf"{BECOMES}(\d+) bytes of temporaries, from (\d+)\.", self.expected)
        assert found is not None, f"{self.path.name} says what becomes of its program"
        return int(found[2]), int(found[1])

    def with_expected(self, expected: str) -> str:
        """The file with another outcome."""
        return f"{self.text.partition(BECOMES)[0].rstrip()}\n\n{expected}"

    def _run(self) -> re.Match[str]:
        found = _RUN.match(self.text)
        assert found is not None, f"{self.path.name} begins with its RUN line"
        return found


def iter_fixtures() -> list[Fixture]:
    """All of them."""
    return [Fixture(path, path.read_text(encoding="utf-8")) for path in sorted(HOME.glob("*.hlo"))]


def plan(fixture: Fixture, module: HloModule) -> Stages:
    """A program of a fixture, planned for the fixture's machine."""
    machine = find_machine(*fixture.settings.get("machine", "cpu-").split("-"))
    return start_text(module, options_for(machine, Release("jaxlib", (0, 12, 0, 1))))


def edit(fixture: Fixture, module: HloModule) -> Candidate:
    """What a fixture's command makes of a program."""
    given = Program(plan(fixture, module), Rules()).start()
    share = float(fixture.settings.get("budget", "0%").rstrip("%")) / 100
    room, price = round(share * given.temporaries), int(fixture.settings.get("price", 0))
    made: Candidate | None = None
    if fixture.command == "order":
        [made] = propose(given, Order())
    elif fixture.command == "recompute":
        limit = other_bytes(given.plan) + room
        made = choose_cheapest(list(propose(given, Budget(limit))), limit)
    elif fixture.command == "cut":
        made = cut(given, price)
    elif fixture.command == "cut-in-loop":
        made = cut_inside(given, price)
    elif fixture.command == "loops":
        made = change_loops(given, price)
    elif fixture.command == "segments":
        made = segment_loops(given)
    elif fixture.command == "relay":
        made = relay_stacks(given)
    elif fixture.command == "prepare":
        made = list(prepared(given))[-1]
    elif fixture.command == "copies":
        made = drop_copies(given)
    elif fixture.command == "inside":
        made = lower_inside(given, other_bytes(given.plan) + room, WorkLeft("default"))[-1]
    elif fixture.command == "offload":
        [made] = propose(given, Offload(room))
    assert made is not None, "nothing is better"
    return made


def describe(fixture: Fixture, given: HloModule, edited: HloModule) -> str:
    """What becomes of a program: its temporaries, and the computations that are new or others."""
    sizes = [temporary_bytes(plan(fixture, module)) for module in (given, edited)]
    style = hlo.parse(fixture.program).style
    before, after = (
        {one.name: format_computation(one, style) for one in module.computations}
        for module in (given, edited)
    )
    gone = [f"// {name} is gone." for name in before if name not in after]
    parts = [text for name, text in after.items() if before.get(name) != text]
    head = f"{BECOMES}{sizes[1]} bytes of temporaries, from {sizes[0]}."
    return "\n".join([head, *gone]) + "\n\n" + "\n\n".join(parts) + "\n"
