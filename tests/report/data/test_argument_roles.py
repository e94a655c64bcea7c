"""What an argument is, by its path."""

from __future__ import annotations

import pytest

from hlomem.report.data import roles
from hlomem.report.data.roles import role_of_argument


@pytest.mark.parametrize(
    ("role", "paths"),
    [
        (
            roles.OPTIMIZER,
            ["opt_state[0].mu['w']", "state[1][0].nu['w']", "adam_m", "momentum['w']"],
        ),
        (roles.OPTIMIZER, ["state.opt_state[0].mu['params']['kernel']", "exp_avg_sq"]),
        (
            roles.WEIGHTS,
            ["params['mu']['w']", "state.params['block_0']['kernel']", "w1", "weights"],
        ),
        (roles.WEIGHTS, ["variables['params']['kernel']", "variables['batch_stats']['mean']"]),
        (roles.INPUTS, ["batch['weight']", "tokens", "x", "y", "images", "attention_mask", "rng"]),
        (roles.CACHE, ["kcache", "vcache", "cache['layer_0']['cached_key']", "past_key_values[0]"]),
        (roles.ARGUMENTS, ["args[3]", "parameter 3", "step", ""]),
    ],
)
def test_the_first_name_that_says_something_decides(role: str, paths: list[str]) -> None:
    assert {path: role_of_argument(path) for path in paths} == dict.fromkeys(paths, role)
