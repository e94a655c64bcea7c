"""The process that reads units: frames in, frames out, and an end when its input ends."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.fleet import child
from hlomem.fleet.child import READY, read_frame, write_frame
from hlomem.fleet.finding import unit_at
from hlomem.fleet.reading import ScanOptions, Task, UnitOutcome

_MORE_THAN_ARE_COLLECTED_AT_ONCE = 17


@given(st.lists(st.binary(max_size=64)), st.integers(1, 8))
def test_frames_are_read_as_they_were_written_and_a_cut_one_is_the_end(
    messages: list[bytes], cut: int
) -> None:
    stream = io.BytesIO()
    for message in messages:
        write_frame(stream, message)
    whole = stream.getvalue()
    stream.seek(0)
    assert [read_frame(stream) for _ in messages] == messages
    assert read_frame(stream) is None
    if messages:
        stream = io.BytesIO(whole[:-cut] if cut <= len(messages[-1]) + 4 else b"")
        read = list(iter(lambda: read_frame(stream), None))
        assert read == messages[: len(read)]
        assert len(read) < len(messages)


def _task(folder: Path) -> Task:
    path = folder / "m.after_optimizations.txt"
    path.write_text("HloModule m")
    task = Task(unit=unit_at(str(path)), options=ScanOptions())
    path.unlink()
    return task


def test_it_answers_every_task_and_ends_with_its_input(tmp_path: Path) -> None:
    tasks = io.BytesIO()
    for _ in range(_MORE_THAN_ARE_COLLECTED_AT_ONCE):
        write_frame(tasks, msgspec.msgpack.encode(_task(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-m", "hlomem.fleet.child"],
        input=tasks.getvalue(),
        capture_output=True,
        check=True,
    )
    answers = io.BytesIO(done.stdout)
    assert read_frame(answers) == READY
    frames = list(iter(lambda: read_frame(answers), None))
    outcomes = [msgspec.msgpack.decode(frame, type=UnitOutcome) for frame in frames]
    assert [outcome.errors for outcome in outcomes] == [1] * _MORE_THAN_ARE_COLLECTED_AT_ONCE


def test_a_unit_that_needs_too_much_memory_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: Task) -> UnitOutcome:
        raise MemoryError

    monkeypatch.setattr(child, "read_unit", read)
    outcome = child._read(_task(tmp_path))
    assert (outcome.errors, outcome.ran_out) == (1, True)
