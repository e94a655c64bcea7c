"""Code to paste: functions that wrap a layer or the body of a scan, and the wrappers by framework.

The texts need `import jax`; all but the first are complete as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.advice.functions import LayerFunction

DOTS = "dots_with_no_batch_dims_saveable"
NOTHING = "nothing_saveable"

SCAN_IN_CHUNKS = '''
def scan_in_chunks(body, init, xs=None, length=None, reverse=False, **options):
    """As jax.lax.scan; the backward pass recomputes about sqrt(length) steps at a time."""
    n = jax.tree.leaves(xs)[0].shape[0] if length is None else length
    chunk = min((d for d in range(1, n + 1) if n % d == 0), key=lambda d: abs(d - n**0.5))

    def steps(carry, part):
        return jax.lax.scan(body, carry, part, length=chunk, reverse=reverse, **options)

    parts = jax.tree.map(lambda x: x.reshape(n // chunk, chunk, *x.shape[1:]), xs)
    carry, ys = jax.lax.scan(jax.checkpoint(steps), init, parts, n // chunk, reverse)
    return carry, jax.tree.map(lambda y: y.reshape(n, *y.shape[2:]), ys)

'''

OFFLOADED = '''
def offloaded(body):
    """The body of a scan, recomputed in the backward pass from carries in the host's memory."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["carry"],
        offload_src="device", offload_dst="pinned_host")

    def named(carry, x):
        return body(jax.tree.map(lambda a: checkpoint_name(a, "carry"), carry), x)

    return jax.checkpoint(named, policy=policy, prevent_cse=False)

'''
DROPS_GATHERED = "drops_gathered"
DROPPED_PRIMITIVES = (
    "sharding_constraint", "all_gather", "all_gather_invariant", "convert_element_type",
    "transpose", "reshape", "squeeze", "copy",
)  # fmt: skip
"""The operations whose results this policy does not keep."""
DROPPING_POLICY = '''
def drops_gathered(primitive, *_, **__):
    """A policy of jax.checkpoint: what is gathered, moved or converted is not kept."""
    moves = {"sharding_constraint", "all_gather", "all_gather_invariant", "convert_element_type"}
    return primitive.name not in moves | {"transpose", "reshape", "squeeze", "copy"}

'''

OFFLOADED_IMPORT = "from jax.ad_checkpoint import checkpoint_name\n"

CHECKPOINT_WITH = '''
def checkpoint_with(*names, **options):
    """jax.checkpoint of a function with arguments that are no arrays: those of these names."""

    def decorate(function):
        def call(*args, **kwargs):
            given = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
            fixed = {name: given.pop(name) for name in names if name in given}
            return jax.checkpoint(lambda given: function(**given, **fixed), **options)(given)

        return call

    return decorate

'''
CHECKPOINT_WITH_IMPORT = "import inspect\n"

WRAPPERS = {
    "linen": ("flax.linen", "remat"),
    "nnx": ("flax.nnx", "remat"),
    "equinox": ("equinox", "filter_checkpoint"),
    "jax": ("jax", "checkpoint"),
}
"""The module and the function that recompute a function, by framework."""


def wrap_layers(layers: Iterable[LayerFunction], policy: str = "") -> str:
    """Code after the definitions of functions that has them recomputed."""
    option = f", policy=jax.checkpoint_policies.{policy}" if policy else ""
    imports, lines = {}, []
    for layer in layers:
        if layer.is_lambda:
            lines.append(f"# jax.checkpoint(…{option}) around {layer.short_name}")
            continue
        where = f"  # called at {layer.caller}" if layer.caller else ""
        name = layer.short_name.rpartition(".")[2]
        if layer.is_linen:
            imports["import flax.linen as nn"] = ""
            lines.append(f"{name} = nn.remat({name}{option}){where}")
        else:
            is_module = layer.name.endswith(".__call__")
            name = name.lower() if is_module else name  # what is called is one of its class
            lines.append(f"{name} = jax.checkpoint({name}{option}){where}")
        if policy or not layer.is_linen:
            imports["import jax"] = ""
    return "\n".join([*imports, *dict.fromkeys(lines)])
