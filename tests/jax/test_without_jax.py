"""`hlomem.jax` where JAX is not: importing costs nothing and says what is missing when used."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

import hlomem.jax
from hlomem.jax.pass_.log import Outcome, Report


def test_importing_does_not_import_jax() -> None:
    code = "import sys, hlomem.jax; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_missing_jax_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr("hlomem.jax.target_kinds.version", missing)
    with pytest.raises(hlomem.jax.UnsupportedJaxError, match="jax is not installed"):
        hlomem.jax.optimize()


def test_a_report_adds_up_and_reads_as_sentences() -> None:
    improved = Outcome("jit_f", "cpu", "improved", 1 << 21, 1 << 20, seconds=0.5)
    report = Report((improved, Outcome("jit_g", "cpu", "kept"), Outcome("h", "cpu", "skipped")))
    assert report.saved == 1 << 20
    assert str(report).splitlines() == [
        "jit_f (cpu): improved, temporaries 2.00 MiB → 1.00 MiB, -50.0%, 0.50 s",
        "jit_g (cpu): kept",
        "1 skipped",
    ]
    assert str(Report(())) == "no program was compiled while hlomem.jax was on"
