"""The support of each rule about the order of XLA's computations, measured.

    python -m tools.support [--corpus ../shared] [--json FILE]

Every golden and every module of the corpus is planned as it is, and again with each rule of
`hlomem.history` switched off; goldens also with each yes-or-no question of its code answered one
way, with each fitted number changed, and with lists in the order of the text. A rule is supported
by the modules whose files change. Writes the tables of docs/history.md; exits 1 where a rule has no
golden.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections import Counter
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

import hlomem
import hlomem.history
from hlomem.analysis.list_order import ListOrder, text_order
from hlomem.base.errors import HlomemError
from hlomem.history.evidence import Fact, Trace
from hlomem.history.order import infer_order, order_by, tables_of
from tests.parity.dumps import read_golden, sort_written
from tools.corpus import (
    check_all,
    entries_in,
    parse_arguments,
    plan_arguments,
    read_facts,
    write_counts,
)
from tools.tables import head, put, row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.api.plan import Plan
    from hlomem.history.rules import Rule, Version
    from hlomem.machines.options import Options
    from hlomem.pipeline import OrderLists

ROOT = Path(__file__).parent.parent
GOLDENS = ROOT / "tests" / "goldens" / "xla"
PAGE = ROOT / "docs" / "history.md"
PLATFORMS = ("cpu", "gpu", "tpu")
MAX_BYTES = 1_500_000
"""Larger modules take minutes each, and repeat their layers."""
MAX_NAMED = 3
PARTS = ("assignment", "live ranges", "values")
DELTAS = (0, 1, 2, 4, 6, 7, 8, 12, 32, 1024)
"""Other limits of the search for an order to try."""


def plan_entry(entry: Path) -> Plan:
    """The plan of an entry by all rules."""
    dump = hlomem.load(entry / "buffer-assignment.txt")
    text = (entry / "module.hlo").read_text(encoding="utf-8")
    return hlomem.plan(text, **plan_arguments(read_facts(entry), dump))


def replan(plan: Plan, order_lists: OrderLists) -> Plan:
    """The same plan with lists in another order."""
    return replace(plan, stages=replace(plan.stages, order_lists=order_lists))


def texts_of(plan: Plan) -> list[str]:
    """The files of a plan."""
    return [plan.text(file) for file in plan.files]


def changes_without(entry: Path, rule: str) -> bool:
    """True if what is written about an entry changes without a rule."""
    tables = tables_of(read_facts(entry)["backend"])
    return _Comparison(plan_entry(entry)).changes(partial(order_by, tables.without(rule)))


# Questions that are answered with yes or no, and numbers.


@cache
def questions() -> dict[str, Callable[..., bool]]:
    """The functions and facts of `hlomem.history` that answer yes or no, by name."""
    found: dict[str, Callable[..., bool]] = {}
    for info in pkgutil.walk_packages(hlomem.history.__path__, "hlomem.history."):
        home = info.name.removeprefix("hlomem.history.")
        for name, function in vars(importlib.import_module(info.name)).items():
            is_own = inspect.isfunction(function) and function.__module__ == info.name
            if is_own and function.__annotations__.get("return") == "bool":
                found[f"{home}.{name}"] = function
    for name, member in vars(Trace).items():
        function = member.read if isinstance(member, Fact) else getattr(member, "fget", None)
        if function is not None and function.__annotations__.get("return") == "bool":
            found[f"evidence.Trace.{name}"] = function
    return found


def _yes(*_: object, **__: object) -> bool:
    return True


def _no(*_: object, **__: object) -> bool:
    return False


@contextmanager
def answered(question: str, answer: bool) -> Iterator[None]:
    """A question answered one way, wherever it is asked."""
    function = questions()[question]
    kept = function.__code__
    function.__code__ = (_yes if answer else _no).__code__
    try:
        yield
    finally:
        function.__code__ = kept


# Measuring.


class _Comparison:
    """A plan, and whether another order of lists changes what is written about it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._texts = texts_of(plan)

    def changes(self, order_lists: OrderLists) -> bool:
        stages = self._plan.stages
        try:
            order = order_lists(stages.call_graph, stages.options)
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError, HlomemError):
            return True  # a wrong answer may lead anywhere
        if _same(order, stages.order):
            return False
        return texts_of(replan(self._plan, lambda *_: order)) != self._texts


