"""Computations in an order in which callees come before their callers.

In: the spans of a module whose text has them otherwise. Out: the spans, sorted. XLA's printer
writes what a loop calls before what that calls, so that a condition of two loops, one in the body
of the other, may come last (`HloComputation::MakeEmbeddedComputationsList`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.text.body import RowProblem, called_names
from hlomem.hlo.text.scanner import calling_rows

if TYPE_CHECKING:
    from hlomem.hlo.text.scanner import ComputationText, ModuleText


def sorted_spans(text: str, spans: ModuleText) -> ModuleText | None:
    """The spans with callees first; None where they call each other, or it cannot be told."""
    by_name = {span.name: span for span in spans.computations}
    order: dict[str, ComputationText] = {}
    for first in spans.computations:
        pending, entered = [first.name], set[str]()
        while pending:
            name = pending[-1]
            span = by_name.get(name)
            if span is None or name in order:
                pending.pop()
                continue
            callees = _callees(text, span)
            missing = [callee for callee in callees or () if callee not in order]
            if callees is None or (missing and name in entered):
                return None
            entered.add(name)
            pending += [callee for callee in missing if callee in by_name]
            if pending[-1] == name:
                order[name] = span
    return spans._replace(computations=list(order.values()))


def _callees(text: str, span: ComputationText) -> list[str] | None:
    rows = calling_rows(text, *span.body)
    try:
        return None if rows is None else [name for row in rows for name in called_names(*row)]
    except RowProblem:
        return None
