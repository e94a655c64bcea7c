"""Checking a dump, against its module if there is one; findings are ordered by family."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from hlomem.check.against_module import check_against_module
from hlomem.check.aliases import check_aliases, join_fusions
from hlomem.check.completeness import check_completeness, check_texts
from hlomem.check.findings import Finding, NotChecked, Verdict
from hlomem.check.geometry import check_geometry
from hlomem.check.interference import Interference
from hlomem.check.liveness import Liveness
from hlomem.check.order import check_order
from hlomem.check.ownership import check_ownership
from hlomem.check.program import TracedProgram, trace_program
from hlomem.check.registers import in_registers
from hlomem.check.required_times import ListedNeeds, TracedNeeds
from hlomem.check.totals import check_peak, check_totals
from hlomem.view.control_flow import Structure, find_structure
from hlomem.view.families import find_alias_classes
from hlomem.view.guess_machine import MachineGuess, choose_machine
from hlomem.view.joined import JoinedDump, join_dump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.machine import Machine

MAX_FINDINGS = 1000
"""Per family of rules."""


def verify(
    dump: Dump, *, module: HloModule | None = None, machine: Machine | None = None
) -> Verdict:
    """Check a plan; `module` is by default found next to the dump, `machine` inferred."""
    return verify_joined(join_dump(dump), module=module or dump.module, machine=machine)


def verify_joined(
    joined: JoinedDump, *, module: HloModule | None = None, machine: Machine | None = None
) -> Verdict:
    guess = choose_machine(joined, machine)
    program, why_not = _matching_program(joined, module)
    structure = program.structure if program is not None else find_structure(joined)
    families = find_alias_classes(joined, structure)
    if program is not None:
        join_fusions(joined, program, families)
    needs = TracedNeeds(joined, program) if program is not None else ListedNeeds(joined, structure)
    liveness = Liveness(joined, families, structure, needs)
    interference = Interference(joined, families, structure, program)
    checks = [
        check_geometry(joined, guess),
        check_completeness(joined),
        check_ownership(joined),
        check_totals(joined),
        check_peak(joined),
        check_aliases(joined, families),
        liveness.check(),
        interference.check(),
        check_texts(joined, program.instruction_by_name if program is not None else ()),
    ]
    if program is not None:
        checks += [check_order(joined, program), check_against_module(joined, program)]
    findings = [list(islice(check, MAX_FINDINGS)) for check in checks]
    return Verdict(
        name=joined.dump.title,
        findings=tuple(finding for found in findings for finding in found),
        not_checked=(
            *_not_checked(joined, guess, structure),
            *([NotChecked(BY_MODULE, why_not)] if why_not else ()),
            *(_left_out(found) for found in findings if len(found) == MAX_FINDINGS),
        ),
        assumed=(f"a plan for {guess.machine.name}, because {guess.reason}",)
        if guess.reason
        else (),
        value_count=len(joined.placed),
        allocation_count=len(joined.allocations),
        pair_count=interference.pair_count,
    )


def _matching_program(
    joined: JoinedDump, module: HloModule | None
) -> tuple[TracedProgram | None, str]:
    """The module, if it contains most names of the dump's sequence; else why not."""
    if module is None:
        return None, "there is no module"
    try:
        program = trace_program(module, joined)
    except (LookupError, ValueError):
        return None, "calls, operands and shapes of the module do not fit together"
    if program.flow.called_twice is not None:
        return None, f"{program.flow.called_twice.name} is called twice, which XLA does not plan"
    known = sum(name in program.instruction_by_name for name in joined.sequence)
    if 2 * known <= len(joined.sequence):
        return None, "the module is of another program"
    return program, ""


BY_MODULE = "live ranges, uses and order by the module, in-place fusions, donations"


def _left_out(found: list[Finding]) -> NotChecked:
    family = found[-1].rule.partition("/")[0]
    return NotChecked(f"more of {family}", f"stopped after {len(found)} findings")


def _not_checked(
    joined: JoinedDump, guess: MachineGuess, structure: Structure
) -> Iterator[NotChecked]:
    dump = joined.dump
    if dump.assignment is None:
        yield NotChecked("everything about offsets", "the dump has no allocations")
        return
    if dump.values is None:
        reason = "the dump has no values (positions and uses)"
        yield NotChecked("alias, order, in-place", reason)
    if dump.live_ranges is None:
        yield NotChecked("interference, live", "the dump has no live ranges")
    if dump.report is None:
        yield NotChecked("totals/report", "the dump has no usage report")
    if not guess.explains_sizes:
        reason = f"most sizes are not those of {guess.machine.name}; give the backend"
        yield NotChecked("geometry/size-not-of-shape", reason)
    if guess.machine.default_alignment is None:
        colors = {allocation.color for allocation in joined.allocations}
        unknown = sorted(color for color in colors if guess.machine.alignment(color) is None)
        if unknown:
            shown = ", ".join(map(str, unknown))
            reason = f"the alignment of color {shown} of {guess.machine.name} is not known"
            yield NotChecked("geometry/misaligned", reason)
    if kept := in_registers(joined):
        reason = f"scalars of pipelined loops are assumed to stay in registers, {len(kept)} of them"
        yield NotChecked("their offsets and live ranges", reason)
    for name in structure.unknown:
        reason = f"the dump does not show the parts of {name}"
        yield NotChecked("alias", reason)
