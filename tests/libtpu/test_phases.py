"""Phases with a stand-in for libtpu: which results go where, and what an edit changes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hlomem.libtpu.partial_program import (
    PartialProgram,
    PhaseError,
    encode_field,
    read_program,
    write_program,
)
from hlomem.libtpu.phases import COMPILE, LINK, LOWER, LOWER_PART, Compiled, Phases, machine_code

ENVIRONMENT = encode_field(1, encode_field(2, encode_field(512, 1)))
RESULTS: dict[str, list[tuple[str, bytes, tuple[str, ...]]]] = {
    COMPILE: [
        ("opt_hlo", encode_field(1, b"module"), (LOWER, LINK)),
        ("buffer_assignment", b"plan", (LOWER, LINK)),
        ("modified_comp_envs", ENVIRONMENT, (LOWER, LOWER_PART, LINK)),
        ("part.1", b"one", (LOWER_PART,)),
        ("part.2", b"two", (LOWER_PART,)),
    ],
    LOWER: [("top", b"lowered", (LINK,))],
    LOWER_PART: [("part", b"lowered", (LINK,))],
    LINK: [("pjrt_executable", b"executable", ()), ("executable_metadata", b"", ())],
}


class StandIn:
    """Notes what every phase was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[tuple[str, bytes]], bytes]] = []

    def run(self, phase: str, inputs: Sequence[bytes], options: bytes) -> list[bytes]:
        """The same results every time."""
        read = [read_program(data) for data in inputs]
        self.calls.append((phase, [(one.name, one.body) for one in read], options))
        return [
            write_program(PartialProgram(body=body, name=name, consumers=consumers))
            for name, body, consumers in RESULTS[phase]
        ]


def test_every_phase_is_given_what_it_reads() -> None:
    stand_in = StandIn()
    phases = Phases(stand_in)
    compiled = phases.compile(b"stablehlo", b"options")
    assert (compiled.module, compiled.plan) == (b"module", b"plan")
    parts = phases.lower_parts(compiled, b"options")
    assert phases.link(compiled.with_plan(b"ours"), parts, b"options") == b"executable"
    environment = ("modified_comp_envs", ENVIRONMENT)
    program = [("opt_hlo", encode_field(1, b"module")), ("buffer_assignment", b"ours")]
    assert stand_in.calls == [
        (COMPILE, [("", b"stablehlo")], b"options"),
        (LOWER_PART, [("part.1", b"one"), environment], b"options"),
        (LOWER_PART, [("part.2", b"two"), environment], b"options"),
        (LOWER, [*program, environment], b"options"),
        (
            LINK,
            [*program, environment, ("top", b"lowered"), *[("part", b"lowered")] * 2],
            b"options",
        ),
    ]


def test_the_memory_limit_is_put_back_and_nothing_else_changes() -> None:
    compiled = Phases(StandIn()).compile(b"", b"")
    limited = compiled.with_memory_limit()
    changed = [
        (new.name, new.content)
        for old, new in zip(compiled.programs, limited.programs, strict=True)
        if old != new
    ]
    without = encode_field(1, encode_field(2, encode_field(512, 0)))
    assert changed == [("modified_comp_envs", without)]


def test_artifacts_that_changed_are_refused() -> None:
    with pytest.raises(PhaseError, match="0 programs `buffer_assignment`"):
        Compiled(()).with_plan(b"")
    strange = PartialProgram(body=encode_field(1, 5), name="modified_comp_envs")
    with pytest.raises(PhaseError, match="`modified_comp_envs` of libtpu is not what it was"):
        Compiled((strange,)).with_memory_limit()
    with pytest.raises(PhaseError, match="not the record file it was"):
        machine_code(b"no record file")
