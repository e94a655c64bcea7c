"""Checks the report's scripts: Biome their style, TypeScript their types.

    python -m tools.check_scripts [--fix]

npm installs both into `node_modules`, in the versions of package.json. On a machine without npm, or
without a network, nothing is checked, and that is said; in CI a failed installation is a failure.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
_PACKAGES = ROOT / "package.json"
_INSTALLED = ROOT / "node_modules" / ".package-lock.json"
_PROGRAMS = ROOT / "node_modules" / ".bin"
_OLDEST_NODE = 20
_LONGEST = 300
"""Seconds an installation may take."""


def find_node() -> str | None:
    """A node that runs the tests of the scripts: the machine's, else the one in playwright."""
    playwright = importlib.util.find_spec("playwright")
    folders = playwright.submodule_search_locations if playwright else None
    bundled = [shutil.which("node", path=f"{folder}/driver") for folder in folders or ()]
    known = filter(None, (shutil.which("node"), *bundled))
    return next((path for path in known if _version(path) >= _OLDEST_NODE), None)


def _version(node: str) -> int:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)", done.stdout)
    return int(found[1]) if found else 0


def main() -> int:
    """Installs what is missing, and checks; says so where that cannot be."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--fix", action="store_true", help="format, and mend what can be")
    is_fixing = arguments.parse_args().fix
    if shutil.which("npm") is None:
        print("no npm here: the report's scripts are not checked")
        return 0
    if not _install():
        print("npm could not install what package.json names: the scripts are not checked")
        return 1 if os.environ.get("CI") else 0
    biome = [str(_PROGRAMS / "biome"), "check", "--error-on-warnings"]
    commands = [[*biome, "--write"]] if is_fixing else [biome, [str(_PROGRAMS / "tsc"), "-p", "."]]
    return max(subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands)


def _install() -> bool:
    """Whether the packages are there, in the versions wanted."""
    if _INSTALLED.exists() and _INSTALLED.stat().st_mtime >= _PACKAGES.stat().st_mtime:
        return True
    options = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    try:
        command = ["npm", "install", *options]
        done = subprocess.run(command, cwd=ROOT, check=False, timeout=_LONGEST)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