def _same(one: ListOrder, other: ListOrder) -> bool:
    return list(one.computations) == list(other.computations) and list(one.instructions) == list(
        other.instructions
    )


def measure(entry: Path) -> list[str]:
    """The variants of the rules that change what is written about an entry."""
    platform = read_facts(entry)["backend"]
    plan = plan_entry(entry)
    tables = tables_of(platform)
    compare = _Comparison(plan)
    changed = [
        f"{platform}: {rule.name}"
        for rule in tables.rules()
        if compare.changes(partial(order_by, tables.without(rule.name)))
    ]
    if not _same_places(plan, replan(plan, _in_text_order)):
        changed.append(f"{platform}: places")
    if GOLDENS in entry.parents:
        changed += _measure_code(platform, compare)
        changed += [f"{platform}: equal: {cell}" for cell in _equal_to_xla(entry, plan)]
    return changed


def _measure_code(platform: str, compare: _Comparison) -> Iterator[str]:
    tables = tables_of(platform)
    for question in questions():
        for answer in (False, True):
            with answered(question, answer):
                if compare.changes(partial(order_by, tables)):
                    yield f"{question} = {answer}"
    for delta in DELTAS if tables.limits else ():
        other = replace(tables, limits=(replace(tables.limits[0], delta=delta),))
        if compare.changes(partial(order_by, other)):
            yield f"{platform}: delta = {delta}"


# Without any of the rules.


def _in_text_order(call_graph: CallGraph, _options: Options) -> ListOrder:
    return text_order(call_graph)


ORDERS: Mapping[str, OrderLists] = {
    "rules": infer_order,
    "text": _in_text_order,
}


def _equal_to_xla(entry: Path, plan: Plan) -> Iterator[str]:
    """The parts of a dump that are XLA's to the byte with which order."""
    wanted = read_golden(entry)
    for order, order_lists in ORDERS.items():
        other = replan(plan, order_lists)
        made = sort_written(dict(zip(other.files, texts_of(other), strict=True)))
        for stage in PARTS:
            if made.get(stage) == wanted[stage]:
                yield f"{stage}: {order}"


def _same_places(one: Plan, other: Plan) -> bool:
    return _places(one) == _places(other)


def _places(plan: Plan) -> Counter[tuple[object, ...]]:
    """The places of values, by where they are defined."""
    return Counter(
        (
            value.instruction,
            value.index,
            value.is_phi,
            allocation.size,
            allocation.color,
            allocation.is_thread_local,
            place.offset,
        )
        for allocation in plan.stages.assignment.allocations
        for value, place in allocation.slices.items()
    )


# The page.


class Support(NamedTuple):
    """The modules that change with a variant."""

    goldens: list[str]
    corpus: list[str]


def gather(entries: Sequence[Path]) -> dict[str, Support]:
    """The support of every variant."""
    found: dict[str, Support] = {}
    for entry, changed in zip(entries, check_all(_measure, entries), strict=True):
        name = "/".join(entry.parts[-3:])
        for variant in changed:
            support = found.setdefault(variant, Support([], []))
            (support.goldens if GOLDENS in entry.parents else support.corpus).append(name)
    return found


def _measure(entry: Path) -> list[str]:
    try:
        return measure(entry)
    except HlomemError as error:
        sys.stderr.write(f"{entry.parent.name}/{entry.name}: {str(error).splitlines()[0]}\n")
        return []


def rule_table(platform: str, found: Mapping[str, Support]) -> str:
    """The rules of a platform, in the order of its tables."""
    lines = head(["rule", "evidence", "source", "releases", "goldens", "corpus"])
    for rule in tables_of(platform).rules():
        support = found.get(f"{platform}: {rule.name}", Support([], []))
        named = ", ".join(_short(name) for name in _chosen(rule, support.goldens))
        goldens = f"{len(support.goldens)}: {named}"
        about = (rule.name, rule.basis.evidence.value, rule.basis.source, _releases(rule))
        lines.append(row([*about, goldens, str(len(support.corpus))]))
    return "\n".join(lines)


def _chosen(rule: Rule, goldens: list[str]) -> list[str]:
    """The one the rule names, and others with other programs."""
    programs = {name.rpartition("/")[2]: name for name in (*reversed(goldens), rule.basis.golden)}
    chosen = dict.fromkeys([rule.basis.golden, *programs.values()])
    return [name for name in chosen if name in goldens][:MAX_NAMED]


