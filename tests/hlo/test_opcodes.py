"""The table of opcodes: complete, the only one, and seen by the type checker."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from hlomem import hlo
from hlomem.hlo.opcodes import (
    ASYNC_OPCODES,
    DEFINE_NOTHING,
    ELEMENTWISE,
    HANDING_ON,
    IN_EARLIER_MEMORY,
    KNOWN_OPCODES,
    TRAITS,
    Opcode,
    as_opcode,
    call_role,
    communicates,
    traits_of,
)
from hlomem.hlo.traits import CallRole
from tests.places import PACKAGE, ROOT

OWN_TABLES = {
    Path("hlo/opcodes.py"): "the table",
    Path("check/opcodes.py"): "the judge's, which must not rest on what it judges",
    Path("check/flow.py"): "the judge's: a rule of its own for all that hands values on",
    Path("hlo/shape_inference/rules.py"): "the shape that follows, for each opcode that has a rule",
    Path("hlo/text/async_starts.py"): "what an async operation may come through",
    Path("hlo/text/freeform/asynchronous.py"): "what is wrapped otherwise, or come through",
    Path("hlo/text/freeform/completion.py"): "what XLA's parser checks and completes, by opcode",
    Path("hlo/text/freeform/instructions.py"): "what XLA's parser does not wrap",
    Path("hlo/text/freeform/opcode_attributes.py"): "the attributes each opcode has in texts",
    Path("advice/rules/padding.py"): "what demands a layout of its operands",
    Path("opt/checks/offsets.py"): "what may say where it begins",
    Path("job/tuning.py"): "what leaves the autotuner one kernel only",
    Path("hlo/resize.py"): "what a new size means for the attributes of each opcode that has some",
    Path("view/families.py"): "the judge goes by these families: it must not rest on the planner's",
    Path("opt/checks/order.py"): "judges the search, and must not rest on what it judges",
    Path("opt/orders/cost.py"): "what runs while others do, and what moves elements alone",
    Path("opt/orders/traffic.py"): "what reads or writes a part of a buffer",
    Path("opt/orders/arithmetic.py"): "what takes a GPU's units longer than reading does",
    Path("opt/orders/indexing.py"): "how a GPU combines what a scatter brings together",
    Path("jax/compile/exchanged.py"): "loops of JAX, not of XLA",
    Path("jax/compile/exchanges.py"): "operations of JAX that keep elements apart, not of XLA",
    Path(
        "opt/orders/effects.py"
    ): "what the world outside sees and what takes no time: order alone",
    Path("opt/orders/xla_schedulers.py"): "what each scheduler of XLA treats apart",
    Path("opt/loops/relaid.py"): "what moves or converts a stack as a whole, and what returns it",
    Path("advice/code.py"): "operations of JAX in a policy, not of XLA",
    Path("report/data/sharding/decision.py"): "acts of a JAX program, not of XLA",
    Path("opt/loops/choice.py"): "what is no value of its own in a loop's body",
    Path("opt/checks/edit.py"): "checks recomputation, and must not rest on what it checks",
    Path("opt/checks/over.py"): "judges what is written over, and must not rest on what it judges",
    Path("opt/checks/piece_claims.py"): "judges pieces, and must not rest on what it judges",
    Path("opt/checks/piece_indices.py"): "judges pieces, and must not rest on what it judges",
    Path("opt/checks/piece_rules.py"): "judges pieces, and must not rest on what it judges",
    Path("opt/checks/piece_terms.py"): "judges pieces, and must not rest on what it judges",
    Path("hlo/counting_indices.py"): "what indices that count rows come through",
    Path("hlo/dimension_links.py"): "how the dimensions of each opcode belong together",
    Path("opt/pieces/solve.py"): "what may move the rows of an array",
    Path("opt/remat/fused.py"): "what takes each element once, and what readers come through",
    Path("opt/remat/over.py"): "what hands a buffer on",
    Path("report/data/sharding/sources.py"): "what takes parts of an array by their indices",
    Path("report/data/sharding/nearness.py"): "what calls the rest of a program",
    Path("opt/checks/offload.py"): "judges what is moved, and must not rest on what it judges",
    Path("opt/loops/fusion_edit.py"): "the products that make a fusion one of its kind",
    Path("opt/loops/change.py"): "what goes when nobody reads it",
    Path("opt/checks/arithmetic.py"): "judges loops, and must not rest on what it judges",
    Path("opt/checks/effects.py"): "judges loops, and must not rest on what it judges",
    Path("opt/checks/equivalence.py"): "judges loops, and must not rest on what it judges",
    Path("opt/checks/execution.py"): "judges loops, and must not rest on what it judges",
    Path("opt/checks/stacks.py"): "judges loops, and must not rest on what it judges",
    Path("opt/orders/trips.py"): "the arithmetic of counters that is worked out",
    Path("opt/loops/stacks.py"): "how slices of stacks are written and read",
    Path("opt/remat/state.py"): "what is free to do again, and what is never done again",
    Path("jax/pass_/register.py"): "what does not count when a program is too small to search",
    Path("opt/checks/rounding.py"): "checks what may round, and must not rest on what it checks",
    Path("opt/orders/work.py"): "collectives that send to one neighbour",
    Path("opt/remat/copies.py"): "what makes zeros, alone or in a fusion",
    Path("opt/remat/floor.py"): "what holds its operands while it calls",
    Path("report/data/sharding/collectives.py"): "what hands a gathered weight on",
    Path("report/data/sharding/gather_findings.py"): "what a gather's readers come through",
    Path("report/data/sharding/layouts.py"): "what has the sharding of what it hands on",
    Path("report/data/sharding/values.py"): "products, and what communicates",
    Path("report/data/sharding/whole_program.py"): "what keeps dimensions apart",
    Path("report/data/value_roles.py"): "what hands gathered weights on",
    Path("proto/opcode_attributes.py"): "the attributes each opcode has in protos, in XLA's order",
    Path("analysis/gpu_alias.py"): "opcodes that may share by NVIDIA's rules alone",
}
"""Who may hold a collection of opcodes, and why. What passes made what, `history` knows itself."""


def _groups(node: ast.AST) -> list[list[object]]:
    """What a display holds side by side: its members, its keys, its values, its words."""
    match node:
        case ast.Tuple() | ast.List() | ast.Set():
            return [[each.value for each in node.elts if isinstance(each, ast.Constant)]]
        case ast.Dict():
            sides = (node.keys, node.values)
            return [
                [each.value for each in side if isinstance(each, ast.Constant)] for side in sides
            ]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
            return [list(text.split())]
        case ast.Assign(value=ast.Constant(value=str(text))):
            words: list[object] = list(text.split())
            return [words] if KNOWN_OPCODES.issuperset(words) else []
    return []


def _opcode_groups(tree: ast.AST) -> list[list[object]]:
    """Displays that hold two or more opcodes."""
    groups = [group for node in ast.walk(tree) for group in _groups(node)]
    return [group for group in groups if sum(each in KNOWN_OPCODES for each in group) > 1]


@pytest.mark.parametrize(
    "path",
    [each for each in sorted(PACKAGE.rglob("*.py")) if "history" not in each.parts],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_opcodes_are_grouped_in_one_table(path: Path) -> None:
    groups = _opcode_groups(ast.parse(path.read_text()))
    if path.relative_to(PACKAGE) in OWN_TABLES:
        assert groups, "an exception that is none any more"
    else:
        assert not groups


def test_the_scan_sees_every_kind_of_collection() -> None:
    texts = [
        'A = {"copy", "tuple"}',
        'A = frozenset(("copy", "tuple"))',
        'A = {"copy": 1, "tuple": 2}',
        'A = {1: "copy", 2: "tuple"}',
        'A = "copy tuple".split()',
        'x.opcode in ("copy", "tuple")',
    ]
    assert all(_opcode_groups(ast.parse(text)) for text in texts)
    assert not _opcode_groups(ast.parse('x == "copy" or x in {"copy", "no opcode"}'))


def test_the_type_lists_what_the_table_holds() -> None:
    assert list(get_args(Opcode)) == list(TRAITS) == sorted(TRAITS)


def test_mypy_sees_a_misspelt_opcode(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from hlomem.hlo.ir import HloInstruction\n"
        "def f(instruction: HloInstruction) -> bool:\n"
        '    return instruction.opcode == "while"\n'
        "def g(instruction: HloInstruction) -> bool:\n"
        '    return instruction.opcode == "whlie"\n'
    )
    command = [sys.executable, "-m", "mypy", "--strict", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1
    assert "program.py:5" in errors[0]
    assert "comparison-overlap" in errors[0]


def test_an_unknown_opcode_is_read_and_printed_as_it_is() -> None:
    text = """HloModule m

