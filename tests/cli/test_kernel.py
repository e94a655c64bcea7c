"""`hlomem kernel` says what is wrong with how it is called; tests/jax has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.cli import main


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--target", "tpu-v5e", "--largest"], "give --over NAME=A,B"),
        (["--target", "tpu-v5e", "--exact"], "give --over NAME=A,B"),
        (["--target", "tpu-v5e", "--over", "a=1,2", "--shrink"], "give it or --over"),
        (["--target", "tpu-v5e", "--over", "a"], "`a` makes no rows"),
        (["--target", "cpu"], "kernels are compiled for TPUs and GPUs, not for cpu"),
        (["--target", "tpu-v9"], "no target `tpu-v9`"),
        (["--target", "tpu-v5e", "--set", "a=1", "--over", "a=1,2"], "`a` is given twice"),
        ([], "Missing option '--target'"),
    ],
)
def test_wrong_usage_is_one_clear_line(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernel", "kernels.py:make", *words]) == 2
    assert problem in capsys.readouterr().err


def test_a_page_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    words = ["--target", "tpu-v5e", "--html", str(page)]
    assert main(["kernel", "kernels.py:make", *words]) == 2
    assert "give --force to overwrite it" in capsys.readouterr().err
    assert page.read_text() == "mine"


def test_trying_blocks_needs_a_kernel_and_a_target(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = "Shared memory size limit exceeded: requested 262144, available: 232448"
    assert main(["oom", f"RESOURCE_EXHAUSTED: {kernel}\n", "--kernel", "k.py:make"]) == 2
    assert "give --target" in capsys.readouterr().err
    other = "RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes\n"
    assert main(["oom", other, "--kernel", "k.py:make"]) == 2
    assert "not about a kernel" in capsys.readouterr().err
