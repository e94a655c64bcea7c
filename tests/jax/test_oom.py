"""Out-of-memory errors of JAX end with the line to look at, and stay what they were."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import threading
import traceback
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import hlomem.jax
from hlomem.jax import oom
from hlomem.jax.pass_ import hook

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = pytest.importorskip("jax.numpy")

FIRST_HOOK_WITHOUT_DEVICES = (0, 11)
"""The version of JAX from which on a compiler shows its modules that has no devices here."""
HUGE = 10_000_000
"""Rows and columns of a matrix that no address space holds."""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


MODEL = """
import jax.numpy as jnp

def sort_huge(x):
    return jnp.sort(x[:, None] * x[None, :], axis=0)[0]
"""
LINE = "model.py:5"


@pytest.fixture
def sort_huge(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function of a user's file: that of this test lies in a folder called `jax`."""
    path = tmp_path_factory.mktemp("user") / "model.py"
    path.write_text(MODEL)
    return runpy.run_path(str(path))["sort_huge"]


def _note_of(error: BaseException) -> list[str]:
    [note] = [note for note in error.__notes__ if note.startswith("hlomem:")]
    return note.splitlines()


def test_the_traceback_ends_with_the_line_and_the_page_is_there(
    tmp_path: Path, sort_huge: Any
) -> None:
    function = hlomem.jax.explain_oom(jax.jit(sort_huge))
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED") as raised:
        function(jnp.ones(HUGE))
    text = "".join(traceback.format_exception(raised.value)).rstrip().splitlines()
    assert re.match(rf"  look at \S*{LINE}: ", text[-1])
    assert "% of the peak" in text[-1]
    note = _note_of(raised.value)
    assert re.match(r"hlomem: sort_huge needs [\d.]+ TiB of memory; [\d.]+ TiB at once", note[0])
    assert "bytes requested" in note[1]
    assert "temporaries" in note[2]
    assert f"  page: {tmp_path / 'hlomem-oom.html'}" in note
    assert "sort_huge" in (tmp_path / "hlomem-oom.html").read_text()


def test_a_function_that_is_not_jitted_and_a_method_are_explained_too(sort_huge: Any) -> None:
    class Model:
        @hlomem.jax.explain_oom(page=None)
        def run(self, x: Any) -> Any:
            return jax.jit(sort_huge)(x)

    with pytest.raises(jax.errors.JaxRuntimeError) as raised:
        Model().run(jnp.ones(HUGE))
    assert re.match(rf"  look at \S*{LINE}: ", _note_of(raised.value)[-1])
    assert list(Path.cwd().iterdir()) == []


def test_an_explained_function_is_otherwise_the_function_itself() -> None:
    def twice(x: Any) -> Any:
        """Twice as much."""
        return 2 * x

    double = hlomem.jax.explain_oom(jax.jit(twice))
    assert (double.__name__, double.__doc__) == ("twice", "Twice as much.")
    assert double(3.0) == 6.0
    assert double.lower(3.0).compile()(3.0) == 6.0
    assert jax.jit(lambda x: double(x) + 1)(3.0) == 7.0


def test_other_errors_get_no_note() -> None:
    @hlomem.jax.explain_oom
    def fail() -> None:
        raise ValueError("memory of an elephant")

    with pytest.raises(ValueError, match="elephant") as raised:
        fail()
    assert not hasattr(raised.value, "__notes__")


def test_memory_no_program_asked_for_is_said_to_be_nobodys() -> None:
    message = "RESOURCE_EXHAUSTED: Out of memory allocating 123456789012345 bytes."
    error = RuntimeError(message)
    oom.annotate(error)
    assert "112.3 TiB could not be allocated" in _note_of(error)[0]
    assert "jax.live_arrays()" in _note_of(error)[1]


NAMED_ON_GPU = (
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.00GiB with allocator GPU_0_bfc"
    " [executable_name='jit_sorts']"
)
GPU_MESSAGES = (
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate {size} bytes.",
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate {mib:.2f}MiB.",
    NAMED_ON_GPU,
)


@pytest.mark.parametrize("message", GPU_MESSAGES)
def test_what_a_gpus_allocator_says_finds_the_program(message: str) -> None:
    def sorts(x: Any) -> Any:
        return jnp.sort(x @ x.T, axis=0)[0]

    compiled = jax.jit(sorts).lower(jax.ShapeDtypeStruct((1024, 8), "float32")).compile()
    size = compiled.memory_analysis().temp_size_in_bytes
    error = RuntimeError(message.format(size=size, mib=size / 2**20))
    oom.annotate(error, None)
    assert _note_of(error)[0].startswith("hlomem: sorts needs ")
    assert _note_of(error)[-1].startswith("  look at ")


def test_an_error_in_a_chain_or_a_group_is_found_and_noted_once() -> None:
    message = "RESOURCE_EXHAUSTED: Out of memory allocating 123456789012345 bytes."
    outer = KeyError("step 3")
    outer.__cause__ = ExceptionGroup("workers", [RuntimeError(message)])
    outer.__cause__.__context__ = outer  # a circle, as a program may make one
    oom.annotate(outer)
    oom.annotate(outer)
    assert len(outer.__notes__) == 1


