"""MaxText's public configurations: the largest batch by plans, and by whole compiles.

    python -m tools.measure_sizes plan [--only NAME ...]    # every configuration
    python -m tools.measure_sizes prove NAME ...            # whole compiles of the two neighbours
    python -m tools.measure_sizes meshes                    # 24 and more meshes of one slice
    python -m tools.measure_sizes write                     # docs/fit.md, from what was measured

Needs MaxText (0.2.5 was used) next to JAX and libtpu. What is measured is added to --record, a JSON
file, so that any part can be made again. CPU seconds are those of the processes that lower and
plan, imports included, and of this one; those of whole compiles as well.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import hlomem.jax
from hlomem.base.errors import HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.jax.compile.messages import Job
from hlomem.jax.target_kinds import parse_target
from hlomem.report.screens.fit_text import format_seconds
from tools.documents import ROOT
from tools.tables import put

FACTORY = "hlomem.stacks.maxtext:train_step"
BATCH = "per_device_batch_size"
_PAGE = ROOT / "docs/fit.md"
_SECONDS = 1500
_LONGEST = 130
"""Letters of a refusal that the table shows."""


class Config(NamedTuple):
    """A configuration of MaxText, by its own files, on a slice."""

    name: str
    target: str
    settings: dict[str, Any]


def _model(model: str, target: str, **more: Any) -> Config:
    policy = more.get("remat_policy", "full")
    return Config(f"{model}, {policy}", target, {"model_name": model, **more})


def _recipe(recipe: str, target: str) -> Config:
    return Config(f"tpu/{recipe}", target, {"recipe": recipe})


CONFIGS = (
    _model("qwen3-0.6b", "tpu-v5e:4"),
    _model("qwen3-0.6b", "tpu-v6e:4", remat_policy="minimal"),
    _model("gemma-2b", "tpu-v5e:8"),
    _model("gemma2-2b", "tpu-v6e:4"),
    _model("qwen3-1.7b", "tpu-v4:4", remat_policy="save_qkv_proj"),
    _model("qwen2.5-1.5b", "tpu-v5e:8", remat_policy="minimal"),
    _model("llama2-7b", "tpu-v5e:16"),
    _model("llama2-7b", "tpu-v5e:16", remat_policy="save_qkv_proj"),
    _model("llama2-7b", "tpu-v5e:16", remat_policy="minimal"),
    _model("llama3.1-8b", "tpu-v6e:8"),
    _model("mistral-7b", "tpu-v5p:4", remat_policy="minimal"),
    _model("qwen3-4b", "tpu-v4:8"),
    _model("qwen3-8b", "tpu-7x:4"),
    _model("gemma3-4b", "tpu-v6e:8"),
    _model("olmo3-7b", "tpu-v5p:8"),
    _model("gpt-oss-20b", "tpu-v6e:32"),
    _model("deepseek2-16b", "tpu-v5p:16"),
    _model("mixtral-8x7b", "tpu-v5p:32"),
    _model("llama2-7b", "tpu-v5e:8@2"),
    _model("llama3.1-8b", "tpu-v4:16@2"),
    _recipe("v5e/llama2_7b.sh", "tpu-v5e:256"),
    _recipe("v5e/16b.sh", "tpu-v5e:256"),
    _recipe("v4/22b.sh", "tpu-v4:64"),
    _recipe("v5p/32b.sh", "tpu-v5p:64"),
    _recipe("v6e/gemma2_9b.sh", "tpu-v6e:256"),
    _recipe("v6e/mixtral_8x7b.sh", "tpu-v6e:256"),
)


def _key(config: Config) -> str:
    return f"{config.name} on {parse_target(config.target).name}"


def _seconds() -> float:
    """CPU time of this process and of all that it has waited for."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def _search(config: Config, cache: Path) -> dict[str, Any]:
    """The row of `fit`, as it is recorded."""
    began = _seconds()
    found = hlomem.jax.fit(
        FACTORY,
        target=config.target,
        over=BATCH,
        settings=config.settings,
        cache=cache,
        timeout=600,
        workers=1,
    )
    [row] = found.rows
    return {
        "target": row.target,
        "largest": row.largest,
        "refused": row.smallest_refused,
        "is_proven": row.is_proven,
        "sizes": {str(plan.value): plan.size for plan in row.plans},
        "plans": len(row.plans),
        "seconds": round(_seconds() - began, 1),
        "command": row.command,
    }


