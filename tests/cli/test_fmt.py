"""`hlomem fmt` from outside."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.cli.conftest import Run
from tests.hlo.text.freeform.goldens import PRINTED
from tests.hlo.written import REFUSED, WRITTEN
from tests.places import GOLDENS

SEEDS = sorted((GOLDENS / "seeds").glob("*.txt"))


def test_prints_every_seed_back_byte_for_byte(run: Run) -> None:
    result = run("fmt", *SEEDS)
    assert result.code == 0
    assert result.out == b"".join(seed.read_bytes() for seed in SEEDS)


def test_check_prints_nothing_when_nothing_would_change(run: Run) -> None:
    result = run("fmt", "--check", *SEEDS)
    assert (result.code, result.out, result.err) == (0, b"", "")


def test_reads_standard_input_and_gzip(run: Run, tmp_path: Path) -> None:
    text = SEEDS[0].read_bytes()
    packed = tmp_path / "dump.txt.gz"
    packed.write_bytes(gzip.compress(text))
    assert run("fmt", "-", stdin=text).out == text
    assert run("fmt", packed).out == text


def test_one_bad_file_does_not_stop_the_others(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("BufferAssignment:\nallocation 0: size x:\n")
    result = run("fmt", bad, SEEDS[0])
    assert result.code == 3
    assert result.out == SEEDS[0].read_bytes()
    assert f"error: {bad}:2:20: expected a number, the size in bytes, found `x`" in result.err
    assert "2 | allocation 0: size x:" in result.err
    assert "Traceback" not in result.err


def test_a_kept_log_line_is_noted_and_printed_back(run: Run, tmp_path: Path) -> None:
    lines = SEEDS[0].read_text().split("\n")
    lines.insert(2, "W0000 00:00:1731628800.123456    7 cpu_compiler.cc:9] \x1b[2Jslow")
    logged = tmp_path / "logged.txt"
    logged.write_text("\n".join(lines))
    result = run("fmt", logged)
    assert result.code == 0
    assert result.out == logged.read_bytes()
    assert f"note: {logged}:3: log line is not of the dump" in result.err
    assert "\x1b" not in result.err


def test_a_lone_first_part_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    cut = tmp_path / "cut.txt"
    cut.write_text(SEEDS[0].read_text().split("\nTotal")[0])
    result = run("fmt", cut)
    assert result.code == 0
    assert "note: no values (*-buffer-assignment-values.txt)" in result.err


def test_parts_found_beside_a_file_are_not_missing(run: Run, goldens: Path) -> None:
    part = goldens / "xla/jaxlib-0.12.0.1/cpu/nested_while/buffer-assignment.txt"
    assert run("fmt", "--check", part).err == ""


def test_check_says_which_line_would_change(run: Run, tmp_path: Path) -> None:
    module = "HloModule m\n\nENTRY %e {\n  ROOT %a = f32[8]{0}   parameter(0)\n}\n"
    path = tmp_path / "odd.hlo"
    path.write_text(module)
    printed = run("fmt", path).out.decode()
    assert printed != module
    result = run("fmt", "--check", path)
    assert result.code == 1
    number = next(
        number
        for number, (had, would) in enumerate(
            zip(module.split("\n"), printed.split("\n"), strict=False), 1
        )
        if had != would
    )
    assert result.out.decode().startswith(f"{path}:{number}: would change\n  has    ")


def test_a_module_as_people_write_it_is_printed_as_xla_prints_it(run: Run, tmp_path: Path) -> None:
    written = tmp_path / "module.hlo"
    written.write_text(WRITTEN["inline operands"])
    result = run("fmt", "--canonical", written)
    assert (result.code, result.out.decode()) == (0, PRINTED["inline operands"])
    assert run("fmt", "--canonical", "--check", written).code == 1


def test_a_module_that_xla_refuses_is_refused_with_the_line(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.hlo"
    bad.write_text(REFUSED["shapes that differ"])
    result = run("fmt", "--canonical", bad)
    assert (result.code, result.out) == (3, b"")
    assert f"error: {bad}:7:12: the shape of `add` is missing and cannot be inferred" in result.err
    assert "not from `(f32[2], f32[3])`" in result.err