def test_an_explanation_that_fails_leaves_the_error_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(oom, "live_programs", lambda: 1 // 0)
    error = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 123456789012345 bytes.")
    oom.annotate(error)
    assert not hasattr(error, "__notes__")
    assert "was not explained" in caplog.text


def test_a_page_that_cannot_be_written_is_said_and_nothing_is_left(
    tmp_path: Path, sort_huge: Any
) -> None:
    (tmp_path / "taken").write_text("")
    function = hlomem.jax.explain_oom(page=tmp_path / "taken" / "page.html")(jax.jit(sort_huge))
    with pytest.raises(jax.errors.JaxRuntimeError) as raised:
        function(jnp.ones(HUGE))
    assert any(line.startswith("  no page: ") for line in _note_of(raised.value))
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_the_memory_of_modules_is_bounded() -> None:
    memory = oom.Memory(max_bytes=100)
    for _ in range(5):
        memory.see(hook.SeenModule("cpu", b"\x0a\x1c" + b"x" * 28))
    assert len(memory.programs()) == 3
    memory.see(hook.SeenModule("cpu", b"\x0a\x7f" + b"y" * 127))
    assert [program.module_name for program in memory.programs()] == ["y" * 127]


SCRIPT = """
import sys, threading
import jax, jax.numpy as jnp
import hlomem.jax

{install}

def sort_huge(x):
    return jnp.sort(x[:, None] * x[None, :], axis=0)[0]

def main():
    jax.jit(sort_huge)(jnp.ones(10_000_000)).block_until_ready()

if "thread" in sys.argv:
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
else:
    main()
"""


def _run(tmp_path: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "train.py"
    path.write_text(script)
    line = [sys.executable, str(path), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)


@pytest.mark.parametrize("arguments", [(), ("thread",)])
def test_the_hook_of_a_process_ends_its_traceback_with_the_line(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = _run(tmp_path, SCRIPT.format(install="hlomem.jax.install_excepthook()"), *arguments)
    assert done.returncode == (0 if arguments else 1)
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith(f"  look at {tmp_path / 'train.py'}:9: ")
    assert (tmp_path / "hlomem-oom.html").exists()


def test_hooks_are_put_back() -> None:
    before = sys.excepthook, threading.excepthook
    with hlomem.jax.install_excepthook() as hook:
        assert sys.excepthook != before[0]
        hook.remove()
    assert (sys.excepthook, threading.excepthook) == before


def test_hooks_that_others_have_wrapped_stay_and_explain_nothing_once_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    explained: list[BaseException] = []
    seen: list[object] = []
    monkeypatch.setattr(oom, "annotate", lambda error, _: explained.append(error))
    monkeypatch.setattr(sys, "excepthook", lambda *about: seen.append(about))
    monkeypatch.setattr(threading, "excepthook", seen.append)
    error = KeyError("x")
    with hlomem.jax.install_excepthook():
        ours = sys.excepthook, threading.excepthook
        ours[0](KeyError, error, None)
        assert explained == [error]
        monkeypatch.setattr(sys, "excepthook", partial(ours[0]))
        monkeypatch.setattr(threading, "excepthook", partial(ours[1]))
        theirs = sys.excepthook, threading.excepthook
    assert (sys.excepthook, threading.excepthook) == theirs
    sys.excepthook(KeyError, error, None)
    threading.excepthook(threading.ExceptHookArgs((KeyError, error, None, None)))
    assert explained == [error]
    assert len(seen) == 3


def test_installing_initialises_no_backend(tmp_path: Path) -> None:
    script = (
        "import jax, hlomem.jax\n"
        "hlomem.jax.install_excepthook()\n"
        "hlomem.jax.explain_oom(print)\n"
        "jax.config.update('jax_num_cpu_devices', 2)\n"  # refused when backends are up
        "print(len(jax.devices()))\n"
    )
    assert _run(tmp_path, script).stdout == "2\n"


TPU = """
import sys
import jax, jax.numpy as jnp
import hlomem.jax
from jax.experimental import topologies

hlomem.jax.install_excepthook()
topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])

@jax.jit
def ranks(x):
    return jnp.sort(x @ x.T, axis=0)[0]

ranks.lower(jax.ShapeDtypeStruct((100000, 8), "float32", sharding=sharding)).compile()
"""


@pytest.mark.skipif(
    find_spec("libtpu") is None, reason="libtpu is not installed (`make jax` has it)"
)
def test_what_libtpu_refuses_to_compile_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_ID": "0",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "JAX_PLATFORMS": "cpu",
    }.items():
        monkeypatch.setitem(os.environ, name, value)
    done = _run(tmp_path, TPU)
    lines = done.stderr.rstrip().splitlines()
    if jax.__version_info__ < FIRST_HOOK_WITHOUT_DEVICES:
        assert "ranks needs 74.58 GiB, 15.75 GiB available; its plan is not visible" in lines[-2]
        return
    assert lines[-1].startswith(f"  look at {tmp_path / 'train.py'}:13: ")
    needs = next(line for line in lines if line.startswith("hlomem:"))
    assert needs == "hlomem: ranks needs 74.58 GiB of HBM, 15.75 GiB available: over by 58.83 GiB"
    assert "named by the error; the plan is hlomem's own" in done.stderr
