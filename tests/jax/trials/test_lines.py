"""The line where a reviewer would edit, of those that lead to a sharding."""

from __future__ import annotations

from msgspec.structs import replace

from hlomem.hlo.sharding import Axis, Mesh
from hlomem.jax.compile.messages import ArgumentLines
from hlomem.jax.trials.lines import Lines, chain_of_argument
from hlomem.report.data.sharding.decision import Decision, Frame
from hlomem.report.data.sharding.finding import Link, Place


def _decision(*lines: str, spec: str = "P()", shape: tuple[int, ...] = (8, 8)) -> Decision:
    """A constraint; `helper 3` is line 3 of a function of that name."""
    frames = []
    for line in lines:
        function, _, number = line.partition(" ")
        frames.append(Frame(line=f"/a/m.py:{number}", function=function, begin=1))
    return Decision(
        kind="constraint",
        shapes=(shape,),
        specs=(spec,),
        sizes=(64,),
        applied=tuple(frames),
        written=(Frame(line="/a/m.py:1", function="<module>", begin=1),),
    )


PLACING = frozenset({"/a/m.py::put", "/a/m.py::to_levels", "/a/m.py::gather"})


def test_a_helper_that_serves_others_is_not_meant() -> None:
    scores = _decision("put 3", "attend 20", "step 40", spec="P(None, 'x')")
    hidden = _decision("put 3", "mlp 30", "step 41")
    lines = Lines([scores, hidden], PLACING)
    assert lines.primary([scores]) == "/a/m.py:20"
    assert lines.chain([scores], lines.primary([scores])) == (
        Link(what="written", line="/a/m.py:1"),
        Link(what="applied", line="/a/m.py:3"),
    )


def test_a_function_that_only_places_is_left_for_its_only_call() -> None:
    first = _decision("gather 5", "body 9", "step 40", shape=(4, 4))
    second = _decision("gather 5", "body 9", "step 40", shape=(2, 2))
    assert Lines([first, second], PLACING).primary([first, second]) == "/a/m.py:9"


def test_its_own_line_is_meant_where_its_calls_are_several() -> None:
    first, second = _decision("gather 5", "body 9"), _decision("gather 5", "body 10")
    assert Lines([first, second], PLACING).primary([first, second]) == "/a/m.py:5"


def test_one_of_two_that_share_an_expression_is_told_in_the_function_that_asks_for_it() -> None:
    there = _decision("put 3", "to_levels 6", "body 12", spec="P('x')")
    back = _decision("put 3", "to_grid 9", "body 12", spec="P(None, 'x')")
    assert Lines([there, back], PLACING).primary([there]) == "/a/m.py:6"


def test_of_what_a_helper_gathers_what_loops_gather_in_each_iteration_is_meant() -> None:
    once = _decision("gather 5", "loss 8", "step 40", shape=(64, 8))
    each = _decision("gather 5", "body 11", "loss 13", "step 40")
    loop = replace(_decision("loss 13", "step 40"), kind="scan")
    lines = Lines([once, loop, each], PLACING)
    assert lines.in_loops([once, each]) == [each]
    assert lines.primary([each]) == "/a/m.py:11"
    assert lines.in_loops([once]) == [once]


def test_padding_is_told_where_all_that_pad_the_same_size_meet() -> None:
    mesh = Mesh((Axis("x", 4),))
    scores = _decision("pin 3", "attend 20", spec="P('x', None)", shape=(18, 64))
    hidden = _decision("pin 3", "mlp 30", spec="P('x')", shape=(18, 8, 8))
    batch = _decision("pin 3", "embed 40", spec="P('x')", shape=(16, 8))
    lines = Lines([scores, hidden], frozenset({"/a/m.py::pin"}))
    assert lines.primary([scores]) == "/a/m.py:20"
    alike = lines.padded_alike([scores], mesh)
    assert alike == [scores, hidden]
    assert lines.primary(alike) == "/a/m.py:3"
    assert Lines([scores, batch], PLACING).padded_alike([scores], mesh) == [scores]


def test_without_a_line_of_its_own_the_one_that_fewest_share_is_meant() -> None:
    one = _decision("put 3", "heads 6", "layer 9")
    others = [_decision("heads 6", "layer 9", spec="P('x')"), _decision("put 3", "mlp 7")]
    others.append(_decision("put 3", "mlp 8"))
    assert Lines([one, *others], PLACING).primary([one]) == "/a/m.py:6"


def test_decisions_are_found_by_the_place_of_an_expression() -> None:
    scores = _decision("put 3", "attend 20", spec="P(None, 'x', None)")
    hidden = _decision("put 3", "attend 20", spec="P()")
    lines = Lines([scores, hidden], PLACING)
    assert lines.at(Place(file="/a/m.py", line=20), (8, 8), "P(None, 'x')") == [scores]
    assert lines.at(Place(file="/a/m.py", line=21)) == []
    leaf = _decision("put 3", "attend 20", spec="P(None, 'x')", shape=(4, 4))
    of_tree = Lines([scores, leaf], PLACING).at(Place(file="/a/m.py", line=20), (4, 4))
    assert of_tree == [scores, leaf]
    assert lines.primary([]) == ""
    assert lines.chain([], "") == ()


def test_an_argument_has_the_lines_of_its_spec_its_sharding_and_its_array() -> None:
    at = ArgumentLines(made=("m.py:9",), sharding=("m.py:5", "m.py:9"), written=("m.py:2",))
    assert chain_of_argument(at, "m.py:9") == (
        Link(what="written", line="m.py:2"),
        Link(what="made", line="m.py:5"),
    )
