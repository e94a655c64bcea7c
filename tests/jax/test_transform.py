"""The pass in the hands of a compiler: whatever goes wrong leaves XLA's order, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hlomem.api import improve as improve_api
from hlomem.api.improve import Rules
from hlomem.jax import log
from hlomem.jax.registration import compiler_options
from hlomem.jax.transform import Limits, Transform
from hlomem.schedule.search import Improvement
from tests.schedule.programs import CPU

hlo: Any = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
TEXT = (CPU / "g_cholesky_solve" / "module.hlo").read_text()


@pytest.fixture(autouse=True)
def _new_report() -> Iterator[None]:
    log.forget()
    yield
    log.forget()


def _proto(text: str = TEXT) -> bytes:
    return bytes(hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())


def _transform() -> Transform:
    return Transform("cpu", compiler_options("cpu"), Rules("low"), Limits(0, 50_000))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.99])
def test_a_proto_that_is_cut_off_leaves_the_order_and_is_reported(share: float) -> None:
    proto = _proto()
    assert _transform()(proto[: int(share * len(proto))]) is None
    [outcome] = log.report().outcomes
    assert outcome.kind == "failed"
    assert outcome.reason


def test_bytes_that_are_no_proto_leave_the_order_and_are_reported() -> None:
    assert _transform()(b"\xff" * 64) is None
    assert [outcome.kind for outcome in log.report().outcomes] == ["failed"]


def test_a_module_without_a_schedule_is_said_to_have_none() -> None:
    assert _transform()(_proto(TEXT.replace("is_scheduled=true, ", "", 1))) is None
    [outcome] = log.report().outcomes
    assert (outcome.kind, outcome.reason) == ("failed", "the module has no schedule")


def test_an_order_that_breaks_a_dependency_never_reaches_xla(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def backwards(stages: Any, *_: Any, **__: Any) -> Improvement:
        entry = stages.module.entry
        orders = {entry: stages.schedule.sequence(entry)[::-1]}
        return Improvement(orders, 100, 50, 0, "backwards", ())

    monkeypatch.setattr(improve_api, "search", backwards)
    assert _transform()(_proto()) is None
    [outcome] = log.report().outcomes
    assert outcome.kind == "kept"
    assert "found and rejected" in outcome.reason


def test_the_same_module_gets_the_same_answer_from_memory() -> None:
    transform, proto = _transform(), _proto()
    assert transform(proto) == transform(proto)
    assert len(set(log.report().outcomes)) == 1
