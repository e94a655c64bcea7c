"""Lines of a user's code whose values are recomputed, and those that are kept for it."""

from __future__ import annotations

from hlomem import hlo
from hlomem.opt.remat.origins import find_kept, find_origins, find_tensors

TEXT = """HloModule m, is_scheduled=true

ENTRY %e {
  %p = f32[64] parameter(0)
  %kept = f32[64] sine(%p), metadata={op_name="jit(f)/jvp()/sin" source_file="/a/m.py" source_line=3}
  %t = f32[64] tanh(%kept), metadata={op_name="jit(f)/jvp()/tanh" source_file="/a/m.py" source_line=4}
  %out = f32[64] negate(%t), metadata={op_name="jit(f)/jvp()/neg" source_file="/a/m.py" source_line=5}
  %t.remat = f32[64] tanh(%kept), metadata={op_name="jit(f)/jvp()/tanh" source_file="/a/m.py" source_line=4}
  %g = f32[64] multiply(%t.remat, %out), metadata={op_name="jit(f)/transpose(jvp())/mul"}
  ROOT %r = (f32[64], f32[64]) tuple(%g, %t)
}
"""  # noqa: E501 - as XLA prints it


def test_places_are_those_of_clones_and_of_what_the_backward_pass_reads() -> None:
    module = hlo.parse(TEXT)
    assert find_origins(module) == ("m.py:4 (tanh)",)
    assert set(find_kept(module)) == {"m.py:3 (sin)", "m.py:5 (neg)"}


def test_what_hands_a_value_to_a_loop_computes_nothing() -> None:
    text = TEXT.replace("jvp()/tanh", "jvp()/while/body/dynamic_update_slice")
    assert find_origins(hlo.parse(text)) == ()


LAYER = """HloModule m, is_scheduled=true

ENTRY %e {
  %p = f32[8,8] parameter(0)
  %q = f32[8,8] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/layers/self_attention/query/dot_general"}
  %w = f32[8,8] dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/layers/mlp/wi_0/dot_general"}
  %w.remat = f32[8,8] dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/layers/mlp/wi_0/dot_general"}
  ROOT %r = (f32[8,8], f32[8,8]) tuple(%w, %w.remat)
}
"""  # noqa: E501 - as XLA prints it


def test_a_choice_is_told_by_the_names_of_maxtext() -> None:
    assert find_tensors(hlo.parse(LAYER)) == (("mlpwi_0", "remat"), ("query_proj", "device"))
    assert find_tensors(hlo.parse(TEXT)) == ()
    assert find_tensors(hlo.parse(LAYER.replace(".remat", ".2"))) == ()
