"""A program compiled here needs XLA's total, by whichever way it is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hlomem.jax
from hlomem.base.sizes import format_bytes
from tests.cli.conftest import Run, run  # noqa: F401 - a fixture
from tests.jax import factories

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

FACTORY = f"{factories.__file__}:step"


def test_one_number_is_xlas_total(run: Run, tmp_path: Path) -> None:  # noqa: F811
    function, arguments = factories.step(jax.devices())
    analysis = function.lower(*arguments).compile().memory_analysis()
    total = getattr(analysis, "total_allocation_bytes", None)
    if total is None:
        pytest.skip("JAX says its total since 0.11")
    assert hlomem.jax.memory(function, *arguments).needs == total
    fitted = hlomem.jax.fit(FACTORY, target="cpu", capacity=total, start=8, cache=tmp_path / "c")
    assert (fitted.rows[0].largest, fitted.rows[0].smallest_refused) == (8, 9)
    assert {plan.value: plan.size for plan in fitted.rows[0].plans}[8] == total
    dump = tmp_path / "dump"
    compiled = run("compile", FACTORY, "--target", "cpu", "-o", dump, "--json")
    assert json.loads(compiled.out)["summary"]["space"]["size"] == total
    assert json.loads(run("summary", dump, "--json").out)["space"]["size"] == total
    assert f"Needs {format_bytes(total)}" in run("show", dump).out.decode()
    improved = json.loads(run("improve", dump, "--pareto", "--fit", f"{total}B", "--json").out)
    assert [one["total"] for one in improved["front"] if one["kind"] == "given"] == [total]
    assert run("scan", dump, "-o", tmp_path / "store").code == 0
    rows = json.loads(run("ask", tmp_path / "store", "SELECT needs FROM modules", "--json").out)
    assert rows["rows"] == [{"needs": total}]
