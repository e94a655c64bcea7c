"""The expression that decides how arrays are split, of programs that JAX traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

from hlomem.jax.compile.messages import Job
from hlomem.jax.probes.deciding import decide
from hlomem.jax.probes.parent import Prober
from hlomem.jax.probes.tries import Fault
from tests.jax.probes.ways_to_shard import MODEL

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.jax.probes.deciding import Decided

pytestmark = pytest.mark.usefixtures("eight_devices")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("probes") / "model.py"
    file.write_text(MODEL)
    return file


def _decided(model: Path, factory: str, fault: Fault) -> Decided | None:
    job = Job(factory=f"{model}:{factory}", target="cpu")
    with Prober(job, 100.0) as prober:
        [base] = prober.trace([("", "")])
        assert base is not None
        assert not base.problem
        return next(decide(prober, base, fault, {"x": 4, "y": 2}), None)


def _line(text: str) -> int:
    return next(at for at, line in enumerate(MODEL.splitlines(), 1) if line.startswith(text))


def test_the_row_of_a_table_is_told_and_not_the_spec_it_names(model: Path) -> None:
    found = _decided(model, "make_table", Fault({"argument tables['item']": "P('x')"}, {}))
    assert found is not None
    assert found.key.line == _line('        "item"')
    assert found.is_wanted


def test_a_rule_that_matches_nothing_is_told_before_the_last_one(model: Path) -> None:
    found = _decided(model, "make_rules", Fault({"argument ws[1]": "P(None, 'x')"}, {}))
    # Only the last rule matches it, since the names of these arrays are in no path.
    assert found is not None
    assert found.key.line == _line('    (r".*"')


def test_a_rule_whose_pattern_no_path_has_is_told(model: Path) -> None:
    wanted = {"argument tree['experts']['out']": "P(None, 'x')"}
    found = _decided(model, "make_dead", Fault(wanted, {}))
    assert found is not None
    assert found.key.line == _line('        (r"experts/down$"')
    assert found.why == "the rule 'experts/down$' matches nothing"


def test_a_match_at_the_beginning_of_paths_only_is_told(model: Path) -> None:
    found = _decided(model, "make_anchored", Fault({"argument ws[1]": "P('x')"}, {}))
    assert found is not None
    assert found.key.line == _line("            if re.match(rule, name):  # anchored")


def test_a_set_that_lacks_a_name_is_told(model: Path) -> None:
    found = _decided(model, "make_named", Fault({"argument state['ema']['w']": "P('x')"}, {}))
    assert found is not None
    assert found.key.line == _line("SPLIT = ")
    assert found.change == "add:ema"


def test_a_name_that_no_table_knows_is_told(model: Path) -> None:
    found = _decided(model, "make_logical", Fault({"argument x": "P('x', 'y')"}, {}))
    assert found is not None
    assert found.key.line == _line("CACHE = ")


def test_a_row_is_told_of_whose_name_nothing_makes_use(model: Path) -> None:
    wanted = {"argument ws[0]": "P(None, 'x')", "argument ws[2]": "P('x', None)"}
    found = _decided(model, "make_unmatched", Fault(wanted=wanted, numbers={}))
    assert found is not None
    assert (found.key.line, found.change) == (_line('        "feed_forward"'), "text:mlp")


def test_the_row_is_told_that_has_the_axis_of_another(model: Path) -> None:
    lines = [f"{model}:{_line(text)}" for text in ("        return jax.lax", "    decode = ")]
    name = f"constraint {' '.join(lines)} #1"
    found = _decided(
        model, "make_misplaced", Fault({name: "P(None, 'x', None)"}, {}, is_of_spec=True)
    )
    assert found is not None
    assert (found.key.line, found.change) == (_line('    ("frame"'), "swap:frame>row")
    assert found.is_wanted


def test_a_name_is_told_that_several_places_use_and_no_table_has(model: Path) -> None:
    wanted = {"argument tables['first']": "P('x')", "argument tables['second']": "P('x')"}
    found = _decided(model, "make_lost", Fault(wanted, {}))
    assert found is not None
    assert (found.key.line, found.why) == (_line('    made = {"first"'), "no rule has 'lines'")


def test_a_row_that_nothing_uses_is_told_before_uses_that_no_row_has(model: Path) -> None:
    wanted = {"argument tables['up']": "P(None, 'x')", "argument tables['down']": "P('x', None)"}
    found = _decided(model, "make_renamed", Fault(wanted, {}))
    assert found is not None
    assert (found.key.line, found.why) == (_line('        "inner": "x",'), "no rule has 'ffn'")


def test_another_row_of_a_table_is_tried_where_a_field_names_one(model: Path) -> None:
    found = _decided(model, "make_placed", Fault({"argument tables['item']": "P('x')"}, {}))
    assert found is not None
    assert (found.key.line, found.change) == (_line('    "item": Table('), "text:rows")
    assert found.why == ""  # it is a layout's name, no rule that matches nothing


def test_the_use_of_a_layout_is_told_where_its_definition_is_also_of_others(model: Path) -> None:
    found = _decided(model, "make_mapped", Fault({"result": "P('x', 'y')"}, {}))
    assert found is not None
    assert found.key.line == _line("        out_shardings=layouts.maps,  # the field")


def test_a_policy_is_told_that_keeps_a_gathered_value_by_its_name(model: Path) -> None:
    found = _decided(model, "make_kept_by_name", Fault({}, {}, is_kept=True))
    assert found is not None
    assert (found.key.line, found.change) == (_line("    keep = "), "unname:kernel")


def test_the_row_is_told_that_gives_the_very_sharding_that_is_wanted(model: Path) -> None:
    fault = Fault({"argument batch": "P(('x', 'y'))"}, {})
    found = _decided(model, "make_narrow_batch", fault)
    assert found is not None
    assert (found.key.line, found.change) == (_line('    ("tokens", "x")'), "axes:x,y")


def test_the_use_of_a_decorator_is_told_that_hands_axes_to_it(model: Path) -> None:
    job = Job(factory=f"{model}:make_decorated", target="cpu")
    called = f":{_line('        return field, snapshot(field)')}"
    with Prober(job, 100.0) as prober:
        [base] = prober.trace([("", "")])
        assert base is not None
        own = [one.name for one in base.arrays if called in one.name and one.size == 64 * 64 * 4]
        fault = Fault(dict.fromkeys(own, "P('x', 'y')"), {})
        found = next(decide(prober, base, fault, {"x": 4, "y": 2}))
    snapshot = MODEL.split("\n").index("    def snapshot(field):")
    assert (found.key.line, found.change) == (snapshot, "spec:P('x', 'y')")


def test_the_use_is_told_of_a_layout_that_is_chosen_wrongly(model: Path) -> None:
    found = _decided(model, "make_slabs", Fault({"result[0]": "P('x', 'y')"}, {}))
    assert found is not None
    assert found.key.line == _line("        out_shardings=(slabs, NamedSharding")


def test_the_row_that_is_named_is_told_where_another_would_do(model: Path) -> None:
    job = Job(factory=f"{model}:make_pencils", target="cpu")
    with Prober(job, 100.0) as prober:
        [base] = prober.trace([("", "")])
        assert base is not None
        [name] = [
            one.name for one in base.arrays if one.name.startswith("constr") and "P()" in one.spec
        ]
        found = next(decide(prober, base, Fault({name: "P('x')"}, {}), {"x": 4, "y": 2}))
    assert found.key.line == _line('        field = to(field * 2, "any")')


def test_the_use_is_told_of_a_tree_of_shardings(model: Path) -> None:
    fault = Fault({"result['up']": "P('x')", "result['down']": "P('x')"}, {})
    found = _decided(model, "make_tree", fault)
    assert found is not None
    assert found.key.line == _line("        out_shardings=by_column,  # of all")


def test_what_is_chosen_twice_at_a_line_is_told_there(model: Path) -> None:
    wanted = {"argument made['items'][0]": "P('x')", "argument made['items'][1]": "P('x')"}
    found = _decided(model, "make_pair", Fault(wanted, {}))
    assert found is not None
    assert found.key.line == _line('        "items": (whole, whole)')


def test_a_call_is_told_that_leaves_names_out(model: Path) -> None:
    wanted = {"argument state['moments'][0]": "P('x')", "argument state['moments'][1]": "P('x')"}
    found = _decided(model, "make_unnamed", Fault(wanted, {}))
    assert found is not None
    assert (found.key.line, found.change) == (_line("    moments = unnamed(weights)"), "skip:")


EXPERTS = {"argument first": "P('x')", "argument second": "P('x')"}


def test_a_row_is_told_that_nothing_uses_before_one_that_constraints_use(model: Path) -> None:
    found = _decided(model, "make_unused", Fault(EXPERTS, {}))
    assert found is not None
    assert found.key.line == _line('        "expert": ')


def test_a_size_that_no_axis_divides_is_told_where_it_is_made(model: Path) -> None:
    found = _decided(model, "make_odd", Fault({"argument x": "P(None, 'x')"}, {1001: 1004}))
    assert found is not None
    assert found.key.line == _line("VOCABULARY")


def test_a_name_that_a_policy_keeps_is_told(model: Path) -> None:
    found = _decided(model, "make_kept", Fault({}, {}, is_kept=True))
    assert found is not None
    assert found.key.line == _line('        "weights"')


def test_a_policy_that_keeps_what_is_gathered_is_told(model: Path) -> None:
    found = _decided(model, "make_regathered", Fault({}, {}, is_kept=True))
    assert found is not None
    assert found.key.line == _line("    policy = jax.checkpoint_policies.everything")
    assert found.change == "regather:"


def test_the_use_of_a_spec_is_told_that_is_right_for_arrays_of_fewer_dimensions(
    model: Path,
) -> None:
    found = _decided(model, "make_slots", Fault({"result[1]": "P('x', 'y')"}, {}))
    assert found is not None
    assert found.key.line == _line("            slots,  # returned")


def test_the_size_from_which_on_arrays_are_split_is_told(model: Path) -> None:
    found = _decided(model, "make_sized", Fault({"argument tables['item']": "P('x')"}, {}))
    assert found is not None
    assert found.key.line == _line("LARGE = ")
    assert found.is_wanted


def test_a_test_of_shapes_is_told_that_leaves_an_array_out(model: Path) -> None:
    wanted = {"argument tables['layers']": "P(None, 'x')"}
    found = _decided(model, "make_ranked", Fault(wanted=wanted, numbers={}))
    assert found is not None
    assert (found.key.line, found.change) == (_line("        if len(shape) == 2"), "true:")


def test_a_test_of_names_is_told_whatever_is_compared(model: Path) -> None:
    wanted = {"argument ws[1]": "P('x')"}
    found = _decided(model, "make_prefixed", Fault(wanted=wanted, numbers={}))
    assert found is not None
    assert found.key.line == _line('    spec = lambda name: P("x") if not')


def test_parameters_that_repeat_their_optimizers_state_are_decided_with_it(model: Path) -> None:
    fault = Fault({"argument state[0]['sums']['item']": "P('x')"}, {})
    found = _decided(model, "make_repeated", fault)
    assert found is not None
    assert found.key.line == _line("    spec = lambda name: P() if name == EXTRA")


def test_an_exception_that_is_too_much_is_told(model: Path) -> None:
    wanted = {"argument tables['head']": "P('x')"}
    found = _decided(model, "make_excepted", Fault(wanted=wanted, numbers={}))
    assert found is not None
    assert (found.key.line, found.change) == (_line('        "head",'), "drop:head")


def test_the_axis_of_a_batch_is_told_where_others_are_to_be_added(model: Path) -> None:
    found = _decided(model, "make_batch", Fault({"argument x": "P(('x', 'y'))"}, {}))
    assert found is not None
    assert found.key.line == _line('    "tokens"')
    assert found.is_wanted


def test_a_spec_that_others_have_too_decides_nothing_alone(model: Path) -> None:
    assert _decided(model, "make_shared", Fault({"argument a": "P('x', 'y')"}, {})) is None
