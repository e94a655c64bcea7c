"""What one process found out, another need not look for: answers beside JAX's cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hlomem.hlo.text.printer import format_module
from hlomem.jax.pass_ import answer_cache, log
from hlomem.jax.pass_.answer_cache import FOLDER, Answer, AnswerStore
from hlomem.jax.pass_.limits import Limits
from hlomem.jax.pass_.log import Outcome
from hlomem.jax.pass_.register import compiler_options
from hlomem.jax.pass_.transform import Transform
from hlomem.opt.goal import Rules
from hlomem.proto.edit import with_number
from hlomem.proto.module import read_module
from tests.opt.orders.programs import CPU

hlo: Any = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
jax: Any = pytest.importorskip("jax")
TEXT = (CPU / "g_cholesky_solve" / "module.hlo").read_text()


@pytest.fixture(autouse=True)
def _beside_a_cache(tmp_path: Path) -> Iterator[None]:
    log.forget()
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield
    jax.config.update("jax_compilation_cache_dir", None)
    log.forget()


def _proto(number: int) -> bytes:
    proto = bytes(hlo.hlo_module_from_text(TEXT).as_serialized_hlo_module_proto())
    return with_number(proto, number)[1]


def _ask(number: int, signature: str = "a pass") -> bytes | None:
    """What a pass answers in a process where the module has a number."""
    store = AnswerStore(signature)
    options = compiler_options("cpu")
    return Transform("cpu", options, Rules("low"), Limits(0, 50_000), store=store)(_proto(number))


def _last() -> Outcome:
    return log.report().outcomes[-1]


def test_another_process_gets_the_same_order_for_its_own_module(tmp_path: Path) -> None:
    made = _ask(3)
    assert made is not None
    assert _last().seconds > 0
    assert len(list((tmp_path / FOLDER).iterdir())) == 1
    found = _ask(7)
    assert found is not None
    assert _last().reason.endswith("known from JAX's cache")
    assert (_last().before, _last().after) == (log.report().outcomes[0].before, _last().after)
    assert format_module(read_module(found)) == format_module(read_module(made))
    assert with_number(found, 0)[0] == 7


def test_another_pass_another_version_and_other_flags_look_for_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _ask(1)
    _ask(1, "another pass")
    assert _last().seconds > 0
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    _ask(1)
    assert _last().seconds > 0
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(answer_cache, "__version__", "0.0")
    _ask(1)
    assert _last().seconds > 0


@pytest.mark.parametrize("damage", [b"", b"nonsense"])
def test_a_damaged_file_is_as_if_it_were_not_there(tmp_path: Path, damage: bytes) -> None:
    made = _ask(1)
    [path] = (tmp_path / FOLDER).iterdir()
    path.write_bytes(damage)
    assert _ask(1) == made
    assert _last().seconds > 0
    assert _ask(1) == made
    assert _last().seconds == 0


def test_a_place_that_cannot_be_written_to_costs_nothing_but_the_search(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("in the way")
    assert _ask(1) is not None
    assert _last().kind == "improved"


@pytest.mark.parametrize("place", ["", "gs://bucket/cache"])
def test_without_a_cache_on_disk_nothing_is_kept(tmp_path: Path, place: str) -> None:
    jax.config.update("jax_compilation_cache_dir", place or None)
    _ask(1)
    _ask(1)
    assert _last().seconds > 0
    assert list(tmp_path.iterdir()) == []


def test_what_went_wrong_is_not_kept(tmp_path: Path) -> None:
    AnswerStore("a pass").keep(_proto(1), Answer(None, Outcome("f", "cpu", "failed")))
    assert list(tmp_path.iterdir()) == []
