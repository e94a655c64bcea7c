"""Parts of the user's code whose values may be recomputed."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.opt.goal import Scopes, WorkLeft

TEXT = """HloModule scopes, is_scheduled=true

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %t = f32[8]{0} tanh(%p), metadata={op_name="jit(step)/transpose(jvp(encoder))/layer/tanh"}
}
"""


@pytest.mark.parametrize(
    ("scopes", "is_there"),
    [
        (Scopes(), True),
        (Scopes(within=("encoder",)), True),
        (Scopes(within=("layer",)), True),
        (Scopes(within=("encode",)), False),
        (Scopes(within=("decoder", "layer/tanh")), True),
        (Scopes(without=("encoder",)), False),
        (Scopes(without=("decoder",)), True),
        (Scopes(within=("encoder",), without=("layer",)), False),
    ],
)
def test_a_scope_is_a_whole_name_on_the_path(scopes: Scopes, is_there: bool) -> None:
    assert scopes.has(hlo.parse(TEXT).entry.root) is is_there


def test_work_that_is_put_aside_is_taken_off() -> None:
    work, whole = WorkLeft("default"), WorkLeft("default")
    later = work.put_aside()
    assert 0 < later.plans <= work.plans
    assert (work.steps + later.steps, work.plans + later.plans) == (whole.steps, whole.plans)