def _short(name: str) -> str:
    release, machine, program = name.split("/")
    return f"`{program}` ({machine}, {release.partition('-')[2]})"


def _releases(rule: Rule) -> str:
    """The releases, or else the chips, that have a rule."""
    since = f"since {_dotted(rule.since)}" if rule.since else ""
    return since or (f"until {_dotted(rule.until)}" if rule.until else rule.chips or "all")


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


def question_table(found: Mapping[str, Support]) -> str:
    """The questions that no golden needs one answer of."""
    lines = head(["question", "no golden changes where it is always"])
    for question in questions():
        idle = [
            "yes" if answer else "no"
            for answer in (False, True)
            if not found.get(f"{question} = {answer}")
        ]
        if idle:
            lines.append(row([f"`{question}`", ", ".join(idle)]))
    return "\n".join(lines)


def constant_table(found: Mapping[str, Support]) -> str:
    """Fitted numbers, and which others do as well."""
    lines = head(["number", "is", "goldens change with"])
    tried: list[tuple[str, int, Sequence[int], str]] = [
        (f"`{platform}`: {limit.name}", limit.delta, DELTAS, f"{platform}: delta")
        for platform in PLATFORMS
        for limit in tables_of(platform).limits
    ]
    for shown, value, others, variant in tried:
        cells = [
            f"{other} ({len(found[f'{variant} = {other}'].goldens)})"
            for other in others
            if f"{variant} = {other}" in found
        ]
        unchanged = [str(other) for other in others if f"{variant} = {other}" not in found]
        said = ", ".join(cells) or "none"
        said += f"; not with {', '.join(unchanged)}" if unchanged else ""
        lines.append(row([shown, str(value), said]))
    return "\n".join(lines)


def order_table(found: Mapping[str, Support], totals: Mapping[str, Counter[str]]) -> str:
    """The goldens that equal XLA's with each order, and those whose values lie alike."""
    heads = [f"{platform.upper()} ({totals['goldens'][platform]})" for platform in PLATFORMS]
    lines = head(["goldens", *heads])
    for name in PARTS:
        cells = []
        for platform in PLATFORMS:
            counts = [
                len(found.get(f"{platform}: equal: {name}: {order}", Support([], [])).goldens)
                for order in ORDERS
            ]
            cells.append(" / ".join(map(str, counts)))
        lines.append(row([f"{name} XLA's to the byte: {' / '.join(ORDERS)}", *cells]))
    for kind in ("goldens", "corpus"):
        moved = [
            len(getattr(found.get(f"{platform}: places", Support([], [])), kind))
            for platform in PLATFORMS
        ]
        cells = [
            f"{totals[kind][platform] - count} of {totals[kind][platform]}"
            for platform, count in zip(PLATFORMS, moved, strict=True)
        ]
        lines.append(
            row([f"{kind}: every value at the same offset, in the order of the text", *cells])
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, writes, and tells of rules that nothing supports."""
    options = parse_arguments(__doc__, arguments)
    goldens = [path.parent for path in sorted(GOLDENS.rglob("origin.json"))]
    corpus = [
        entry
        for entry in (entries_in(options.corpus) if options.corpus.is_dir() else [])
        if (entry / "module.hlo").stat().st_size <= MAX_BYTES
    ]
    totals = {
        "goldens": Counter(read_facts(entry)["backend"] for entry in goldens),
        "corpus": Counter(read_facts(entry)["backend"] for entry in corpus),
    }
    found = gather([*goldens, *corpus])
    tables = {platform: rule_table(platform, found) for platform in PLATFORMS}
    tables["questions"] = question_table(found)
    tables["constants"] = constant_table(found)
    tables["orders"] = order_table(found, totals)
    for name, table in tables.items():
        put(PAGE, name, table)
    write_counts(options.json, {name: support._asdict() for name, support in found.items()})
    idle = [
        f"{platform}: {rule.name}"
        for platform in PLATFORMS
        for rule in tables_of(platform).rules()
        if rule.basis.golden not in found.get(f"{platform}: {rule.name}", Support([], [])).goldens
    ]
    for name in idle:
        sys.stdout.write(f"the golden of this rule does not change without it: {name}\n")
    return int(bool(idle))


if __name__ == "__main__":
    sys.exit(main())
