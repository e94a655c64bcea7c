"""Draws a `KernelReport`: a kernel by part, or a grid of block sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data.names import short_line
from hlomem.report.screens.fit_text import words_of
from hlomem.report.screens.text import Line, bar, percent, plural, shorten, space_label, wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.report.data.kernels import KernelReport, KernelRow, KernelUse, LargestBlocks

_BAR = 12
_NOT = "✗"


def draw_kernels(report: KernelReport, width: int) -> list[Line]:
    common = words_of(report.settings)
    title = f"{visible(report.subject)}{'  ' if common else ''}{common}"
    lines: list[Line] = [[(shorten(title, width), "bold")]]
    for target in report.targets:
        rows = [row for row in report.rows if row.target == target]
        lines += [[], *_draw_target(report, target, rows, width)]
    return [*lines, *_draw_notes(report, width)]


def _draw_target(
    report: KernelReport, target: str, rows: Sequence[KernelRow], width: int
) -> list[Line]:
    if not report.over:
        return [line for row in rows for line in _draw_row(row, width)]
    lines: list[Line] = [[(target, "bold"), (f"  {_limits(rows)}", "dim")]]
    lines += [*_draw_grid(report, target, width), *_problems(rows, width)]
    for best in report.largest:
        if best.target == target:
            lines += [[], *_draw_largest(report, best, rows, width)]
    return lines


def _limits(rows: Sequence[KernelRow]) -> str:
    found = sorted({use.limit for row in rows for use in row.kernels})
    sizes = " or ".join(map(format_bytes, found))
    spaces = sorted({space_label(use.space) for row in rows for use in row.kernels})
    return f"each kernel may use {sizes} of {' or '.join(spaces)}" if found else ""


# One setting


def _draw_row(row: KernelRow, width: int) -> list[Line]:
    lines: list[Line] = []
    if row.problem:
        lines += wrapped(f"{row.target}: {row.problem}", width, "", "red")
    for use in row.kernels:
        lines += [*draw_use(use, row, width), []]
    return lines[:-1] if lines and not lines[-1] else lines


def draw_use(use: KernelUse, row: KernelRow, width: int) -> list[Line]:
    """One kernel: what it uses, next to its limit, by part and by block."""
    where = f"  {short_line(visible(use.line))}" if use.line else ""
    grid = "×".join(str(size) if size else "?" for size in use.grid)
    calls = f", {use.calls} calls" if use.calls > 1 else ""
    lines: list[Line] = [
        [(visible(use.name), "bold"), (where, ""), (f"  grid {grid or 'none'}{calls}", "dim")],
        *wrapped(*_verdict(use, row, width)),
    ]
    whole = use.used or use.bound
    for part in use.parts:
        share = percent(part.size, whole)
        cells = bar(part.size, whole, _BAR)
        lines.append(
            [
                (f"  {format_bytes(part.size):>10}  {share:>6}  ", "cyan"),
                (cells, "green"),
                (f"  {part.name}", ""),
            ]
        )
    for block in use.blocks:
        if block.space == "vmem":
            copies = f" ×{block.copies}" if block.copies > 1 else ""
            copies = copies if block.copies else ", if it is not optimized away"
            head = f"  {format_bytes(block.total or block.size):>10}  "
            lines.append([(shorten(f"{head}{visible(block.label)}{copies}", width), "dim")])
    return lines


def _verdict(use: KernelUse, row: KernelRow, width: int) -> tuple[str, int, str, str]:
    of = f"of {format_bytes(use.limit)} {space_label(use.space)}"
    if use.is_own_limit:
        of += " (its vmem_limit_bytes)"
    if use.used is not None:
        fits = use.used <= use.limit
        verdict = "fits" if fits else f"{format_bytes(use.used - use.limit)} too much"
        words = f"{row.target}: uses {format_bytes(use.used)} {of}, {verdict}"
        return words, width, "", "green" if fits else "red"
    words = f"{row.target}: uses {format_bytes(use.bound)} or more {of}"
    if use.said:
        return f"{words}; {use.said}", width, "", "red"
    if use.bound > use.limit:
        return f"{words}: does not fit, so it was not compiled", width, "", "red"
    return f"{words}; not compiled", width, "", "yellow"


# A grid


def grid_of(report: KernelReport, target: str) -> tuple[list[str], dict[str, dict[str, KernelRow]]]:
    """The values of the last setting, and for each combination of the others a row by value."""
    *outer, last = report.over
    groups: dict[str, dict[str, KernelRow]] = {}
    for row in report.rows:
        if row.target == target:
            key = words_of({name: row.settings[name] for name in outer})
            groups.setdefault(key, {})[str(row.settings[last])] = row
    return [str(value) for value in report.over[last]], groups


def _draw_grid(report: KernelReport, target: str, width: int) -> list[Line]:
    """The settings as a matrix of the last setting against the others, each cell a verdict."""
    values, groups = grid_of(report, target)
    last = visible(list(report.over)[-1])
    columns = max(8, *map(len, values)) + 1
    margin = min(max(map(len, [last, *groups])), max(10, width - columns * len(values) - 2))
    head = "".join(f"{visible(value):>{columns}}" for value in values)
    lines: list[Line] = [[(f"  {shorten(last, margin):<{margin}}{head}", "dim")]]
    for key, cells in groups.items():
        line: Line = [(f"  {shorten(key, margin):<{margin}}", "")]
        for value in values:
            words, style = cell_of(cells.get(value))
            line.append((f"{words:>{columns}}", style))
        lines.append(line)
    legend = "% of the limit in use; ✗ does not fit; ≤ fits, as larger blocks do; ? not known"
    return [*lines, *wrapped(legend, width, "  ", "dim")]


def cell_of(row: KernelRow | None) -> tuple[str, str]:
    """`72%` of a kernel that fits, `✗ 115%` of one that does not; and a style."""
    if row is None or row.fits is None or (use := row.fullest) is None:
        return "?", "yellow"
    style = "green" if row.fits else "red"
    mark = "" if row.fits else f"{_NOT} "
    if use.used is not None:
        return f"{mark}{100 * use.used / use.limit:.0f}%", style
    if row.how == "lower bound":
        return f"{mark}≥{100 * use.bound / use.limit:.0f}%", style
    return mark.strip() or "≤", style


def _problems(rows: Sequence[KernelRow], width: int) -> list[Line]:
    lines: list[Line] = []
    for row in rows:
        if row.problem:
            words = f"? {words_of(row.settings)}: {visible(row.problem)}"
            lines += wrapped(words, width, "  ", "yellow")
    return lines


def _draw_largest(
    report: KernelReport, best: LargestBlocks, rows: Sequence[KernelRow], width: int
) -> list[Line]:
    count = f"{plural(best.compiles, 'setting')} compiled"
    if best.settings is None:
        words = "none of these fits" if best.is_proven else "none of these is known to fit"
        return wrapped(f"{words}; {count}", width, "", "red")
    row = next(row for row in rows if row.settings == best.settings)
    use = row.fullest
    size = ""
    if use is not None and use.used is not None:
        size = f", {format_bytes(use.used)} of {format_bytes(use.limit)}"
    proof = "" if best.is_proven else "; larger ones were not all tried"
    what = f"largest that fits: {words_of(best.settings)}"
    if report.asked:
        what = describe_change(report.asked, best.settings)
    return wrapped(f"{what}{size}{proof}; {count}", width, "", "bold")


def describe_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """`change block_k from 2048 to 1024`."""
    changed = [
        visible(f"{name} from {value} to {after[name]}")
        for name, value in before.items()
        if after[name] != value
    ]
    return f"change {' and '.join(changed)}" if changed else "fits as it is"


def _draw_notes(report: KernelReport, width: int) -> list[Line]:
    again = f", {report.cached} known from before" if report.cached else ""
    packages = ", ".join(f"{name} {found}" for name, found in report.versions.items())
    words = f"{plural(report.compiles, 'kernel')} compiled{again}; {report.cpu_seconds:.1f} s"
    notes = [f"{words} of CPU time; {packages}", *report.notes]
    return [[], *(line for note in notes for line in wrapped(note, width, "  ", "dim"))]


def table_of(report: KernelReport) -> list[list[str]]:
    """Titles, then one row of cells for each setting and target."""
    titles = ["target", "settings", "kernel", "lower bound", "used", "limit", "fits", "how"]
    table: list[list[str]] = [titles]
    for row in report.rows:
        use = row.fullest
        fits = "not known" if row.fits is None else "yes" if row.fits else "no"
        sizes = ["", "", "", ""]
        if use is not None:
            used = "-" if use.used is None else format_bytes(use.used)
            sizes = [visible(use.name), format_bytes(use.bound), used, format_bytes(use.limit)]
        how = row.problem or (f"{row.how}: {words_of(row.by)}" if row.by else row.how)
        table.append([row.target, words_of(row.settings), *sizes, fits, visible(how)])
    return table
