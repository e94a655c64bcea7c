"""Measures `hlomem kernel` against libtpu: kernels × block sizes × chips.

    .venv-jax/bin/python -m tools.measure_kernels [--only NAME] [--chips v5e v6e v5p] [-o FILE]

Truth is a compile of the whole program, not of the kernel cut out of it, with the limits it has,
and without memory-space assignment, so that operands are in HBM, as they are for a kernel alone:
the bytes in libtpu's notes on generated code, or the size in its refusal. hlomem tells every number
(`--exact`); its searches, for all that fit and for the largest, are repeated with these.

The kernels: tools/programs/kernels/rows.py, tools/programs/kernels/dense.py,
tools/programs/kernels/attention.py, tools/programs/kernels/of_jax.py.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import HlomemError
from hlomem.base.sizes import parse_printed_size
from hlomem.jax.kernels.front import measure_factory
from hlomem.kernels.blocks import KernelFacts
from hlomem.kernels.search import BlockSearch, Limited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.report.data.kernels import KernelReport, KernelRow, KernelUse

_HOME = "tools.programs.kernels"
SUBJECTS: dict[str, dict[str, list[Any]]] = {
    "dense:matmul": {"block_m": [512, 1024], "block_k": [512, 1024]},
    "dense:gelu_matmul": {"block_m": [512, 1024], "block_k": [512, 2048]},
    "dense:silu_matmul": {"block_m": [256, 512], "block_n": [256, 1024]},
    "dense:plain_matmul": {"block_m": [256, 1024], "block_n": [512, 2048]},
    "dense:float_matmul": {"block": [256, 512, 1024]},
    "dense:int8_matmul": {"block_m": [256, 1024], "block_k": [512, 2048]},
    "dense:batched_matmul": {"block_m": [256, 1024], "block_n": [512, 2048]},
    "dense:swiglu": {"block_m": [128, 512], "block_f": [512, 1024]},
    "dense:grouped_matmul": {"block_m": [128, 512], "block_n": [512, 2048]},
    "rows:add": {"block": [64, 256, 512]},
    "rows:softmax": {"block": [128, 256, 512]},
    "rows:rms_norm": {"block": [128, 256, 512]},
    "rows:layer_norm": {"block": [64, 256, 512]},
    "rows:norm_backward": {"block": [64, 128, 256]},
    "rows:gelu": {"block": [128, 512, 1024]},
    "rows:rotary": {"block": [256, 512, 1024]},
    "rows:adam": {"block": [64, 128, 256]},
    "rows:quantize": {"block": [128, 256, 512, 1024]},
    "rows:total": {"block": [256, 512, 1024]},
    "rows:cross_entropy": {"block": [128, 512], "block_v": [2048, 8192]},
    "rows:transpose": {"block": [256, 512, 1024]},
    "rows:recurrence": {"block": [128, 256, 512]},
    "rows:gather": {"block": [1024, 8192]},
    "rows:by_hand": {"block": [256, 512, 1024]},
    "rows:whole": {"rows": [256, 512, 2048]},
    "rows:single_buffered": {"block": [256, 512, 1024]},
    "rows:thin": {"block": [4096, 16384, 65536]},
    "attention:rows_of_scores": {"block_q": [128, 256, 512, 1024]},
    "attention:online": {"block_q": [256, 1024], "block_k": [512, 2048]},
    "attention:windowed": {"block_q": [128, 512], "window": [512, 1024]},
    "attention:pages": {"page": [128, 512, 2048]},
    "attention:heads_together": {"block_q": [128, 512], "block_k": [512, 2048]},
    "of_jax:flash_forward": {"block_q": [256, 1024], "block_k": [512, 2048]},
    "of_jax:flash_backward": {"block": [256, 512, 1024]},
    "of_jax:tpu_matmul": {"block": [512, 1024], "block_k": [512, 1024]},
    "of_jax:gmm": {"tile_m": [512], "tile_k": [512, 1024], "tile_n": [512, 2048]},
    "of_jax:tgmm": {"tile_m": [256, 512], "tile_k": [512, 1024]},
    "of_jax:splash_forward": {"block_q": [256, 1024], "block_kv": [512, 1024]},
    "of_jax:splash_backward": {"block_q": [256, 512], "block_kv": [512]},
    "of_jax:paged": {"pages_per_block": [4, 16, 64]},
    "in_programs:layers": {"block": [128, 256, 512]},
}
_TRUTH = """
import json, sys, re, tempfile, glob
sys.path[:0] = json.loads(sys.argv[1])
from hlomem.jax.compile.factories import find_factory, make_program
from hlomem.jax.compile.programs import chip_context, write_dump
from hlomem.jax.target_kinds import parse_target
factory = find_factory(sys.argv[3])
for name, settings in json.loads(sys.argv[2]):
    target = parse_target(name)
    with tempfile.TemporaryDirectory() as folder:
        used, refusal = [], ""
        try:
            with chip_context(target):
                lowered = make_program(factory, settings, target).lowered
            refusal = write_dump(lowered, folder, json.loads(sys.argv[4])).refusal
        except Exception as error:
            refusal = "ERROR " + str(error)[:500]
        for path in glob.glob(folder + "/*after_codegen.txt"):
            for call in re.split(r"\\n  (?:ROOT )?%", open(path).read()):
                if 'custom_call_target="tpu_custom_call"' in call:
                    found = re.search(r'used_scoped_memory_configs":\\[([^]]*)\\]', call)
                    sizes = re.findall(r'"memory_space":"1"[^}]*"size":"(\\d+)"', found[1])
                    used += [int(size) for size in sizes] or [0]
        print("TRUTH", json.dumps([used, refusal]), flush=True)
