"""Trials: damaged modules and damaged dumps of the goldens, made by seed and number alone."""

from __future__ import annotations

import gzip
import re
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from hlomem.proto.sniff import is_binary
from tests.fuzz import dump_mutants, hostile, hostile_protos, mutants, proto_mutants
from tests.fuzz.limits import Trial
from tests.places import GOLDENS

if TYPE_CHECKING:
    from collections.abc import Callable

XLA_GOLDENS = GOLDENS / "xla"
_LARGEST_SEED = 20_000
_DUMP_FILES = ("buffer-assignment.txt", "values.txt", "live-range.txt", "memory-usage-report.txt")

_REPORTS = ("copies", "donate", "explain", "holes", "padding", "peak", "summary")


@cache
def _seeds(name: str) -> list[Path]:
    """The goldens' files of some name that are small enough to be damaged by the thousand."""
    paths = sorted(XLA_GOLDENS.glob(f"*/*/*/{name}"))
    return [path for path in paths if path.stat().st_size < _LARGEST_SEED]


def _damaged(random: Random, text: str, kinds: list[Callable[[Random, str], str]]) -> bytes:
    kind = random.choice([*kinds, None])
    damaged = kind(random, text) if kind else mutants.several(random, text, kinds)
    data = damaged.encode("utf-8", "surrogatepass")
    if data and random.random() < 0.05:  # bytes that are not UTF-8
        place = random.randrange(len(data))
        data = data[:place] + bytes([random.randrange(128, 256)]) + data[place:]
    return data


def _files_beside(seed: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in seed.parent.iterdir()}


def _report(random: Random, files: dict[str, bytes], name: str) -> list[str]:
    """Some report on a dump, as text or JSON."""
    command = [random.choice(_REPORTS), name]
    if command[0] == "explain":
        names = re.findall(rb"value: <\d+ ([\w.\-]+)", files["buffer-assignment.txt"])
        command.append(random.choice(names or [b"x"]).decode())
    return [*command, *random.choice([[], ["--json"]])]


def plan_for(machine: str) -> list[str]:
    """The command that plans for `cpu` or `tpu-v5e`; damage takes away what tells the machine."""
    platform, _, chip = machine.partition("-")
    return ["plan", "--backend", platform, *(["--chip", chip] if chip else [])]


def damaged_module(random: Random) -> Trial:
    """A damaged module, beside the dump of the whole one."""
    seed = random.choice(_seeds("module.hlo"))
    files = _files_beside(seed)
    files["module.hlo"] = _damaged(random, seed.read_text(), mutants.KINDS)
    machine = seed.parent.parent.name
    commands = [[*command, "module.hlo"] for command in (["show"], ["fmt"], plan_for(machine))]
    commands.append(["verify", "buffer-assignment.txt"])
    return Trial(files, [*commands, _report(random, files, "buffer-assignment.txt")])


def damaged_dump(random: Random) -> Trial:
    """A dump with one damaged file, or one of another program, beside the module."""
    name = random.choice(_DUMP_FILES)
    seed = random.choice(_seeds(name))
    files = _files_beside(seed)
    if random.random() < 0.03:
        files[name] = random.choice(_seeds(name)).read_bytes()
    else:
        files[name] = _damaged(random, seed.read_text(), dump_mutants.KINDS)
    commands = [["show", name], ["show", "--json", name], ["fmt", name], ["verify", name]]
    commands.append(_report(random, files, name))
    if "cpu" in seed.parent.parent.name:
        commands.append([*plan_for("cpu"), "module.hlo", "--schedule", name, "--like", name])
    return Trial(files, commands)


_REPORTS_OF_PROTOS = ("summary", "peak", "holes", "padding", "copies", "donate", "advise")
_OTHERS_OF_PROTOS = (
    ["html", "x.pb", "--backend", "cpu", "-o", "x.html"],
    ["diff", "x.pb", "whole.pb"],
    ["diff", "whole.pb", "x.pb"],
    ["replan", "x.pb", "--check"],
    ["fmt", "x.pb"],
    ["explain", "x.pb", "x", "--backend", "cpu"],
)


_PACKED = 0.5
_TIMELINES: tuple[list[str], ...] = (
    [],
    ["--json"],
    ["--html", "x.html"],
    ["--arrays", "x.pb"],
    ["--at", "0.01"],
)
_OTHERS_OF_PROFILES = (
    ["export", "x.xplane.pb", "--to", "perfetto"],
    ["export", "x.xplane.pb", "--to", "pprof", "-o", "y.pb"],
    ["export", "x.xplane.pb", "--to", "perfetto", "--plan"],
    ["summary", "x.xplane.pb", "--backend", "gpu"],
    ["leaks", "x.pb", "whole.pb", "x.pb", "--json"],
)


@cache
def _proto_seeds(pattern: str = "**/*") -> list[Path]:
    """Everything recorded that is no text, or those of a pattern."""
    paths = [path for path in (GOLDENS / "protos").glob(pattern) if path.is_file()]
    return sorted(path for path in paths if is_binary(path.read_bytes()))


