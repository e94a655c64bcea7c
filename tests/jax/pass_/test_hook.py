"""Modules are shown to watchers, and whatever goes wrong leaves the compile alone."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hlomem.jax.pass_ import hook

jax: Any = pytest.importorskip("jax", reason="jax is not installed")


def test_a_module_is_handed_to_every_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(hook, "_watchers", (seen.append, seen.append))
    hook._show("cpu", b"module")
    assert seen == [hook.SeenModule("cpu", b"module")] * 2


def test_a_watcher_that_fails_does_not_end_the_compile(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("now")

    monkeypatch.setattr(hook, "_watchers", (broken,))
    with caplog.at_level(logging.WARNING):
        hook._show("cpu", b"module")
    assert "a module of cpu was not seen: now" in caplog.text


def test_a_program_lowered_before_somebody_watches_is_seen() -> None:
    pytest.importorskip("jax.extend.xla", reason="this jax has no hook for passes")
    lowered = jax.jit(lambda x: x * 2 + 1).lower(jax.ShapeDtypeStruct((8,), "float32"))
    seen: list[hook.SeenModule] = []
    hook.add(seen.append)
    try:
        lowered.compile()
    finally:
        hook.remove(seen.append)
    assert [module.platform for module in seen] == ["cpu"]