ENTRY %e (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %x = f32[2]{0} frobnicate(%p), wildness=3
}
"""
    root = hlo.parse(text).entry.root
    assert root.opcode == as_opcode("frobnicate")
    assert root.opcode not in KNOWN_OPCODES
    assert "frobnicate(%p), wildness=3" in hlo.format_module(root.parent.module)
    traits = traits_of(root.opcode)
    assert traits.arity is None
    assert traits.needs == "nothing"
    assert call_role(root.opcode, 0) is CallRole.UNKNOWN


@pytest.mark.parametrize("opcode", sorted(TRAITS))
def test_traits_do_not_contradict_each_other(opcode: Opcode) -> None:
    traits = TRAITS[opcode]
    assert (opcode in ASYNC_OPCODES) == (opcode.startswith("async-"))
    assert (traits.stage == "start") == opcode.endswith("-start")
    assert (traits.stage == "done") == opcode.endswith("-done")
    assert not (traits.has_payload and traits.arity), "no operands beside a payload"
    assert traits.calls or not traits.runs_in_flow
    assert traits.calls or traits.needs == "any"
    if traits.writes == "first operand":  # what must be in place, may be
        assert traits.shares == "only first"
    if opcode in DEFINE_NOTHING and opcode != "call":
        assert opcode in IN_EARLIER_MEMORY


def test_what_hands_on_has_the_layout_of_others() -> None:
    assert DEFINE_NOTHING < HANDING_ON
    assert {"async-done", "all-gather-done", "opt-barrier", "tuple"} <= HANDING_ON
    assert HANDING_ON.isdisjoint({"parameter", "copy", "fusion", "reshape", "transpose"})


def test_elementwise_opcodes_are_those_of_xla() -> None:
    """`HloInstruction::IsOpElementwise`: a select counts, a map and a broadcast do not."""
    assert {"add", "select", "copy", "bitcast-convert", "clamp"} <= ELEMENTWISE
    assert ELEMENTWISE.isdisjoint({"map", "rng", "constant", "broadcast", "reduce", "fusion"})
    assert TRAITS["map"].elementwise == "by dimensions"


def test_roles_of_called_computations_follow_xlas_order() -> None:
    assert [call_role("while", position) for position in range(2)] == [
        CallRole.BODY,
        CallRole.CONDITION,
    ]
    assert call_role("conditional", 7) is CallRole.BRANCH
    assert call_role("add", 0) is CallRole.UNKNOWN


@pytest.mark.parametrize(
    ("opcode", "is_communication"),
    [
        ("all-reduce", True),
        ("all-reduce-start", True),
        ("all-to-all-start", True),  # as XLA prints an asynchronous one
        ("collective-permute-done", True),
        ("reduce-scatter-update", True),
        ("send", True),
        ("recv-done", True),
        ("copy-start", False),
        ("reduce", False),
        ("add", False),
    ],
)
def test_devices_talk_in_collectives_and_their_stages(opcode: str, is_communication: bool) -> None:
    assert communicates(opcode) == is_communication


def test_the_judge_imports_no_trait() -> None:
    """It may name opcodes; what is true of them it must know itself."""
    allowed = {"Opcode", "as_opcode"}
    for path in (PACKAGE / "check").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert node.module != "hlomem.hlo.traits", path.name
                if node.module == "hlomem.hlo.opcodes":
                    assert {each.name for each in node.names} <= allowed, path.name
