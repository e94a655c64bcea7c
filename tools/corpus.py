"""What the tools that go through the corpus share: its place, two processes, counts as JSON."""

from __future__ import annotations

import argparse
import json
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

J = TypeVar("J")
T = TypeVar("T")

BESIDE = Path(__file__).resolve().parent.parent.parent / "shared"
WORKERS = 2


def parse_arguments(description: str | None, arguments: Sequence[str] | None) -> argparse.Namespace:
    """`--corpus FOLDER` and `--json FILE`, which every tool has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, default=BESIDE, help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    return parser.parse_args(arguments)


def entries_in(corpus: Path) -> list[Path]:
    """The folders of the corpus that hold a module, XLA's dump of it, and facts about both."""
    return [path.parent for path in sorted(corpus.glob("*/*/*/meta.json"))]


def read_facts(entry: Path) -> dict[str, Any]:
    """The facts that are written down about a golden or an entry of the corpus."""
    path = next(path for path in (entry / "meta.json", entry / "origin.json") if path.exists())
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return facts


def machine_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The machine and the release that an entry is of, as `hlomem.plan` takes them."""
    package = "libtpu" if facts["backend"] == "tpu" else "jaxlib"
    era = f"{package}-{facts['versions'][package]}"
    return {"backend": facts["backend"], "chip": facts.get("chip") or "", "era": era}


def plan_arguments(facts: Mapping[str, Any], dump: object) -> dict[str, Any]:
    """How an entry is planned, and what is taken from its dump for it."""
    return {
        **machine_of(facts),
        "schedule": None if facts.get("scheduled", True) else dump,
        "preset": dump if facts["backend"] == "tpu" else None,
    }


def check_all(check: Callable[[J], T], jobs: Sequence[J]) -> list[T]:
    """The results of a check for each job, in their order, made by two processes."""
    with get_context("spawn").Pool(WORKERS) as pool:
        return pool.map(check, jobs, chunksize=max(1, len(jobs) // (WORKERS * 16)))


def write_counts(path: Path | None, counts: Mapping[str, object]) -> None:
    """Write counts for the page that shows them, if a file was asked for."""
    if path is not None:
        path.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
