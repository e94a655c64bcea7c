"""What values are, in programs as users compile them."""

from __future__ import annotations

from collections import Counter

from hlomem.report.data import allocation_kinds, roles
from hlomem.report.data.memory import MemoryView
from hlomem.report.data.occupancy import build_role_shares
from tests.trials import trial


def _shares(memory: MemoryView) -> dict[str, int]:
    return {share.role: share.size for share in build_role_shares(memory, 0)}


def test_an_activation_that_leaves_vmem_is_an_activation() -> None:
    memory = trial("tpu/gpt")
    evicted = [b for b in memory.buffers if b.opcode == "copy-start" and b.color == 0 and b.moved]
    assert {b.moved for b in evicted} == {"moved from vmem to hbm"}
    sizes: Counter[str] = Counter()
    for buffer in evicted:
        sizes[buffer.role] += buffer.size
        [source, *_] = memory.operands(buffer)
        is_copied = source.role == roles.COPIES
        assert (buffer.role == roles.COPIES) is is_copied, buffer.name
    assert sizes[roles.ACTIVATIONS] > 0.7 * sizes.total()
    assert _shares(memory)[roles.COPIES] < 0.02 * memory.spaces[0].size


def test_what_rematerialization_compresses_stays_what_it_was() -> None:
    memory = trial("tpu/concat_oom", "attend")
    compressed = [b for b in memory.buffers if ".remat_" in b.name and b.opcode == "copy"]
    assert len(compressed) > 100
    assert {b.role for b in compressed} == {roles.TEMPORARIES}
    assert {b.moved for b in compressed} == {
        "kept compressed by XLA's rematerialization",
        "decompressed by XLA's rematerialization",
    }


def test_an_activation_in_a_results_memory_is_an_activation() -> None:
    memory = trial("cpu/gpt")
    guests = [
        b for b in memory.buffers if b.place == allocation_kinds.RESULTS and b.end != memory.steps
    ]
    assert {roles.ACTIVATIONS, roles.GRADIENTS, roles.TEMPORARIES} <= {b.role for b in guests}
    assert roles.RESULTS not in {b.role for b in guests}


def test_only_what_the_caller_gets_is_a_result() -> None:
    memory = trial("cpu/gpt")
    results = [b for b in memory.buffers if b.role == roles.RESULTS]
    assert results
    assert {b.end for b in results} == {memory.steps}
    assert {b.place for b in results} == {allocation_kinds.RESULTS}


def test_results_lie_in_the_memory_of_donated_arguments() -> None:
    memory = trial("tpu/gpt_donate")
    results = [b for b in memory.buffers if b.role == roles.RESULTS and b.size > 4096]
    assert {b.place for b in results} == {allocation_kinds.DONATED}


def test_arguments_are_parameters_optimizer_state_and_batch() -> None:
    shares = _shares(trial("tpu/gpt"))
    assert shares[roles.OPTIMIZER] // shares[roles.WEIGHTS] == 2
    assert 0 < shares[roles.INPUTS] < 2**20
    assert roles.ARGUMENTS not in shares
    conv = _shares(trial("tpu/conv"))
    assert conv[roles.INPUTS] > conv[roles.WEIGHTS]


def test_a_decode_loops_cache_is_a_cache_also_where_the_loop_carries_it() -> None:
    memory = trial("tpu/decode", "decode")
    cached = [b for b in memory.buffers if b.role == roles.CACHE and b.size > 2**20]
    assert {"kcache", "vcache"} <= {b.parameter for b in cached}
    assert {allocation_kinds.ARGUMENTS, allocation_kinds.TEMPORARIES} <= {b.place for b in cached}


def test_an_activation_is_read_by_the_backward_pass() -> None:
    memory = trial("cpu/gpt")
    kept = [b for b in memory.buffers if b.role == roles.ACTIVATIONS]
    first = min(b.start or 0 for b in memory.buffers if b.role == roles.GRADIENTS)
    assert kept
    assert sum(b.size for b in kept if (b.end or 0) < first) < 0.1 * sum(b.size for b in kept)


def test_one_moment_for_roles_and_peak() -> None:
    memory = trial("cpu/gpt")
    timeline = memory.timeline(0)
    assert timeline is not None
    assert memory.fullest_step(0) == timeline.peak.step


def test_what_a_scan_stacks_on_the_host_is_stacked() -> None:
    memory = trial("tpu/fsdp_offload")
    [host] = [space for space in memory.spaces if space.name == "host"]
    here = [b for b in memory.buffers if b.color == host.color and b.size > 2**20]
    assert {b.role for b in here} == {roles.STACKED}
