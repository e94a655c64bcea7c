"""Builds sdist and wheel and tries them as users will.

    python -m tools.check_dist

twine checks their description; the wheel is built from the sdist. It is installed into an empty
environment of every Python from 3.11 to 3.14 that is here; there the commands run from another
folder on files of this repository, and a small typed client passes mypy --strict and pyright. So
is a wheel with the native kernels, whose library every one of these Pythons must load.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
CLIENT = ROOT / "tests" / "typing" / "client.py"
MINORS = (11, 12, 13, 14)
MAX_BYTES = 12_000_000
"""The most that the wheel and all it needs may take when installed."""
_COMMANDS = (
    ["--version"],
    ["--help"],
    ["summary", str(ROOT / "examples/oom/before"), "--capacity", "v5e"],
    ["diff", str(ROOT / "examples/oom/before"), str(ROOT / "examples/oom/after")],
    ["html", str(ROOT / "examples/train_step"), "-o", "report.html"],
)
_HAS_KERNELS = "from hlomem.assign.best_fit import IS_NATIVE; assert IS_NATIVE is {}"


def main() -> int:
    """Builds, checks and tries; the first thing that fails ends it."""
    shutil.rmtree(DIST, ignore_errors=True)
    os.environ["HLOMEM_NATIVE"] = "0"
    _run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    files = sorted(str(path) for path in DIST.iterdir())
    _run(sys.executable, "-m", "twine", "check", "--strict", *files)
    wheel = next(DIST.glob("*.whl"))
    _try_everywhere(wheel, is_native=False)
    with tempfile.TemporaryDirectory() as folder:  # its name would be refused by an index
        os.environ["HLOMEM_NATIVE"] = "1"
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT))
        _try_everywhere(next(Path(folder).glob("*.whl")), is_native=True)
    return 0


def _try_everywhere(wheel: Path, *, is_native: bool) -> None:
    """Tries a wheel on every Python that is here."""
    tried = [_try(python, wheel, is_native=is_native) for python in _pythons()]
    print(f"{wheel.name}: {wheel.stat().st_size / 1000:.0f} kB, tried on {', '.join(tried)}")


def _pythons() -> list[str]:
    """One interpreter of each version that is here: on the path, or pyenv's."""
    found: dict[int, str] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for minor in MINORS:
        name = f"python3.{minor}"
        own = sorted(pyenv.glob(f"3.{minor}.*/bin/{name}"))
        for path in chain(filter(None, [shutil.which(name)]), map(str, own)):
            if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
                found.setdefault(minor, path)
    return list(found.values())


def _try(python: str, wheel: Path, *, is_native: bool) -> str:
    """Installs the wheel into an empty environment and uses it from another folder."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        _run(python, "-m", "venv", str(home / "env"))
        own = str(home / "env" / "bin" / "python")
        install = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        empty = _bytes_in(home / "env")
        _run(*install, str(wheel))
        size = _bytes_in(home / "env") - empty
        if size > MAX_BYTES:
            raise SystemExit(f"{python}: {size} bytes installed, more than {MAX_BYTES}")
        _run(own, "-c", _HAS_KERNELS.format(is_native))
        for command in _COMMANDS:
            _run(str(home / "env" / "bin" / "hlomem"), *command, cwd=home)
        if not (home / "report.html").exists():
            raise SystemExit(f"{python}: no report was written")
        shutil.copy(CLIENT, home)
        _run(*install, "mypy")
        _run(own, "-m", "mypy", "--strict", "client.py", cwd=home)
        _run(sys.executable, "-m", "pyright", "--pythonpath", own, "client.py", cwd=home)
        version = subprocess.run([own, "--version"], capture_output=True, text=True, check=True)
    return f"{version.stdout.strip()} ({size / 1e6:.1f} MB)"


def _bytes_in(environment: Path) -> int:
    """The bytes of the environment's packages, without what Python compiles."""
    packages = next(environment.glob("lib/python*/site-packages"))
    return sum(
        path.stat().st_size
        for path in packages.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )


def _run(*command: str, cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