@cache
def _profile_seeds() -> list[bytes]:
    """Unpacked profiles of jobs, and of programs, that are small."""
    paths = sorted((GOLDENS / "jobs").rglob("*.xplane.pb.gz"))
    small = [gzip.decompress(path.read_bytes()) for path in paths]
    small = sorted(small, key=len)[: len(small) // 2]
    return small + [path.read_bytes() for path in _proto_seeds("**/*.xplane.pb")]


@cache
def _array_seeds() -> list[bytes]:
    """Unpacked device memory profiles."""
    return [gzip.decompress(path.read_bytes()) for path in sorted(GOLDENS.rglob("*.prof"))]


def _mutant(random: Random, data: bytes) -> bytes:
    for _ in range(random.choice([1, 1, 1, 3])):
        data = random.choice(proto_mutants.KINDS)(random, data) or b"\0"
    return data


def _damaged_binary(random: Random, pattern: str) -> Trial:
    data = _mutant(random, random.choice(_proto_seeds(pattern)).read_bytes())
    whole = random.choice(_proto_seeds()).read_bytes()
    commands = [["show", "x.pb"], ["show", "--json", "x.pb"], ["verify", "x.pb"]]
    commands.append([random.choice(_REPORTS_OF_PROTOS), "x.pb", "--backend", "cpu"])
    commands.append([*plan_for("cpu"), "x.pb", *random.choice([[], ["-o", "y.hlo.pb"]])])
    commands.append(random.choice(_OTHERS_OF_PROTOS))
    return Trial({"x.pb": data, "whole.pb": whole}, commands)


def damaged_proto(random: Random) -> Trial:
    """A damaged proto of a program."""
    return _damaged_binary(random, "**/*.hlo.pb")


def damaged_cache(random: Random) -> Trial:
    """A damaged entry of a compilation cache, or an executable."""
    return _damaged_binary(random, random.choice(["**/*-cache", "**/executable.bin"]))


def damaged_profile(random: Random) -> Trial:
    """A damaged profile of a run, and a damaged one of the arrays on a device."""
    profile = _mutant(random, random.choice(_profile_seeds()))
    arrays = _mutant(random, random.choice(_array_seeds()))
    if random.random() < _PACKED:
        profile, arrays = gzip.compress(profile), gzip.compress(arrays)
    whole = gzip.compress(random.choice(_array_seeds()))
    files = {"x.xplane.pb": profile, "x.pb": arrays, "whole.pb": whole}
    commands = [["timeline", "x.xplane.pb", *random.choice(_TIMELINES)], ["show", "x.xplane.pb"]]
    commands.append(["leaks", *random.sample(["x.pb", "whole.pb"], 2)])
    commands.append(random.choice(_OTHERS_OF_PROFILES))
    return Trial(files, commands)


def damaged_texts(random: Random) -> Trial:
    """A damaged module and a damaged file of a dump, for native kernels alone."""
    files = {}
    for name, kinds in (
        ("module.hlo", mutants.KINDS),
        (random.choice(_DUMP_FILES[:3]), dump_mutants.KINDS),
    ):
        files[name] = _damaged(random, random.choice(_seeds(name)).read_text(), kinds)
    return Trial(files, [["kernels", str(random.random())]])


TARGETS = {
    "hlo": damaged_module,
    "dump": damaged_dump,
    "proto": damaged_proto,
    "cache": damaged_cache,
    "profile": damaged_profile,
    "kernels": damaged_texts,
}


def make_trial(target: str, seed: int, number: int) -> Trial:
    """The trial of a number; the same every time."""
    return TARGETS[target](Random(f"{target}/{seed}/{number}"))  # noqa: S311


def hostile_trials(many: int) -> dict[str, Callable[[], Trial]]:
    """Every hostile text, by its name, made when it is asked for: some are large."""
    on_module = [[*command, "x.txt"] for command in (["show"], ["fmt"], plan_for("cpu"))]
    on_dump = [[command, "x.txt"] for command in ("show", "fmt", "verify")]
    texts = [(make, on_module) for make in hostile.MODULES]
    texts += [(make, on_dump) for make in hostile.DUMPS]
    trials: dict[str, Callable[[], Trial]] = {
        make.__name__: partial(_of_text, make, many, commands) for make, commands in texts
    }
    on_proto = [["show", "x.pb"], ["summary", "x.pb", "--backend", "cpu"], ["verify", "x.pb"]]
    on_proto.append([*plan_for("cpu"), "x.pb"])
    for make_bytes in hostile_protos.PROTOS:
        trials[make_bytes.__name__] = partial(_of_bytes, make_bytes, many, on_proto)
    return trials


def _of_text(make: Callable[[int], str], many: int, commands: list[list[str]]) -> Trial:
    return Trial({"x.txt": make(many).encode("utf-8", "surrogatepass")}, commands)


def _of_bytes(make: Callable[[int], bytes], many: int, commands: list[list[str]]) -> Trial:
    return Trial({"x.pb": make(many)}, commands)
