"""Where the project's own files lie, for tests in any folder."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
GOLDENS = ROOT / "tests" / "goldens"
PACKAGE = ROOT / "src" / "hlomem"
