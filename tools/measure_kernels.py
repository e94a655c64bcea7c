"""Measures `hlomem kernel` against libtpu: kernels × block sizes × chips.

    .venv-jax/bin/python -m tools.measure_kernels [--only NAME] [--chips v5e v6e v5p] [-o FILE]

Truth is a compile of the whole program, not of the kernel cut out of it, with the limits it has:
the bytes in libtpu's notes on generated code, or the size in its refusal. Three runs of hlomem
answer: every number (`--exact`), which settings fit in few compiles, and the largest.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import HlomemError
from hlomem.base.sizes import parse_printed_size
from hlomem.jax.kernels.front import measure_factory

if TYPE_CHECKING:
    from hlomem.report.data.kernels import KernelReport, KernelRow

_HOME = "tools.programs.kernels"
SUBJECTS: dict[str, dict[str, list[Any]]] = {
    "dense:matmul": {"block_m": [256, 1024], "block_n": [512, 1024], "block_k": [512, 1024]},
    "dense:gelu_matmul": {"block_m": [512, 1024], "block_k": [512, 1024, 2048]},
    "dense:silu_matmul": {"block_m": [256, 512], "block_n": [256, 1024]},
    "dense:plain_matmul": {"block_m": [256, 1024], "block_n": [512, 2048]},
    "dense:float_matmul": {"block": [256, 512, 1024]},
    "dense:int8_matmul": {"block_m": [256, 1024], "block_k": [512, 2048]},
    "dense:batched_matmul": {"block_m": [256, 1024], "block_n": [512, 2048]},
    "dense:swiglu": {"block_m": [128, 512], "block_f": [256, 512, 1024]},
    "dense:grouped_matmul": {"block_m": [128, 512], "block_n": [512, 2048]},
    "rows:add": {"block": [64, 256, 512]},
    "rows:softmax": {"block": [64, 128, 256, 512]},
    "rows:rms_norm": {"block": [64, 128, 256, 512]},
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
    "of_jax:tpu_matmul": {"block": [256, 512, 1024], "block_k": [512, 1024]},
    "of_jax:gmm": {"tile_m": [256, 512], "tile_k": [512, 1024], "tile_n": [512, 2048]},
    "of_jax:tgmm": {"tile_m": [256, 512], "tile_k": [512, 1024]},
    "of_jax:splash_forward": {"block_q": [256, 1024], "block_kv": [512, 1024]},
    "of_jax:splash_backward": {"block_q": [256, 512], "block_kv": [512, 1024]},
    "of_jax:paged": {"pages_per_block": [4, 16, 64]},
    "in_programs:layers": {"block": [128, 256, 512]},
}
_TRUTH = """
import json, sys, re, tempfile, glob
sys.path[:0] = json.loads(sys.argv[1])
from hlomem.jax.compile.factories import find_factory, make_program
from hlomem.jax.compile.programs import write_dump
from hlomem.jax.kernels.measuring import _chip_context
from hlomem.jax.target_kinds import parse_target
target = parse_target(sys.argv[2]); target.devices
factory = find_factory(sys.argv[3])
for settings in json.loads(sys.argv[4]):
    with tempfile.TemporaryDirectory() as folder:
        used, refusal = [], ""
        try:
            with _chip_context(target):
                lowered = make_program(factory, settings, target).lowered
            refusal = write_dump(lowered, folder).refusal
        except Exception as error:
            refusal = "ERROR " + str(error)[:500]
        for path in glob.glob(folder + "/*after_codegen.txt"):
            for piece in open(path).read().split("\\n  %"):
                if 'custom_call_target="tpu_custom_call"' in piece or "ROOT" in piece:
                    for call in re.split(r"\\n  ROOT ", piece):
                        if 'custom_call_target="tpu_custom_call"' in call:
                            found = re.search(r'used_scoped_memory_configs":\\[([^]]*)\\]', call)
                            sizes = re.findall(r'"memory_space":"1"[^}]*"size":"(\\d+)"', found[1])
                            used += [int(size) for size in sizes] or [0]
        print("TRUTH", json.dumps([settings, used, refusal]), flush=True)
"""
_SIZE = re.compile(r"(?:Scoped allocation with size|Used|\(size=)\s*([\d.]+[KMG]?)")


def truths(factory: str, target: str, settings: list[dict[str, Any]]) -> list[Any]:
    """What libtpu says of the whole program at each setting: uses, and its refusal."""
    done = subprocess.run(
        [sys.executable, "-c", _TRUTH, json.dumps(sys.path), target, factory, json.dumps(settings)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = [json.loads(line[6:]) for line in done.stdout.split("\n") if line[:6] == "TRUTH "]
    return found + [[one, [], "ERROR process died"] for one in settings[len(found) :]]


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


def measure(name: str, target: str, cache: Path) -> dict[str, Any]:
    """One factory on one chip."""
    factory, over = f"{_HOME}.{name}", SUBJECTS[name]
    runs: dict[str, KernelReport] = {}
    for kind in ("is_exact", "few", "is_largest"):
        flags: dict[str, Any] = {} if kind == "few" else {kind: True}
        runs[kind] = measure_factory(factory, targets=[target], over=over, cache=cache, **flags)
    exact, few, largest = runs["is_exact"], runs["few"], runs["is_largest"]
    settings = [dict(zip(over, values, strict=True)) for values in product(*over.values())]
    truth = truths(factory, target, settings)
    problems = []
    for row, (own, used, refusal) in zip(exact.rows, truth, strict=True):
        if words := compare(row, used, refusal):
            problems.append(f"{own}: {words}")
    for row, other in zip(exact.rows, few.rows, strict=True):
        is_right = row.how == "lower bound" or all(use.used is not None for use in row.kernels)
        fits = all(use.used is not None and use.used <= use.limit for use in row.kernels)
        if not row.problem and is_right and other.fits != (fits and row.how != "lower bound"):
            problems.append(f"{row.settings}: inferred {other.fits} by {other.how}, is {fits}")
    best = max(
        (
            sum(u.bound for u in row.kernels)
            for row, one in zip(exact.rows, truth, strict=True)
            if not one[2]
        ),
        default=0,
    )
    [found] = largest.largest
    ours = next((row for row in largest.rows if row.settings == found.settings), None)
    if found.is_proven and sum(use.bound for use in (ours.kernels if ours else ())) != best:
        problems.append(f"largest: {found.settings}")
    return {
        "name": name,
        "target": target,
        "settings": len(settings),
        "kernels": max(len(row.kernels) for row in exact.rows),
        "decided": sum(row.how not in ("compiled", "") for row in few.rows),
        "largest_compiles": found.compiles,
        "largest_proven": found.is_proven,
        "cpu_seconds": exact.cpu_seconds,
        "ratios": [
            round(use.used / use.bound, 3) for row in exact.rows for use in row.kernels if use.used
        ],
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
        for chip in asked.chips:
            for name in SUBJECTS:
                if asked.only in name:
                    try:
                        found = measure(name, f"tpu-{chip}", Path(cache))
                    except HlomemError as error:
                        found = {"name": name, "target": chip, "problems": [str(error)[:300]]}
                    done.append(found)
                    print(json.dumps(found), flush=True)
    if asked.output:
        asked.output.write_text(json.dumps(done, indent=1))
    settings = sum(found.get("settings", 0) for found in done)
    decided = sum(found.get("decided", 0) for found in done)
    wrong = sum(len(found["problems"]) for found in done)
    print(f"{len(done)} grids, {settings} settings, {decided} without a compile, {wrong} wrong")


if __name__ == "__main__":
    main()
