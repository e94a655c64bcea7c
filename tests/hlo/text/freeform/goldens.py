"""XLA's own answers about texts as people write them (`tools/record_written.py`)."""

from __future__ import annotations

import json
from typing import Any

from tests.places import GOLDENS

ANSWERS: dict[str, Any] = json.loads((GOLDENS / "written.json").read_text(encoding="utf-8"))
PRINTED: dict[str, str] = ANSWERS["printed"]
"""What XLA prints for a text, by its name."""
REFUSALS: dict[str, str] = ANSWERS["refused"]
"""Line, column and words of what XLA refuses, by its name."""
INFERRED: dict[str, str | None] = ANSWERS["inferred"]
"""The shape XLA infers for an instruction, None where it refuses it."""
