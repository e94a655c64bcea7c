"""The page's own arithmetic, in node: whose each byte is, groups, layers and sizes as in Python."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pytest

import hlomem
from hlomem.base.sizes import format_bytes, format_change
from hlomem.report.data.front import FrontPoint, sort_front
from hlomem.report.data.memory import MemoryView, Space, build_memory
from hlomem.report.data.occupancy import ownership_key
from hlomem.report.data.peak import Key, group
from hlomem.report.data.timeline import Layer, build_skyline
from hlomem.report.json import encode
from hlomem.report.page.html import TEMPLATES, bundle
from hlomem.report.page.page import build_page
from tests.places import ROOT
from tests.report.data.test_front import REST, point
from tools.check_scripts import find_node

GOLDENS = ROOT / "tests" / "goldens"
DUMPS = [
    *sorted((GOLDENS / "seeds").glob("*.txt")),
    *sorted((GOLDENS / "xla").glob("*/*/*"))[::7],
    ROOT / "examples" / "train_step",
]
_LARGEST_EXACT = 2**53 - 1
"""Of the integers JavaScript tells apart."""
_QUARTERS = range(0, 1 << 14, 256)


@pytest.fixture(scope="module")
def node() -> str:
    """Node, which every machine with the development requirements has: playwright brings one."""
    found = find_node()
    if found is None:
        pytest.skip("no node here, neither the machine's nor playwright's")
    return found


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Python says, for node to compare with."""
    path = tmp_path_factory.mktemp("model") / "cases.json"
    content = {
        "bytes": [[size, format_bytes(size)] for size in _sizes()],
        "ranges": list(_ranges()),
        "changes": [
            [part, whole, format_change(part, whole)]
            for whole in (0, 7, 1000, 4096)
            for part in range(-1100, 1100, 7)
        ],
        "fronts": list(_fronts()),
        "scales": [[low / 100, high / 100] for low in (-40, -2, 0) for high in (1, 7, 33, 250)],
        "dumps": [_dump(path) for path in DUMPS],
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _sizes() -> Iterator[int]:
    """Small ones, and those around every unit: halfway between two texts, or nearly."""
    yield from range(-2048, 2048)
    source = random.Random(1)  # noqa: S311 - no secret
    for power in range(0, 53, 10):
        for quarter in _QUARTERS:
            size = quarter << max(0, power - 10)
            yield from (
                min(size + more, _LARGEST_EXACT) for more in (-1, 0, 1, source.getrandbits(power))
            )


def _ranges() -> Iterator[dict[str, Any]]:
    """Byte ranges one after another, and how many bytes of each nobody had before."""
    source = random.Random(2)  # noqa: S311 - no secret
    for _ in range(100):
        ranges = [sorted(source.sample(range(60), 2)) for _ in range(12)] + [[7, 7]]
        had: set[int] = set()
        taken = []
        for start, end in ranges:
            taken.append(len(set(range(start, end)) - had))
            had |= set(range(start, end))
        yield {"ranges": ranges, "taken": taken}


def _fronts() -> Iterator[dict[str, Any]]:
    """Points, the stairs of those on the front, and which point is nearest to a place.

    Places are shares of a square of 1,000 operations by 1,000 bytes.
    """
    source = random.Random(3)  # noqa: S311 - no secret
    for _ in range(30):
        made = [point(source.randrange(1000), source.randrange(1000)) for _ in range(9)]
        points = sort_front([point(0, 999, kind="given"), *made])
        places = [(source.random(), source.random()) for _ in range(20)]
        yield {
            "points": [json.loads(encode({"its": its}))["its"] for its in points],
            "limit": 600 + REST,
            "room": 600,
            "stairs": _stairs([its for its in points if its.on_front]),
            "asked": [{"x": x, "y": y, "nearest": _nearest(points, x, y)} for x, y in places],
        }


def _stairs(front: list[FrontPoint]) -> list[list[float]]:
    corners: list[list[float]] = []
    for before, its in zip([None, *front], front, strict=False):
        if before is not None:
            corners.append([its.flops / 1000, before.temporaries])
        corners.append([its.flops / 1000, its.temporaries])
    return corners


def _nearest(points: Sequence[FrontPoint], x: float, y: float) -> int:
    def distance(number: int) -> float:
        its = points[number]
        return (its.flops - 1000 * x) ** 2 + (its.temporaries - 1000 * y) ** 2

    return min(range(len(points)), key=distance)


def _dump(path: Path) -> dict[str, Any]:
    memory = build_memory(hlomem.load(path))
    page = json.loads(encode({"page": build_page(memory)}))["page"]
    spaces = [_space(memory, space) for space in memory.spaces]
    return {"name": "/".join(path.parts[-3:]), "page": page, "spaces": spaces}


def _space(memory: MemoryView, space: Space) -> dict[str, Any]:
    layers = build_skyline(memory, space.color)
    timeline = memory.timeline(space.color)
    assert timeline is not None
    steps = {0, memory.steps // 3, timeline.peak.step, memory.steps}
    return {
        "heights": [_heights(layers[: n + 1], memory.steps + 1) for n in range(len(layers))],
        "moments": [_moment(memory, space, step) for step in sorted(steps)],
    }


def _heights(layers: Iterable[Layer], length: int) -> list[int]:
    """The layers' sum at each step."""
    at = [0] * (length + 1)
    for layer in layers:
        for step, change in zip(layer.steps, layer.changes, strict=True):
            at[step] += change
    return list(accumulate(at[:length]))


def _moment(memory: MemoryView, space: Space, step: int) -> dict[str, Any]:
    """The page draws bytes: it leaves out buffers that have none."""
    alive = [owned for owned in memory.alive(space.color, step) if owned.size]
    by: tuple[Key, ...] = ("line", "op")
    return {
        "step": step,
        "size": sum(owned.size for owned in alive),
        "alive": [[owned.buffer.id, owned.size] for owned in alive],
        "holders": list(_holders(memory, space, step)),
    } | {
        key: [[row.key, row.size, row.count, row.largest] for row in group(alive, key)]
        for key in by
    }


def _holders(memory: MemoryView, space: Space, step: int) -> Iterator[tuple[int, int | None]]:
    """Bytes of the map, where allocations lie one above the other, and who holds each."""
    base = 0
    for allocation in memory.temporary_allocations(space.color):
        here = [each for each in memory.buffers_in(allocation.index) if each.is_live_at(step)]
        edges = chain.from_iterable((each.offset, each.offset + each.size) for each in here)
        for byte in {0, *edges}:
            if byte < allocation.size:
                found = [each for each in here if each.offset <= byte < each.offset + each.size]
                yield base + byte, min(found, key=ownership_key).id if found else None
        base += allocation.size


def _run(node: str, cases: Path, scripts: Path) -> None:
    environment = {**os.environ, "HLOMEM_CASES": str(cases), "HLOMEM_SCRIPTS": scripts.as_uri()}
    test = Path(__file__).with_name("model.test.js")
    done = subprocess.run(
        [node, "--test", test], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "# pass 0" not in done.stdout


def test_the_scripts_agree_with_python(node: str, cases: Path, tmp_path: Path) -> None:
    scripts = tmp_path / "scripts.mjs"
    names = ("formats", "front_layout", "layout", "model")
    lines = [f'export * as {name} from "{(TEMPLATES / name).as_uri()}.js";' for name in names]
    scripts.write_text("\n".join(lines))
    _run(node, cases, scripts)


def test_the_bundle_agrees_with_python(node: str, cases: Path, tmp_path: Path) -> None:
    """The same answers from what goes into the page, so bundling changes no meaning."""
    scripts = tmp_path / "bundle.mjs"
    made = "\n".join(["const modules = {};", bundle("layout"), bundle("formats")])
    made += f"\n{bundle('front_layout')}"
    exported = "formats, front_layout, layout, model"
    scripts.write_text(f"{made}\nexport const {{ {exported} }} = modules;\n")
    _run(node, cases, scripts)
