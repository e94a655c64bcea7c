"""Plans and prints by two revisions, compared: an empty difference proves that a move is one.

    python -m tools.replay BASE [--corpus ../shared]

Every golden, and every entry of the corpus where there is one, is read, printed back, planned,
planned again from its dump alone, and verified, once by the package at revision BASE and once by
the one in this working tree. What either wrote is compared by digest; what differs is shown with
its first differing lines, and all of it is listed in `.replay/differences.txt`. The digests of BASE
are kept in `.replay`, so that a second run takes half the time. Exits 1 where anything differs.

A plan is compared twice: with the lists of positions and uses sorted (`plan`), and as it is
written (`order`), so that a change of the order of lines alone is seen to be that.

Only names that both revisions are sure to have are used: `hlomem.load`, `plan`, `replan`, `verify`
and `hlomem.hlo`. Words are not compared: an error counts by its class, a finding by its rule.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.parity.dumps import with_sorted_lists
from tools.corpus import BESIDE, WORKERS, entries_in, plan_arguments, read_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".replay"
MAX_SHOWN = 10
_LINES_SHOWN = 12
_DUMP = "buffer-assignment.txt"


def entries(corpus: Path) -> list[Path]:
    """Every folder with a module and XLA's dump of it: goldens first, then the corpus."""
    goldens = ROOT / "tests" / "goldens" / "xla"
    own = [path.parent for path in sorted(goldens.rglob("origin.json"))]
    return own + (entries_in(corpus) if corpus.is_dir() else [])


def products(entry: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """The things a revision makes of an entry, by name, each made when called."""
    hlomem: Any = importlib.import_module("hlomem")
    hlo: Any = importlib.import_module("hlomem.hlo")
    program = next(path for path in (entry / "module.hlo", entry / "module.txt") if path.exists())
    text = program.read_text(encoding="utf-8")
    yield "print", lambda: hlo.format_module(hlo.parse(text))

    @cache
    def dump() -> Any:
        return hlomem.load(entry / _DUMP)

    @cache
    def plan() -> str:
        planned = hlomem.plan(text, **plan_arguments(read_facts(entry), dump()))
        return "".join(planned.text(file) for file in planned.files)

    yield "read", lambda: str(dump())
    yield "plan", lambda: with_sorted_lists(plan())
    yield "order", plan
    yield "verify", lambda: _rules(hlomem.verify(dump(), module=hlo.parse(text)))
    yield "replan", lambda: str(hlomem.replan(dump()))


def _rules(verdict: Any) -> str:
    return "\n".join(sorted(finding.rule for finding in verdict.findings))


def replay_entry(entry: Path) -> dict[str, str]:
    """What this process's package makes of an entry: the digest of each product."""
    return {name: _digest(make) for name, make in products(entry)}


def _digest(make: Callable[[], str]) -> str:
    return hashlib.sha256(_made(make).encode("utf-8", "surrogatepass")).hexdigest()


def _made(make: Callable[[], str]) -> str:
    errors: Any = importlib.import_module("hlomem")
    try:
        return make()
    except errors.HlomemError as error:
        return f"{type(error).__name__}\n"


def replay_all(paths: Sequence[Path]) -> dict[str, dict[str, str]]:
    """The digests of every entry, made by two processes."""
    with get_context("spawn").Pool(WORKERS) as pool:
        made = pool.map(replay_entry, paths, chunksize=4)
    return {name_of(path): digests for path, digests in zip(paths, made, strict=True)}


def name_of(entry: Path) -> str:
    """Group, backend and program of an entry: the same wherever project and corpus lie."""
    return "/".join(entry.parts[-3:])


class Revision:
    """The package at a revision, run in processes of its own."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def digests(self, corpus: Path) -> dict[str, dict[str, str]]:
        """Of every entry."""
        made: dict[str, dict[str, str]] = json.loads(self._run("--worker", f"--corpus={corpus}"))
        return made

    def text(self, entry: Path, product: str) -> str:
        """One product of one entry."""
        return self._run("--product", product, str(entry))

    def _run(self, *arguments: str) -> str:
        environment = os.environ | {"PYTHONPATH": f"{self._source}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "tools.replay", *arguments]
        done = subprocess.run(
            command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        return done.stdout.decode("utf-8", "surrogatepass")


def compare(base: str, corpus: Path) -> list[tuple[str, str]]:
    """Entries and products in which the working tree differs from a revision, shown as found."""
    commit = _git("rev-parse", "--verify", f"{base}^{{commit}}")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            return _compare(commit, Revision(tree / "src"), Revision(ROOT / "src"), corpus)
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _compare(commit: str, base: Revision, head: Revision, corpus: Path) -> list[tuple[str, str]]:
    wanted, found = _cached(commit, base, corpus), head.digests(corpus)
    if not wanted.keys() & found.keys():
        raise SystemExit("nothing to compare: the revisions have no entry in common")
    path_of = {name_of(path): path for path in entries(corpus)}
    differing = [
        (entry, product)
        for entry, digests in found.items()
        for product, digest in digests.items()
        if entry in wanted and wanted[entry].get(product) != digest
    ]
    for entry, product in differing[:MAX_SHOWN]:
        path = path_of[entry]
        _show(entry, product, base.text(path, product), head.text(path, product))
    listed = "".join(f"{product} {entry}\n" for entry, product in differing)
    (CACHE / "differences.txt").write_text(listed, encoding="utf-8")
    added = len(found.keys() - wanted.keys())
    counts = Counter(product for _, product in differing)
    said = ", ".join(f"{count} of {product}" for product, count in counts.items()) or "none"
    sys.stdout.write(f"{len(found)} entries, {added} of them new; differences: {said}\n")
    return differing


def _cached(commit: str, base: Revision, corpus: Path) -> dict[str, dict[str, str]]:
    tool = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    path = CACHE / f"{commit}-{tool}.json"
    if path.exists():
        kept: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
        return kept
    made = base.digests(corpus)
    CACHE.mkdir(exist_ok=True)
    path.write_text(json.dumps(made), encoding="utf-8")
    return made


def _show(entry: str, product: str, wanted: str, found: str) -> None:
    sys.stdout.write(f"== {entry}: {product}\n")
    lines = difflib.unified_diff(
        wanted.splitlines(), found.splitlines(), "base", "head", lineterm="", n=1
    )
    for _, line in zip(range(_LINES_SHOWN), lines, strict=False):
        sys.stdout.write(f"   {line[:160]}\n")


def _git(*arguments: str) -> str:
    git = shutil.which("git") or "git"
    done = subprocess.run([git, *arguments], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares and prints; or, for `compare`, makes the products of one revision."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subject", nargs="?", help="the revision to compare with")
    parser.add_argument("--corpus", type=Path, default=BESIDE, help="default: %(default)s")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--product", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        sys.stdout.write(json.dumps(replay_all(entries(options.corpus))))
        return 0
    if options.subject is None:
        parser.error("give a revision to compare with")
    if options.product:
        made = dict(products(Path(options.subject)))[options.product]
        sys.stdout.buffer.write(_made(made).encode("utf-8", "surrogatepass"))
        return 0
    return int(bool(compare(options.subject, options.corpus)))


if __name__ == "__main__":
    sys.exit(main())
