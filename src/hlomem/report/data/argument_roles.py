"""The role of a program's argument, by the path JAX gave it.

In: `opt_state[0].mu['block_0']['kernel']`. Out: a role. The first name on the path that says
something decides: `params['mu']` are parameters, `batch['weights']` is a part of the batch. A path
that says nothing, as of a program that was not written in JAX, is of an "other argument".
"""

from __future__ import annotations

import re
from functools import lru_cache

from hlomem.base.patterns import lazy_pattern
from hlomem.report.data import roles

_NAME = lazy_pattern(r"[A-Za-z_]\w*")
_NAMES = {
    roles.OPTIMIZER: (
        r"\w*opt(?:imizer|im)?_?states?|opt|optimizer\w*|optim|mu|nu|trace|momentum\w*|velocit\w+"
        r"|exp_avg\w*|adam\w*"
    ),
    roles.CACHE: r"\w*cache[sd]?(?:_\w+)?|past_key\w*|kv\w*",
    roles.WEIGHTS: (
        r"\w*params?|parameters|\w*weights?|model|net|variables|batch_stats|kernel|bias|embedding\w*"
        r"|theta|w[qkvoi]?\d*"
    ),
    roles.INPUTS: (
        r"batch\w*|tokens?|\w*inputs?(?:_ids)?|[xy]s?\d*|images?|labels?|targets?|\w*mask|ids|data"
        r"|keys?|rngs?|seed|positions?|segment_ids|prompts?|features?"
    ),
}
"""The names of a path that tell a role, each a whole name."""
_PATTERNS = {role: lazy_pattern(names, re.IGNORECASE) for role, names in _NAMES.items()}


@lru_cache(maxsize=4096)
def role_of_argument(path: str) -> str:
    """The role of the argument of that path."""
    for name in _NAME.findall(path):
        for role, pattern in _PATTERNS.items():
            if pattern.fullmatch(name):
                return role
    return roles.ARGUMENTS
