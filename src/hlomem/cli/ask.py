"""`hlomem ask`: queries a store in SQL, or with a predefined question."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from hlomem.base.errors import CommandError
from hlomem.cli.arguments import with_options
from hlomem.cli.options import REPORT
from hlomem.cli.screen import write, write_report
from hlomem.fleet.answers import draw_answer, draw_table
from hlomem.fleet.asking import LockedTables
from hlomem.fleet.questions import LIMIT, QUESTIONS, answer
from hlomem.fleet.store import forget_copies
from hlomem.report.screens.text import Line, plural, width

_MAX_ROWS = 100


@click.command("ask")
@click.argument("store", metavar="STORE")
@click.argument("question", metavar="QUESTION|SQL")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--run", metavar="RUN", help="Which run; by default the last.")
@click.option("--since", metavar="RUN", help="For grown: the run to compare with.")
@click.option("--capacity", metavar="SIZE|CHIP", help="For over: 16GiB, v5e, h100, …")
@click.option(
    "--top", "limit", metavar="N", type=click.IntRange(1), default=LIMIT, show_default=True,
    help="Rows of a predefined question.",
)  # fmt: skip
@with_options(REPORT)
def command(
    store: str,
    question: str,
    names: tuple[str, ...],
    run: str | None,
    since: str | None,
    capacity: str | None,
    limit: int,
    **shown: Any,
) -> int:
    """Query a store of `scan` about all its programs at once.

    SQL is DuckDB's, over the tables listed in docs/fleet.md; it can read only the store.
    Predefined questions: `top` (the largest), `over --capacity v5e`, `grown --since RUN` (with the
    causes of diff), `padding`, `donations`, `lines` (of source), `together NAME...` (resident at
    once; names may be patterns, `decode*`).
    """
    click.get_current_context().call_on_close(forget_copies)
    if question in QUESTIONS:
        if names and question != "together":
            raise CommandError(f"`{question}` takes no names; `together` does")
        found = answer(store, question, names, run=run, since=since, capacity=capacity, limit=limit)
        return write("answer", found, draw_answer, **shown)
    if names:
        raise CommandError("give one query: put SQL in quotes")
    columns, rows = _ask(store, question)
    content = {"kind": "answer", "question": question, "columns": columns, "rows": rows}
    # What JSON has no word for, of all that SQL gives, is text.
    return write_report(
        lambda: msgspec.to_builtins(content, enc_hook=str), lambda: _draw(columns, rows), **shown
    )


def _ask(store: str, sql: str) -> tuple[list[str], list[dict[str, Any]]]:
    tables = LockedTables(store)
    columns = list(tables.query(sql).columns)
    return columns, tables.rows(sql)


def _draw(columns: list[str], rows: list[dict[str, Any]]) -> list[Line]:
    lines = draw_table(columns, rows[:_MAX_ROWS], width())
    if len(rows) > _MAX_ROWS:
        more = f"{plural(len(rows) - _MAX_ROWS, 'more row')}: --json has all, LIMIT fewer"
        lines.append([(more, "dim")])
    return lines
