"""The table of roles: what bytes are for, independent of their location (`allocation_kinds`)."""

from __future__ import annotations

import re
from functools import lru_cache

from hlomem.base.patterns import lazy_pattern
from hlomem.dump.records import Record
from hlomem.hlo.opcodes import COPYING, Opcode, communicates
from hlomem.report.data.phases import is_backward, is_recomputed

WEIGHTS = "model parameters"
OPTIMIZER = "optimizer state"
CACHE = "KV cache"
INPUTS = "batch and inputs"
ARGUMENTS = "other arguments"
RESULTS = "results"
CONSTANTS = "constants"
THREAD_LOCAL = "thread-local"
STACKED = "stacked by a loop"
CARRIED = "carried by a loop"
GATHERED = "gathered weights"
COLLECTIVES = "collectives"
COPIES = "copies"
GRADIENTS = "gradients"
ACTIVATIONS = "activations"
WORKSPACE = "workspace"
TEMPORARIES = "temporaries"
TUPLES = "tuples and async contexts"
PADDING = "padding"
ALIGNMENT = "alignment"
FRAGMENTATION = "fragmentation"


class Role(Record, frozen=True):
    name: str
    meaning: str
    colour: str
    """On the page, light or dark: #rrggbb."""
    rank: int = 0
    """Of values that share bytes, the lowest counts."""


ROLES = (
    Role(WEIGHTS, "arguments the model learns, by their paths", "#4e79a7", 1),
    Role(OPTIMIZER, "arguments whose paths say optimizer state", "#8e6bb0", 2),
    Role(
        CACHE, "keys and values kept between tokens: arguments, and what loops carry", "#76b7b2", 3
    ),
    Role(INPUTS, "arguments that are data: the batch, tokens, random keys", "#a0cbe8", 4),
    Role(ARGUMENTS, "arguments whose paths do not tell a role", "#6b8fb5", 5),
    Role(RESULTS, "what the program returns, and the memory it keeps for that", "#59a14f", 17),
    Role(CONSTANTS, "literals in the program", "#9c755f", 6),
    Role(THREAD_LOCAL, "parameters and results of small called computations", "#7f7f7f", 7),
    Role(STACKED, "written slice by slice in a loop, such as a scan's outputs", "#f28e2b", 8),
    Role(CARRIED, "carried by a loop from iteration to iteration", "#edc948", 9),
    Role(GATHERED, "model parameters that all-gathers have joined, and copies", "#4a3fa8", 10),
    Role(COLLECTIVES, "results of all-reduce, all-gather and the like", "#b07aa1", 11),
    Role(COPIES, "copies of other values, in another layout or to preserve them", "#e15759", 12),
    Role(GRADIENTS, "computed by the backward pass", "#d37295", 13),
    Role(ACTIVATIONS, "computed by the forward pass and kept for the backward pass", "#86bc5c", 14),
    Role(WORKSPACE, "scratch memory of library calls", "#b6992d", 15),
    Role(TEMPORARIES, "other intermediate results", "#5fa2ce", 16),
    Role(TUPLES, "tables of pointers, and the state of asynchronous operations", "#bab0ac", 18),
    Role(PADDING, "elements that layouts add to fill their tiles", "#ff9da7"),
    Role(ALIGNMENT, "from the end of a buffer to the next allowed offset", "#c9c3a5"),
    Role(FRAGMENTATION, "reserved for temporaries, but free at their peak", "#d9dde3"),
)
"""Every role, in the order of the page and its layers; a new role is a row here."""

OF_ARGUMENTS = frozenset({WEIGHTS, OPTIMIZER, CACHE, INPUTS, ARGUMENTS})
NO_BUFFERS = frozenset({PADDING, ALIGNMENT, FRAGMENTATION})
"""Roles of reserved memory that belongs to no buffer."""
MEANING = {role.name: role.meaning for role in ROLES}
_RANK = {role.name: role.rank for role in ROLES}

MAY_COPY = COPYING | {"fusion"}
_COPY_FUSION = lazy_pattern(
    r"(?:(?:^|_)copy(?:_fusion)?|^(?:wrapped_|copy_)?transpose(?:_fusion)?)(?:\.\d+)?$"
)
"""Fusions are named after their operations: `wrapped_copy.3`, `transpose_copy_fusion`."""
_SCALAR = lazy_pattern(r"[us]32\[\]")


def rank(role: str) -> int:
    return _RANK[role]


def role_by_name(name: str, opcode: Opcode | None, shape: str, operation: str | None) -> str:
    """The role of a temporary by names and opcode alone."""
    if shape.startswith("("):
        return TUPLES
    if opcode == "fusion":
        return COPIES if is_copy(name, opcode) else _role_of_operation(operation)
    if opcode is not None and _communicates(opcode):
        return TUPLES if _SCALAR.match(shape) else COLLECTIVES
    if opcode is not None and opcode.endswith("-start") and _SCALAR.match(shape):
        return TUPLES
    return COPIES if opcode in COPYING else _role_of_operation(operation)


_communicates = lru_cache(maxsize=256)(communicates)


def _role_of_operation(operation: str | None) -> str:
    if not operation or "jvp(" not in operation:
        return TEMPORARIES
    if is_backward(operation) and not is_recomputed(operation):
        return GRADIENTS
    return ACTIVATIONS


def is_copy(name: str, opcode: Opcode) -> bool:
    if opcode == "fusion":
        return ("copy" in name or "transpose" in name) and _COPY_FUSION.search(name) is not None
    return opcode in COPYING


_PATH_NAME = lazy_pattern(r"[A-Za-z_]\w*")
_ARGUMENT_NAMES = {
    OPTIMIZER: (
        r"\w*opt(?:imizer|im)?_?states?|opt|optimizer\w*|optim|mu|nu|trace|momentum\w*"
        r"|exp_avg\w*|adam\w*"
    ),
    CACHE: r"\w*cache[sd]?(?:_\w+)?|past_key\w*|kv\w*|[kv]_?pages?",
    WEIGHTS: (
        r"\w*params?|parameters|\w*weights?|model|net|variables|batch_stats|kernel|bias|embedding\w*"
        r"|theta|w[qkvoi]?\d*|frozen\w*|lora\w*|ema\w*|\w*_ema"
    ),
    INPUTS: (
        r"batch\w*|tokens?|\w*inputs?(?:_ids)?|[xy]s?\d*|images?|labels?|targets?|\w*mask|ids|data"
        r"|keys?|rngs?|seed|positions?|segment_ids|prompts?|features?"
    ),
}
"""Whole names of a path that tell a role."""
_ARGUMENT_PATTERNS = {
    role: lazy_pattern(names, re.IGNORECASE) for role, names in _ARGUMENT_NAMES.items()
}


@lru_cache(maxsize=4096)
def role_of_argument(path: str) -> str:
    """The role by the first telling name on a JAX path: `params['mu']` is a parameter."""
    for name in _PATH_NAME.findall(path):
        for role, pattern in _ARGUMENT_PATTERNS.items():
            if pattern.fullmatch(name):
                return role
    return ARGUMENTS
