"""In the child: JAX's compile, the same by libtpu's phases, and the smaller plan linked.

1. JAX compiles the program, or libtpu refuses it.
2. libtpu's own plan is linked phase by phase; the machine code has to be JAX's. Where JAX has none,
   a small program is compared, and phase 1 is told to go on without memory (`NO_CRASH_ON_OOM`).
3. Our packing of HBM temporaries, if smaller, is checked, linked, read back and checked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.api.improve import place_tightly
from hlomem.api.plan import plan as make_plan
from hlomem.jax.compile.messages import Linked
from hlomem.jax.linking.jax_side import Calls, interface_of, program_of, small_program, write_form
from hlomem.libtpu.partial_program import PhaseError
from hlomem.libtpu.phases import NO_CRASH_ON_OOM, Phases, machine_code
from hlomem.libtpu.pjrt import PhaseCompiler
from hlomem.libtpu.plans import check_executable, checked, hbm_bytes, temporary_bytes, with_packing
from hlomem.libtpu.versions import find_library
from hlomem.proto.module import read_module
from hlomem.proto.schema import parse_message

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.dump.dump import Dump
    from hlomem.jax.target_kinds import TpuTarget
    from hlomem.libtpu.partial_program import PartialProgram
    from hlomem.libtpu.phases import Compiled
    from hlomem.machines.machine import Machine

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"


def link_program(lowered: Any, target: TpuTarget, output: Path) -> Linked:
    """Link a Lowered, and write the executable as JAX's `serialize_executable` does."""
    library = find_library()
    calls = program_of(lowered)
    compiler = PhaseCompiler(library.path, target.topology_name, is_loaded=True)
    link = Link(Phases(compiler), calls, target)
    linked, executable = link.run(library.version)
    if executable:
        shell = calls.compiled or interface_of(lowered, link.compiled.module)
        output.write_bytes(write_form(shell, executable))
    return linked


class Link:
    """One program on its way through the phases."""

    def __init__(self, phases: Phases, calls: Calls, target: TpuTarget) -> None:
        self._phases = phases
        self._calls = calls
        self._target = target
        self._machine: Machine = target.machine
        self.compiled = self._compile()

    def run(self, libtpu: str) -> tuple[Linked, bytes]:
        given = self.compiled
        dump = checked(given.module, given.plan, self._machine)
        code_bytes, parts, own = self._self_test()
        chosen = self.packed(dump) or given
        refusal, executable = "", own
        if chosen is not given or not own:
            refusal, executable = self._linked(chosen, parts)
        linked = Linked(
            libtpu=libtpu,
            libtpu_temporaries=temporary_bytes(given.plan),
            temporaries=temporary_bytes(chosen.plan),
            libtpu_hbm=hbm_bytes(given.plan),
            hbm=hbm_bytes(chosen.plan),
            jax_refusal=self._calls.refusal.partition("\n")[0],
            refusal=refusal,
            code_bytes=code_bytes,
        )
        if executable:
            check_executable(executable, chosen.plan, self._machine)
        return linked, executable

    def _compile(self) -> Compiled:
        """Phase 1; of a program that does not fit, told to go on, and then to forget it."""
        calls = self._calls
        if not calls.refusal:
            return self._phases.compile(calls.stablehlo, calls.options)
        compiled = self._phases.compile(calls.stablehlo, calls.options_with(NO_CRASH_ON_OOM))
        return compiled.with_memory_limit()

    def _self_test(self) -> tuple[int, tuple[PartialProgram, ...] | None, bytes]:
        """The bytes of machine code found equal; lowered parts and executable of the program."""
        if self._calls.refusal:
            code, _, _ = compare_with_jax(self._phases, program_of(small_program(self._target)))
            return code, None, b""
        return compare_with_jax(self._phases, self._calls, self.compiled)

    def packed(self, dump: Dump | None = None) -> Compiled | None:
        """The program with our packing, checked; None where that is not smaller."""
        given = self.compiled
        dump = dump or checked(given.module, given.plan, self._machine)
        made = make_plan(
            read_module(given.module, "libtpu"),
            backend=self._machine,
            preset=dump,
            pack=place_tightly,
        )
        ours = parse_message("HloProto", made.to_proto()).buffer_assignment.SerializeToString()
        packed = with_packing(given.plan, ours)
        if packed is None:
            return None
        checked(given.module, packed, self._machine)
        return given.with_plan(packed)

    def _linked(
        self, chosen: Compiled, parts: tuple[PartialProgram, ...] | None
    ) -> tuple[str, bytes]:
        """libtpu's refusal of a plan that does not fit, or the executable."""
        options = self._calls.options
        try:
            self._phases.lower(chosen, options)
        except PhaseError as error:
            if _OUT_OF_MEMORY not in str(error) and "Ran out of memory" not in str(error):
                raise
            return str(error).partition("\n")[0], b""
        parts = self._phases.lower_parts(chosen, options) if parts is None else parts
        return "", self._phases.link(chosen, parts, options)


def compare_with_jax(
    phases: Phases, calls: Calls, compiled: Compiled | None = None
) -> tuple[int, tuple[PartialProgram, ...], bytes]:
    """libtpu's own plan by phases; `PhaseError` where its machine code is not JAX's."""
    compiled = compiled or phases.compile(calls.stablehlo, calls.options)
    parts = phases.lower_parts(compiled, calls.options)
    executable = phases.link(compiled, parts, calls.options)
    code, wanted = machine_code(executable), machine_code(calls.serialized)
    if code != wanted:
        problem = f"libtpu's own plan, linked by phases, gives {len(code)} bytes of machine code"
        raise PhaseError(f"{problem} that are not the {len(wanted)} of JAX's compile")
    return len(code), parts, executable
