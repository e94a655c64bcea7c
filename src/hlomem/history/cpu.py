"""The rules for the CPU compiler."""

from __future__ import annotations

from hlomem.history.computations.cpu_passes import CPU_PASSES
from hlomem.history.instructions.cpu import CPU_STEPS
from hlomem.history.tables import Tables
from hlomem.history.users.cpu import CPU_USERS

TABLES = Tables(stages=CPU_PASSES, steps=CPU_STEPS, users=CPU_USERS)
