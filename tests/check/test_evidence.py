"""Values as findings show them."""

from __future__ import annotations

from hlomem.check.verify import verify
from hlomem.machines.cpu import CPU
from tests.check.small import V, small_dump


def test_a_finding_names_values_ranges_bytes_and_lines() -> None:
    source = ', metadata={op_name="f/mul" source_file="train.py" source_line=12}'
    one = V("a", (0, 2), text=f"f32[16]{{0}} abs(){source}")
    (finding,) = verify(small_dump([one, V("b", (1, 2))]), machine=CPU).findings
    assert str(finding) == "error: a and b live in the same 64 bytes [interference/overlap]"
    assert str(finding.values[0]) == "a (value 0) live 0-2 bytes [0, 64) of allocation 0"
    assert finding.values[0].source == "train.py:12"
    assert finding.evidence[0] == "both are alive from 1 to 2"
