"""Programs as the tests of recomputation need them: chains, and goldens with enough temporaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem import hlo
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.orders.programs import CPU, stages_of

if TYPE_CHECKING:
    from hlomem.pipeline import Stages

HOMES = [
    home
    for home in sorted(CPU.iterdir())
    if (home / "module.hlo").exists() and temporary_bytes(stages_of(home)) >= 1 << 14
]
"""Goldens for CPU whose temporaries are worth it."""
HOST = 5
"""The host's memory, as GPUs and TPUs number it."""
MEBIBYTE = 1 << 20
SIDE = 512
SHAPE = f"f32[{SIDE},{SIDE}]{{1,0}}"
WIDE = """\
HloModule m, is_scheduled=true

ENTRY %main (p: f32[4096], q: f32[4096]) -> f32[] {
  %p = f32[4096]{0} parameter(0)
  %q = f32[4096]{0} parameter(1)
  %a = f32[4096]{0} sine(%p)
  %b = f32[4096]{0} cosine(%q)
  %wide = f32[8192]{0} concatenate(%a, %b), dimensions={0}
  %dot = f32[] dot(%wide, %wide), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT %r = f32[] negate(%dot)
}
"""
"""A program whose floor is one instruction's."""


def chain(count: int) -> str:
    """Values made one from another, and read in the reverse order."""
    forth = "".join(
        f"  %a{number} = f32[4096]{{0}} tanh(%a{number - 1})\n" for number in range(1, count)
    )
    back = "".join(
        f"  %g{number} = f32[4096]{{0}} multiply(%g{number + 1}, %a{number})\n"
        for number in reversed(range(1, count))
    )
    return (
        "HloModule m, is_scheduled=true\n\n"
        "ENTRY %main (p: f32[4096]) -> f32[4096] {\n"
        "  %p = f32[4096]{0} parameter(0)\n"
        f"{'  %a0 = f32[4096]{0} sine(%p)'}\n{forth}"
        f"  %g{count} = f32[4096]{{0}} negate(%a{count - 1})\n{back}"
        "  ROOT %r = f32[4096]{0} cosine(%g1)\n}\n"
    )


def gpu_chain(
    count: int = 8, views: str = "", *, is_opaque: bool = False, is_early: bool = False
) -> Stages:
    """Values of 1 MiB made one from another, read in the reverse order; maybe through bitcasts.

    Of opaque ones nobody knows how they are made, so that they cannot be made again. One more is
    made too early for a good order, if that is asked for.
    """
    shape, other = "f32[262144]{0}", "f32[512,512]{1,0}"
    lines = [f"%p = {shape} parameter(0)", f"%a0 = {shape} sine(%p)"]
    if is_early:
        lines.append(f"%e = {shape} exponential(%p)")
    for number in range(1, count):
        call = ("custom-call", ', custom_call_target="f"') if is_opaque else ("tanh", "")
        lines.append(f"%a{number} = {shape} {call[0]}(%a{number - 1}){call[1]}")
        if views:
            lines.append(f"%v{number} = {other} bitcast(%a{number})")
    lines.append(f"%g{count} = {other if views else shape} {'bitcast' if views else 'negate'}(%p)")
    for number in reversed(range(1, count)):
        kind, read = (other, f"%v{number}") if views else (shape, f"%a{number}")
        lines.append(f"%g{number} = {kind} multiply(%g{number + 1}, {read})")
    result = other if views else shape
    last = f"add(%g1, %{'e' if is_early else 'g1'})"
    lines.append(f"ROOT %r = {result} {last}")
    body = "\n".join(f"  {line}" for line in lines)
    text = (
        "HloModule m, is_scheduled=true\n\n"
        f"ENTRY %main (p: f32[262144]) -> {result.partition('{')[0]} {{\n{body}\n}}\n"
    )
    options = options_for(find_machine("gpu", "h200"), Release("jaxlib", (0, 11, 2)))
    return start_stages(hlo.parse(text), options, order_lists=in_text_order)


def products(count: int) -> str:
    """A value that is cheap to make, read before and behind a chain of products."""
    chain = "".join(
        f"  %d{number} = {SHAPE} dot(%d{number - 1}, %p), lhs_contracting_dims={{1}},"
        " rhs_contracting_dims={0}\n"
        for number in range(1, count + 1)
    )
    return (
        "HloModule m, is_scheduled=true\n\n"
        f"ENTRY %main (p: f32[{SIDE},{SIDE}]) -> f32[1,{SIDE}] {{\n"
        f"  %p = {SHAPE} parameter(0)\n"
        f"  %t = {SHAPE} tanh(%p)\n"
        f"  %d0 = {SHAPE} negate(%t)\n{chain}"
        f"  %s = {SHAPE} multiply(%d{count}, %t)\n"
        f"  ROOT %r = f32[1,{SIDE}]{{1,0}} slice(%s), slice={{[0:1], [0:{SIDE}]}}\n}}\n"
    )
