"""Records made of plain numbers: a test that writes literals need not name the kind of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.check import findings
from hlomem.dump import records
from hlomem.report.data import buffers
from hlomem.view import control_flow, sweep

if TYPE_CHECKING:
    from collections.abc import Callable

Allocation: Callable[..., records.Allocation] = records.Allocation
AssignedValue: Callable[..., records.AssignedValue] = records.AssignedValue
Branch: Callable[..., control_flow.Branch] = control_flow.Branch
Buffer: Callable[..., buffers.Buffer] = buffers.Buffer
LiveRange: Callable[..., records.LiveRange] = records.LiveRange
MemorySpace: Callable[..., records.MemorySpace] = records.MemorySpace
Parameter: Callable[..., records.Parameter] = records.Parameter
Peak: Callable[..., records.Peak] = records.Peak
ReportedAllocation: Callable[..., records.ReportedAllocation] = records.ReportedAllocation
Residency: Callable[..., sweep.Residency[Any]] = sweep.Residency
UsageRow: Callable[..., records.UsageRow] = records.UsageRow
UsedValue: Callable[..., records.UsedValue] = records.UsedValue
Value: Callable[..., records.Value] = records.Value
ValueEvidence: Callable[..., findings.ValueEvidence] = findings.ValueEvidence