def plan(configs: list[Config], record: dict[str, Any], cache: Path, save: Any) -> None:
    """Search each configuration; plans that are cached would cost nothing, so they are not used."""
    for config in configs:
        try:
            record["plans"][_key(config)] = _search(config, cache)
        except HlomemError as error:
            record["plans"][_key(config)] = {"problem": str(error).partition("\n")[0]}
        print(_key(config), record["plans"][_key(config)], flush=True)
        save()


def _compile(config: Config, value: int) -> dict[str, Any]:
    job = Job(factory=FACTORY, target=config.target, settings={**config.settings, BATCH: value})
    done = subprocess.run(
        [sys.executable, "-m", "tools.whole_compile", msgspec.json.encode(job).decode()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def prove(configs: list[Config], record: dict[str, Any], save: Any) -> None:
    """Compile the largest batch and the next whole."""
    for config in configs:
        row = record["plans"][_key(config)]
        values = [row["largest"], row["refused"]]
        made = {str(value): _compile(config, value) for value in values if value}
        record["proofs"][_key(config)] = made
        print(_key(config), made, flush=True)
        save()


MESHES = _model("llama2-7b", "tpu-v5e:16", allow_split_physical_axes=True)
AXES = ("fsdp", "tensor", "data", "context")


def meshes(record: dict[str, Any], cache: Path) -> None:
    """Every mesh of a slice of 16 chips."""
    began = _seconds()
    found = hlomem.jax.fit(
        FACTORY,
        target=MESHES.target,
        over="",
        rows={"mesh": ["auto"]},
        axes=AXES,
        settings={**MESHES.settings, BATCH: 1},
        cache=cache,
        timeout=600,
    )
    rows = [
        {
            "mesh": row.settings["mesh"],
            "needs": row.plans[0].size if row.plans else None,
            "sent": row.plans[0].sent if row.plans else None,
            "seconds": row.plans[0].seconds if row.plans else None,
            "problem": row.problem,
        }
        for row in found.rows
    ]
    record["meshes"] = {
        "axes": AXES,
        "rows": rows,
        "seconds": round(_seconds() - began, 1),
    }
    print(json.dumps(record["meshes"], indent=1), flush=True)


def prove_meshes(record: dict[str, Any], save: Any) -> None:
    """Compile the mesh that needs the least and the one that needs the most whole."""
    known = [row for row in record["meshes"]["rows"] if row["needs"]]
    for row in (min(known, key=_needs), max(known, key=_needs)):
        sizes = dict(zip(AXES, map(int, row["mesh"].split("x")), strict=True))
        config = Config("mesh", MESHES.target, {**MESHES.settings, "mesh": sizes})
        row["whole"] = _compile(config, 1)
        print(row, flush=True)
        save()


def _needs(row: dict[str, Any]) -> int:
    return int(row["needs"])


def _table(record: dict[str, Any]) -> str:
    lines = [
        "| configuration | target | largest | needs | next | plans, CPU | whole, CPU | share |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for config in CONFIGS:
        row = record["plans"].get(_key(config))
        if row is None:
            continue
        if "problem" in row:
            said = row["problem"].partition("raised: ")[2] or row["problem"].rpartition("`: ")[2]
            words = f"{said[:_LONGEST]}…" if len(said) > _LONGEST else said
            lines.append(f"| {config.name} | `{config.target}` | {words} | | | | | |")
            continue
        sizes = row["sizes"]
        best, after = sizes.get(str(row["largest"])), sizes.get(str(row["refused"]))
        cells = [
            config.name,
            f"`{row['target']}`",
            f"{'' if row['is_proven'] else '≥ '}{row['largest'] or 'none'}",
            format_bytes(best) if best else "-",
            f"{row['refused']}: {format_bytes(after)}" if after else "-",
            f"{row['plans']}, {row['seconds']:.0f} s",
            _proof(record["proofs"].get(_key(config)), row),
            _share(record["proofs"].get(_key(config)), row),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _proof(proof: dict[str, Any] | None, row: dict[str, Any]) -> str:
    if proof is None:
        return ""
    words = []
    for value, answer in proof.items():
        if answer["refusal"]:
            words.append(f"{value} refused, {answer['seconds']:.0f} s")
        else:
            apart = abs(answer["total"] - row["sizes"][value])
            share = f"{apart} bytes apart" if apart else "the same bytes"
            words.append(f"{value} accepted, {share}, {answer['seconds']:.0f} s")
    return "; ".join(words)


def _share(proof: dict[str, Any] | None, row: dict[str, Any]) -> str:
    """The search in relation to one that compiles every value it looks at."""
    if not proof or len(proof) < 2:
        return ""
    accepted = sum(1 for value in row["sizes"] if int(value) <= row["largest"])
    refused = len(row["sizes"]) - accepted
    fits, not_fits = (answer["seconds"] for answer in proof.values())
    return f"{100 * row['seconds'] / (accepted * fits + refused * not_fits):.0f} %"


def _mesh_table(measured: dict[str, Any]) -> str:
    """The five meshes that need the least, and the one that needs the most."""
    known = sorted((row for row in measured["rows"] if row["needs"]), key=_needs)
    refused = [row for row in measured["rows"] if not row["needs"]]
    lines = [
        f"| {' × '.join(measured['axes'])} | needs | sent | step | whole compile |",
        "|---|---|---|---|---|",
    ]
    for row in (*known[:5], known[-1]):
        step = format_seconds(row["seconds"]) if row["seconds"] else "-"
        sizes = f"{format_bytes(row['needs'])} | {format_bytes(row['sent'])}"
        lines.append(f"| {row['mesh']} | {sizes} | {step} | {_mesh_proof(row)} |")
    words = f"{len(known)} meshes were planned in {measured['seconds']:.0f} s of CPU"
    if refused:
        words += f"; {len(refused)} more are lines with a reason, which is MaxText's"
    return "\n".join([*lines, "", f"{words}."])


def _mesh_proof(row: dict[str, Any]) -> str:
    whole = row.get("whole")
    if whole is None:
        return ""
    spent = f"{whole['seconds']:.0f} s"
    if whole["refusal"]:
        return f"refused, {spent}"
    apart = whole["total"] - row["needs"]
    return f"accepted, {f'{apart} bytes apart' if apart else 'the same bytes'}, {spent}"


def main() -> int:
    """Do one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("plan", "prove", "meshes", "prove-meshes", "write", "list")
    parser.add_argument("part", choices=parts)
    parser.add_argument("only", nargs="*", help="parts of the names of configurations")
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True, help="empty, for times to count")
    given = parser.parse_args()
    record: dict[str, Any] = {"plans": {}, "proofs": {}, "meshes": {}}
    if given.record.exists():
        record |= json.loads(given.record.read_text())

    def save() -> None:
        given.record.write_text(json.dumps(record, indent=1))

    chosen = [
        config
        for config in CONFIGS
        if not given.only or any(word in _key(config) for word in given.only)
    ]
    if given.part == "plan":
        plan(chosen, record, given.cache, save)
    elif given.part == "prove":
        prove(chosen, record, save)
    elif given.part == "meshes":
        meshes(record, given.cache)
        save()
    elif given.part == "prove-meshes":
        prove_meshes(record, save)
    elif given.part == "list":
        print("\n".join(map(_key, chosen)))
    else:
        put(_PAGE, "sizes", _table(record))
        put(_PAGE, "meshes", _mesh_table(record["meshes"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
