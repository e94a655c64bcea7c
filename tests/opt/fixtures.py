"""Edits as files anyone can read: a program, what is done to it, and what becomes of it.

`tests/opt/edits/README.md` tells what stands in such a file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.text.printer import format_computation
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.orders.search import improve
from hlomem.opt.remat.budget_search import Budget, fit
from hlomem.opt.remat.edit import apply_edit
from hlomem.opt.remat.offload import choose_moves, make_moves
from hlomem.opt.remat.variants import Variant, change_loops, cut_inside, iter_variants
from hlomem.pipeline import Stages, in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloModule

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
        """Whether XLA:CPU wrote the program."""
        return "// Origin: jaxlib" in self.text and "machine" not in self.settings

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
    options = options_for(machine, Release("jaxlib", (0, 12, 0, 1)))
    return start_stages(module, options, order_lists=in_text_order)


def edit(fixture: Fixture, module: HloModule) -> HloModule:
    """What a fixture's command makes of a program."""
    settings, stages = fixture.settings, plan(fixture, module)
    share = float(settings.get("budget", "0%").rstrip("%")) / 100
    budget, price = round(share * temporary_bytes(stages)), int(settings.get("price", 0))
    if fixture.command == "order":
        rewriter = Rewriter(module)
        rewriter.schedule(improve(stages, "default").orders)
        return rewriter.finish()
    if fixture.command == "recompute":
        points = fit(stages, budget, None, Budget("default")).points
        cheapest = min(
            (one for one in points if one.temporaries <= budget), key=lambda one: one.flops
        )
        return apply_edit(module, cheapest.edit)
    if fixture.command == "offload":
        color = stages.options.machine.host_color
        assert color is not None
        return make_moves(module, choose_moves(stages, budget), color)
    variant: Variant | None = None
    if fixture.command == "cut":
        variant = next(iter_variants(stages, price))
    elif fixture.command == "cut-in-loop":
        variant = cut_inside(Variant((), stages, 0), price)
    elif fixture.command == "loops":
        variant = change_loops(stages, price)
    assert variant is not None, "nothing is better"
    return variant.changes[-1].module


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
