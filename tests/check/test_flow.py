"""Which value is where, worked out from small modules."""

from __future__ import annotations

from collections.abc import Collection

from hlomem import hlo
from hlomem.check.flow import trace
from hlomem.hlo.opcodes import Opcode


def positions(
    body: str, *, computations: str = "", older: Collection[Opcode] = ()
) -> dict[str, str]:
    """`name{index}` of every position of a module, and the value there."""
    text = f"HloModule m\n\n{computations}ENTRY e {{\n{body}\n}}\n"
    flow = trace(hlo.parse(text), older=older)
    return {
        show(instruction.name, index): show(*value)
        for instruction, parts in flow.parts_of.items()
        for index, value in parts.items()
    }


def show(name: str, index: tuple[int, ...]) -> str:
    """As XLA prints it, the braces of the whole left out."""
    return name + ("{" + ",".join(map(str, index)) + "}" if index else "")


def test_tuples_hand_on_what_they_are_made_of() -> None:
    found = positions("""
      p = f32[4] parameter(0)
      t = (f32[4], f32[4]) tuple(p, p)
      g = f32[4] get-tuple-element(t), index=1
      b = f32[2,2] bitcast(g)
      c = (f32[4], f32[4]) copy(t)
      ROOT o = (f32[4], f32[4]) opt-barrier(c)
    """)
    assert found == {
        "p": "p",
        "t": "t",
        "t{0}": "p",
        "t{1}": "p",
        "g": "p",
        "b": "p",
        "c": "c",
        "c{0}": "p",
        "c{1}": "p",
        "o": "c",
        "o{0}": "p",
        "o{1}": "p",
    }


LOOP = """cond {
  k = (s32[], s32[], s32[]) parameter(0)
  ROOT l = pred[] constant(false)
}

body {
  r = (s32[], s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(r), index=0
  y = s32[] get-tuple-element(r), index=1
  z = s32[] get-tuple-element(r), index=2
  n = s32[] negate(z)
  ROOT s = (s32[], s32[], s32[]) tuple(RETURNED)
}

"""
RUN = """
  a = s32[] constant(1)
  b = s32[] constant(2)
  t = (s32[], s32[], s32[]) tuple(a, b, a)
  ROOT w = (s32[], s32[], s32[]) while(t), condition=cond, body=body
"""


def test_a_loop_makes_versions_of_what_it_changes() -> None:
    found = positions(RUN, computations=LOOP.replace("RETURNED", "x, y, n"))
    assert (found["w{0}"], found["r{0}"], found["k{0}"], found["x"]) == ("a", "a", "a", "a")
    assert (found["w{2}"], found["r{2}"], found["k{2}"]) == ("w{2}", "r{2}", "k{2}")
    assert (found["w"], found["s{2}"]) == ("w", "n")


def test_a_loop_that_swaps_makes_versions_of_both() -> None:
    found = positions(RUN, computations=LOOP.replace("RETURNED", "y, x, z"))
    assert (found["w{0}"], found["w{1}"], found["w{2}"]) == ("w{0}", "w{1}", "a")
    assert (found["s{0}"], found["s{1}"]) == ("r{1}", "r{0}")


def test_what_is_swapped_with_its_equal_stays_itself() -> None:
    same = RUN.replace("tuple(a, b, a)", "tuple(a, a, a)")
    found = positions(same, computations=LOOP.replace("RETURNED", "y, x, z"))
    assert (found["w{0}"], found["w{1}"]) == ("a", "a")


def test_a_loop_may_keep_versions_of_what_it_does_not_change() -> None:
    computations = LOOP.replace("RETURNED", "x, y, z")
    text = f"HloModule m\n\n{computations}ENTRY e {{{RUN}}}\n"
    kept = {("k", (0,)), ("w", (0,))}
    flow = trace(hlo.parse(text), kept=kept.__contains__)
    found = {each.name: parts.get((0,)) for each, parts in flow.parts_of.items()}
    assert (found["w"], found["k"], found["r"]) == (("w", (0,)), ("k", (0,)), ("a", ()))


BRANCHES = """yes {
  ROOT x = f32[4] parameter(0)
}

no {
  y = f32[4] parameter(0)
  ROOT z = f32[4] WHAT(y)
}

"""


def test_branches_that_return_the_same_value_make_none() -> None:
    body = """
      p = f32[4] parameter(0)
      s = pred[] parameter(1)
      ROOT c = f32[4] conditional(s, p, p), true_computation=yes, false_computation=no
    """
    assert positions(body, computations=BRANCHES.replace("WHAT", "bitcast"))["c"] == "p"
    found = positions(body, computations=BRANCHES.replace("WHAT", "negate"))
    assert (found["c"], found["x"], found["y"]) == ("c", "p", "p")


CALLED = """inner {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  ROOT z = (f32[4], f32[4]) tuple(y, x)
}

"""


def test_a_call_hands_on_what_it_calls_returns() -> None:
    body = """
      p = f32[4] parameter(0)
      q = f32[4] parameter(1)
      ROOT c = (f32[4], f32[4]) call(p, q), to_apply=inner
    """
    found = positions(body, computations=CALLED)
    assert (found["c"], found["c{0}"], found["c{1}"]) == ("z", "q", "p")


