"""Programs as they run in production on TPUs, to be compiled for chips with sparse cores.

Training and serving steps with real shapes: large tables of embeddings, experts, graphs, caches of
keys and values, states kept in the host's memory; and their like partitioned over all devices of a
host. They were written to measure rules that had been made before them (docs/history.md, "First
contact"), so no rule may be read off them without saying so. `program` is a factory for
`hlomem compile`; every maker makes what jit is to be given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tools.programs import on_all, on_one
from tools.programs.parts import jax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.programs.parts import Program

ON_ONE: tuple[Callable[[Any], Program], ...] = (
    on_one.gpt_adam,
    on_one.gpt_mixed,
    on_one.experts_sorted,
    on_one.experts_capacity,
    on_one.dlrm,
    on_one.dlrm_adagrad,
    on_one.sparse_rows,
    on_one.two_towers,
    on_one.graph_net,
    on_one.graph_attention,
    on_one.word_vectors,
    on_one.decode_step,
    on_one.paged_decode,
    on_one.prefill_blocks,
    on_one.offload_activations,
    on_one.offload_moments,
    on_one.offload_cache,
    on_one.offload_weights,
    on_one.branches_in_loop,
    on_one.sampling,
    on_one.speculate,
    on_one.state_space,
    on_one.alignments,
    on_one.relative_positions,
    on_one.histograms,
)
ON_ALL: tuple[Callable[[Any], Program], ...] = (
    on_all.fsdp_gpt,
    on_all.tensor_parallel_gpt,
    on_all.experts_exchanged,
    on_all.ring_attention,
    on_all.ring_forward,
    on_all.pipeline,
    on_all.sharded_words,
    on_all.dlrm_sharded,
    on_all.graphs_parallel,
    on_all.fsdp_offload,
    on_all.overlapped_products,
    on_all.sharded_cache,
    on_all.sharded_optimizer,
    on_all.sharded_ranking,
)
PRODUCTION_PROGRAMS = {maker.__name__: maker for maker in (*ON_ONE, *ON_ALL)}


def program(name: str, devices: Sequence[Any]) -> Any:
    """The factory: a program by name."""
    made = PRODUCTION_PROGRAMS[name](devices)
    return jax.jit(made.function, donate_argnums=made.donated), made.arguments