"""
_SIZE = re.compile(r"(?:Scoped allocation with size|Used|\(size=)\s*([\d.]+[KMG]?)")


IN_HBM = dict.fromkeys((f"xla_{chip}_vmem_memory_space_assignment" for chip in ("vf", "gf")), False)
"""Options that keep the operands of kernels in HBM: one in VMEM needs no window of the kernel's."""


def truths(
    factory: str,
    asked: list[tuple[str, dict[str, Any]]],
    options: dict[str, Any] | None = None,
) -> list[tuple[list[int], str]]:
    """What libtpu says of whole programs, by target and setting: uses, and its refusal."""
    words = [json.dumps(sys.path), json.dumps(asked), factory, json.dumps(options or {})]
    done = subprocess.run(
        [sys.executable, "-c", _TRUTH, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line[6:]) for line in done.stdout.split("\n") if line[:6] == "TRUTH "]
    found = [(used, refusal) for used, refusal in lines]
    return found + [([], f"ERROR {done.stderr[-300:]}")] * (len(asked) - len(found))


def compare(row: KernelRow, used: list[int], refusal: str) -> str:
    """The difference between a row and the truth; empty where there is none."""
    ours = [use.used for use in row.kernels for _ in range(use.calls)]
    if refusal.startswith("ERROR"):
        return f"truth failed: {refusal[:200]}" if not row.problem else ""
    if any(use.used is not None and use.bound > use.used for use in row.kernels):
        return f"bound above {ours}"
    if refusal:
        if row.fits is not False:
            return f"libtpu refuses, we say {row.fits}: {refusal[:200]}"
        said = _SIZE.search(refusal)
        size = parse_printed_size(said[1]) if said else 0
        known = [size for use in row.kernels for size in (use.used, use.bound) if size]
        is_told = any(abs(size - one) <= 0.006 * (1 << 20) for one in known)
        is_part = "would exceed memory" in refusal
        return "" if is_told or is_part else f"libtpu says {said and said[1]}, we {known}"
    if row.fits is not True:
        return f"libtpu accepts, we say {row.fits} ({row.how})"
    return "" if sorted(ours, key=str) == sorted(used, key=str) else f"{ours} is not {used}"


def searched(rows: Sequence[KernelRow], *, is_largest: bool) -> BlockSearch:
    """The search of hlomem, with the numbers that are known already."""
    search = BlockSearch(
        [
            [Limited(_facts(use), use.limit) for use in ([] if row.problem else row.kernels)]
            for row in rows
        ],
        [row.settings for row in rows],
    )
    while (number := search.next_setting(is_largest=is_largest)) is not None:
        search.note(number, [use.used for use in rows[number].kernels])
    return search


def _facts(use: KernelUse) -> KernelFacts:
    return KernelFacts(name=use.name, line=use.line, grid=use.grid, blocks=use.blocks)


def measure(name: str, targets: list[str], cache: Path) -> list[dict[str, Any]]:
    """One factory on some chips."""
    factory, over = f"{_HOME}.{name}", SUBJECTS[name]
    exact = measure_factory(factory, targets=targets, over=over, cache=cache, is_exact=True)
    asked = [(row.target, row.settings) for row in exact.rows]
    truth = truths(factory, asked, IN_HBM)
    pairs = list(zip(exact.rows, truth, strict=True))
    return [
        _summary(name, target, [pair for pair in pairs if pair[0].target == target], exact)
        for target in exact.targets
    ]


def _summary(
    name: str,
    target: str,
    pairs: list[tuple[KernelRow, tuple[list[int], str]]],
    exact: KernelReport,
) -> dict[str, Any]:
    rows = [row for row, _ in pairs]
    problems = [
        f"{row.settings}: {words}"
        for row, (used, refusal) in pairs
        if (words := compare(row, used, refusal))
    ]
    few, largest = searched(rows, is_largest=False), searched(rows, is_largest=True)
    for number, (row, (_, refusal)) in enumerate(pairs):
        decision = few.decisions.get(number)
        if decision is not None and decision.fits == bool(refusal):
            problems.append(f"{row.settings}: inferred {decision}, libtpu: {refusal[:100]}")
    sizes = [sum(use.bound for use in row.kernels) for row in rows]
    best = max((size for size, (_, (_, no)) in zip(sizes, pairs, strict=True) if not no), default=0)
    found = 0 if largest.largest is None else sizes[largest.largest]
    if largest.is_proven and found != best:
        problems.append(f"largest: {found} is not {best}")
    return {
        "name": name,
        "target": target,
        "settings": len(rows),
        "kernels": max(len(row.kernels) for row in rows),
        "decided": sum(one.how != "compiled" for one in few.decisions.values()),
        "largest_compiles": len(largest.compiled),
        "largest_proven": largest.is_proven,
        "cpu_seconds": exact.cpu_seconds,
        "ratios": [round(u.used / u.bound, 3) for row in rows for u in row.kernels if u.used],
        "problems": problems,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--chips", nargs="+", default=["v5e", "v6e", "v5p"])
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    done = []
    with TemporaryDirectory() as cache:
        for name in SUBJECTS:
            if asked.only not in name:
                continue
            try:
                found = measure(name, [f"tpu-{chip}" for chip in asked.chips], Path(cache))
            except HlomemError as error:
                found = [{"name": name, "problems": [str(error)[:300]]}]
            done += found
            for one in found:
                print(json.dumps(one), flush=True)
    if asked.output:
        asked.output.write_text(json.dumps(done, indent=1))
    settings = sum(found.get("settings", 0) for found in done)
    decided = sum(found.get("decided", 0) for found in done)
    wrong = sum(len(found["problems"]) for found in done)
    print(f"{len(done)} grids, {settings} settings, {decided} without a compile, {wrong} wrong")


if __name__ == "__main__":
    main()
