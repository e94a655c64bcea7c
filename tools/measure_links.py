"""Links programs by libtpu with the smaller plan, and prints the table of docs/link.md.

    python -m tools.measure_links [--target tpu-v5e:2x2] [--log FILE] FACTORY[@NAME=VALUE,…] …
    python -m tools.measure_links --grow batch [--sizes 12] FACTORY[@…] …

Needs JAX and libtpu. Each program is linked in a process of its own. `--grow` looks for a
value of a setting above which libtpu's own plan does not fit, tries `--sizes` values from 0.75 to
1.1 of it (libtpu rematerializes more where it has to, so that some smaller ones are refused, too),
and counts those refused that our packing makes fit, by libtpu's own check; the first of each
program is linked.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import hlomem.jax
from hlomem.base.errors import HlomemError
from hlomem.cli.factory import parse_settings
from hlomem.jax.compile.factories import find_factory, make_program
from hlomem.jax.linking.jax_side import Calls, replaced
from hlomem.jax.linking.program import Link
from hlomem.jax.target_kinds import TpuTarget, parse_target
from hlomem.libtpu.partial_program import PhaseError
from hlomem.libtpu.phases import Phases
from hlomem.libtpu.pjrt import PhaseCompiler
from hlomem.libtpu.plans import hbm_bytes
from hlomem.libtpu.versions import find_library

GIB = 2**30
_MAX_DOUBLINGS = 14


class Stop(Exception):  # noqa: N818 - not an error
    """Ends a compile once JAX has handed everything over."""


class Size(NamedTuple):
    """A program at a size that libtpu refuses."""

    value: int
    libtpu: int
    packed: int
    is_accepted: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("factories", nargs="+")
    parser.add_argument("--target", default="tpu-v5e:2x2")
    parser.add_argument("--grow", metavar="SETTING")
    parser.add_argument("--sizes", type=int, default=12)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--log", type=Path, help="append a line of JSON for each program")
    options = parser.parse_args()
    rows = [_row(factory, options) for factory in options.factories]
    if not options.grow:
        _print_mean([row for row in rows if row.get("linked")])
        return
    tried = [size for row in rows for size in row["sizes"]]
    rescued = sum(size["is_accepted"] for size in tried)
    programs = sum(any(size["is_accepted"] for size in row["sizes"]) for row in rows)
    print(f"{rescued} of {len(tried)} sizes past the edge rescued, in {programs} of {len(rows)}")


def _row(factory: str, options: argparse.Namespace) -> dict[str, Any]:
    spec, _, words = factory.partition("@")
    settings = parse_settings([word for word in words.split(",") if word])
    grow = _grow if options.grow else _link
    row = {"factory": factory, **grow(spec, settings, options)}
    if options.log:
        with options.log.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
    return row


def _link(spec: str, settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    words = " ".join(map(str, settings.values())) or spec
    try:
        report = hlomem.jax.link(spec, target=options.target, settings=settings, timeout=900)
    except HlomemError as error:
        print(f"| {words} | {str(error).partition(chr(10))[0]} |", flush=True)
        return {"problem": str(error)}
    linked = report.linked
    end = "refused" if linked.refusal else "rescued" if linked.is_rescued else "linked"
    sizes = f"{linked.libtpu_temporaries:,} | {linked.temporaries:,}"
    ratio = linked.temporaries / max(linked.libtpu_temporaries, 1)
    print(f"| {words} | {sizes} | {ratio:.3f} | {end} |", flush=True)
    return {"linked": msgspec.to_builtins(linked)}


def _print_mean(rows: list[dict[str, Any]]) -> None:
    found = [row["linked"] for row in rows]
    ratios = [row["temporaries"] / max(row["libtpu_temporaries"], 1) for row in found]
    mean = exp(sum(map(log, ratios)) / max(len(ratios), 1))
    smaller = sum(ratio < 1 for ratio in ratios)
    print(f"{len(ratios)} programs, geometric mean {mean:.4f}, {smaller} smaller")


def _grow(spec: str, settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    with ProcessPoolExecutor(1) as pool:  # libtpu may end the process
        try:
            grown = pool.submit(_sizes_past_edge, spec, settings, options)
            sizes = grown.result()
        except (HlomemError, RuntimeError) as error:
            print(f"| {settings or spec} | {str(error).partition(chr(10))[0]} |", flush=True)
            return {"sizes": []}
    for size in sizes:
        end = "accepted" if size.is_accepted else "refused"
        gib = f"{size.libtpu / GIB:.3f} | {size.packed / GIB:.3f}"
        print(f"| {settings or spec} | {size.value} | {gib} | {end} |", flush=True)
    row: dict[str, Any] = {"sizes": [size._asdict() for size in sizes]}
    first = next((size for size in sizes if size.is_accepted), None)
    if first is not None:
        row |= _link(spec, {**settings, options.grow: first.value}, options)
    return row


def _sizes_past_edge(
    spec: str, settings: dict[str, Any], options: argparse.Namespace
) -> list[Size]:
    grown = _Grown(spec, settings, options)
    step: int = options.step
    fits, too_large = 0, step
    for _ in range(_MAX_DOUBLINGS):
        if grown.at(too_large) is not None:
            break
        fits, too_large = too_large, 2 * too_large
    else:
        return []
    while too_large - fits > step:
        middle = (fits + too_large) // (2 * step) * step
        fits, too_large = (middle, too_large) if grown.at(middle) is None else (fits, middle)
    spread = range(options.sizes)
    around = {int(too_large * (0.75 + 0.35 * at / max(options.sizes - 1, 1))) for at in spread}
    values = sorted({too_large, *(max(value // step * step, step) for value in around)})
    return [size for value in values if (size := grown.at(value)) is not None]


class _Grown:
    """A program at one size after another, by phase 1 alone."""

    def __init__(self, spec: str, settings: dict[str, Any], options: argparse.Namespace) -> None:
        target = parse_target(options.target)
        assert isinstance(target, TpuTarget)
        self._target, self._over, self._settings = target, options.grow, settings
        self._factory = find_factory(spec)
        assert target.devices
        compiler = PhaseCompiler(find_library().path, target.topology_name, is_loaded=True)
        self._phases = Phases(compiler)
        self._known: dict[int, Size | None] = {}

    def at(self, value: int) -> Size | None:
        """The program at a size; None where libtpu's own plan fits."""
        if value not in self._known:
            self._known[value] = self._try(value)
        return self._known[value]

    def _try(self, value: int) -> Size | None:
        settings = {**self._settings, self._over: value}
        calls = _handed_over(make_program(self._factory, settings, self._target).lowered)
        calls.refusal = "assumed"
        link = Link(self._phases, calls, self._target)
        if self._accepts(link.compiled, calls.options):
            return None
        packed = link.packed()
        is_accepted = packed is not None and self._accepts(packed, calls.options)
        ours = packed or link.compiled
        return Size(value, hbm_bytes(link.compiled.plan), hbm_bytes(ours.plan), is_accepted)

    def _accepts(self, compiled: Any, options: bytes) -> bool:
        try:
            self._phases.lower(compiled, options)
        except PhaseError as error:
            if "emory" not in str(error):
                raise
            return False
        return True


def _handed_over(lowered: Any) -> Calls:
    calls = Calls()

    def take(_: Any, backend: Any, module: Any, *rest: Any) -> Any:
        calls.note(backend, module, *rest)
        raise Stop

    with replaced(take):
        try:
            lowered.compile()
        except Stop:
            return calls
    raise RuntimeError("JAX did not call its compiler")


if __name__ == "__main__":
    main()