def test_asynchronous_copies_and_collectives_hold_their_operands() -> None:
    found = positions("""
      p = f32[4] parameter(0)
      q = f32[4] parameter(1)
      k = token[] after-all()
      s = (f32[4], f32[4], u32[]) copy-start(p)
      d = f32[4] copy-done(s)
      t = ((f32[4], f32[4]), (f32[4], f32[4])) all-gather-start(p, q), dimensions={0}
      u = (f32[4], f32[4]) all-gather-done(t)
      v = (f32[4], f32[4], u32[], u32[]) collective-permute-start(p), source_target_pairs={{0,1}}
      w = f32[4] collective-permute-done(v)
      x = (f32[4], u32[], token[]) send(p, k), channel_id=1
      y = (f32[4], u32[], token[]) recv(k), channel_id=2
      ROOT z = (f32[4], token[]) recv-done(y), channel_id=2
    """)
    assert (found["s{0}"], found["s{1}"], found["d"]) == ("s{0}", "p", "s{0}")
    assert (found["t{0}"], found["t{0,1}"], found["u{1}"]) == ("t{0}", "q", "t{1,1}")
    assert (found["u"], found["v{0}"], found["w"]) == ("u", "p", "v{1}")
    assert (found["x{0}"], found["x{1}"]) == ("p", "x{1}")
    assert (found["z{0}"], found["z{1}"], found["z"]) == ("y{0}", "z{1}", "z")


def test_a_tuple_operand_of_a_collective_is_taken_apart() -> None:
    found = positions("""
      p = f32[4] parameter(0)
      q = f32[4] parameter(1)
      t = (f32[4], f32[4]) tuple(p, q)
      ROOT v = ((f32[4], f32[4]), f32[4]) collective-permute-start(t), source_target_pairs={{0,1}}
    """)
    assert (found["v{0}"], found["v{0,0}"], found["v{0,1}"]) == ("v{0}", "p", "q")


def test_a_permutation_into_an_operand_holds_its_source_alone() -> None:
    found = positions("""
      p = f32[4] parameter(0)
      q = f32[8] parameter(1)
      i = s32[] parameter(2)
      v = (f32[4], f32[8], u32[]) collective-permute-start(p, q, i, i),
        source_target_pairs={{0,1}}, slice_sizes={{4}}
      ROOT w = f32[8] collective-permute-done(v)
    """)
    assert (found["v{0}"], found["v{1}"], found["w"]) == ("p", "v{1}", "v{1}")


WRAPPED = """wrapped {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  ROOT z = f32[4] add(x, y)
}

"""


UPDATED = """updated {
  w = f32[4] parameter(0)
  x = f32[1] parameter(1)
  y = s32[] parameter(2)
  ROOT z = f32[4] dynamic-update-slice(w, x, y)
}

"""


def test_an_asynchronous_chain_hands_on_operands_and_result() -> None:
    body = """
      p = f32[4] parameter(0)
      q = f32[4] parameter(1)
      s = ((f32[4], f32[4]), f32[4], u32[]) async-start(p, q), calls=wrapped
      u = ((f32[4], f32[4]), f32[4], u32[]) async-update(s)
      ROOT d = f32[4] async-done(u)
    """
    found = positions(body, computations=WRAPPED)
    assert (found["x"], found["y"], found["s{0,1}"], found["s{1}"]) == ("p", "q", "q", "z")
    assert (found["u{0,0}"], found["u{1}"], found["u{2}"], found["d"]) == ("p", "z", "u{2}", "z")
    assert found["s{0}"] == "s{0}"


def test_an_asynchronous_update_of_a_part_holds_its_operand_until_it_is_done() -> None:
    body = """
      p = f32[4] parameter(0)
      q = f32[1] parameter(1)
      i = s32[] parameter(2)
      s = ((f32[4], f32[1], s32[]), f32[4], u32[]) async-start(p, q, i), calls=updated
      ROOT d = f32[4] async-done(s)
    """
    found = positions(body, computations=UPDATED)
    assert (found["s{0,0}"], found["s{1}"], found["d"]) == ("p", "p", "z")
    old = positions(body, computations=UPDATED, older=["async-start"])
    assert (old["s{0,0}"], old["s{1}"], old["d"]) == ("p", "z", "z")


def test_an_update_may_bring_the_rest_of_the_operands() -> None:
    body = """
      p = f32[4] parameter(0)
      q = f32[4] parameter(1)
      s = ((f32[4]), (), u32[]) async-start(p), calls=wrapped
      u = ((f32[4], f32[4]), f32[4], u32[]) async-update(s, q)
      ROOT d = f32[4] async-done(u)
    """
    found = positions(body, computations=WRAPPED)
    assert (found["x"], found["y"], found["s{0,0}"], found["s{1}"]) == ("p", "q", "p", "s{1}")
    assert (found["u{0,1}"], found["u{1}"], found["d"]) == ("q", "z", "z")
