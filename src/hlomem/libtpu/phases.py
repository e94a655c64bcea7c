"""The phases of libtpu as functions of typed values: compile, lower, link.

    compiled = phases.compile(stablehlo, options)
    parts = phases.lower_parts(compiled, options)
    executable = phases.link(compiled.with_plan(plan), parts, options)

Parts do not depend on the plan: they are lowered once and linked with any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from hlomem.libtpu.partial_program import (
    PartialProgram,
    PhaseError,
    encode_field,
    find_named,
    read_program,
    with_number,
    write_program,
)
from hlomem.proto.programs import iter_records
from hlomem.proto.wire import BYTES, WireError, iter_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

COMPILE, LOWER, LOWER_PART, LINK = (
    "phase1_hlo_opts",
    "phase2a_tlp_lowering",
    "phase2b_deduped_lowering",
    "phase3_linking",
)
NO_CRASH_ON_OOM = "xla_tpu_no_crash_on_oom"
"""The option by which phase 1 returns a plan that does not fit, too."""
_ITS_FIELD = (1, 2, 512)
"""Its path in `modified_comp_envs`: environment, its value, the option."""
_MODULE, _PLAN, _ENVIRONMENTS = "opt_hlo", "buffer_assignment", "modified_comp_envs"
_EXECUTABLE = "pjrt_executable"
_HLO, _ASSIGNMENT = 1, 3
_CODE = 1
"""The record of an executable that is machine code."""
_LIMIT = 1 << 31


class Runner(Protocol):
    """Runs one phase: `PhaseCompiler`, or its stand-in in tests."""

    def run(self, phase: str, inputs: Sequence[bytes], options: bytes) -> list[bytes]:
        """The results of a phase."""


class Compiled(NamedTuple):
    """The results of phase 1: a scheduled program, its plan, and parts to lower."""

    programs: tuple[PartialProgram, ...]

    @property
    def module(self) -> bytes:
        """The HloModuleProto."""
        content = find_named(self.programs, _MODULE).content
        return next(
            content[field.value : field.end]
            for field in iter_fields(content)
            if field.number == _HLO and field.kind == BYTES
        )

    @property
    def plan(self) -> bytes:
        """The BufferAssignmentProto."""
        return find_named(self.programs, _PLAN).content

    @property
    def proto(self) -> bytes:
        """Both as an HloProto."""
        return encode_field(_HLO, self.module) + encode_field(_ASSIGNMENT, self.plan)

    def with_plan(self, plan: bytes) -> Compiled:
        """The same program with another plan."""
        return self._with(_PLAN, lambda _: plan)

    def with_memory_limit(self) -> Compiled:
        """The same without `NO_CRASH_ON_OOM`: the next phase checks whether the plan fits."""
        return self._with(_ENVIRONMENTS, lambda content: with_number(content, _ITS_FIELD, 0))

    def _with(self, name: str, edit: Callable[[bytes], bytes]) -> Compiled:
        old = find_named(self.programs, name)
        try:
            new = old.with_content(edit(old.content))
        except WireError as error:
            raise PhaseError(f"`{name}` of libtpu is not what it was: {error}") from error
        return Compiled(tuple(new if one is old else one for one in self.programs))


class Phases:
    """The phases of one compiler."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def compile(self, stablehlo: bytes, options: bytes) -> Compiled:
        """Optimize, schedule and plan a program, given as StableHLO's bytecode."""
        program = PartialProgram(
            body=stablehlo, format="stablehlo_bytecode", consumers=(COMPILE,), version="1.0"
        )
        return Compiled(self._run(COMPILE, [program], options))

    def lower_parts(self, compiled: Compiled, options: bytes) -> tuple[PartialProgram, ...]:
        """Lower the parts of the program: fusions, each form once."""
        environments = find_named(compiled.programs, _ENVIRONMENTS)
        parts = _read_by(compiled.programs, LOWER_PART)
        return tuple(
            lowered
            for part in parts
            if part is not environments
            for lowered in self._run(LOWER_PART, [part, environments], options)
        )

    def link(self, compiled: Compiled, parts: tuple[PartialProgram, ...], options: bytes) -> bytes:
        """Lower the program around its parts, by its plan, and link: a record file."""
        top = self.lower(compiled, options)
        inputs = _read_by((*compiled.programs, *top, *parts), LINK)
        return find_named(self._run(LINK, inputs, options), _EXECUTABLE).content

    def lower(self, compiled: Compiled, options: bytes) -> tuple[PartialProgram, ...]:
        """Lower the program around its parts; libtpu checks here that the plan fits."""
        return self._run(LOWER, _read_by(compiled.programs, LOWER), options)

    def _run(
        self, phase: str, inputs: Sequence[PartialProgram], options: bytes
    ) -> tuple[PartialProgram, ...]:
        results = self._runner.run(phase, [write_program(one) for one in inputs], options)
        return tuple(map(read_program, results))


def machine_code(executable: bytes) -> bytes:
    """The machine code of an executable, with or without the header JAX puts before it."""
    records = list(iter_records(executable, _LIMIT))
    if len(records) <= _CODE:
        raise PhaseError("libtpu's executable is not the record file it was")
    return records[_CODE]


def _read_by(programs: Iterable[PartialProgram], phase: str) -> list[PartialProgram]:
    return [program for program in programs if phase in program.consumers]
