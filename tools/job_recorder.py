"""Runs one job of `tools/recorded_jobs.py` and leaves everything there is to know about its memory.

    python3 tools/job_recorder.py FOLDER NAME [--no-trace]

Out: FOLDER/NAME.json.gz (log, plans, the allocator's figures and all live arrays at every mark,
errors, the answers of hlomem where its packages are there), NAME.xplane.pb.gz (the profile, from
before the first allocation), NAME.MARK.prof (device memory profiles). `tools/record_jobs.py` starts
it.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from hlomem.jax.job_recording import STATS, JobRecording

PYTHON_TRACED = "python"
"""`train` with Python's calls in the trace, which begins late."""
LATE_MARK = "step 2"
MAX_PROFILE = 6 << 20
"""Bytes of a packed profile that is kept whole."""
MAX_KEPT = 12 << 20
MANY = 10_000
jax: Any = import_module("jax")


class JobRecorder(JobRecording):
    """A job on a device, with all its traces."""

    def __init__(self, name: str, folder: Path, *, is_traced: bool) -> None:
        self.folder = folder
        self.is_traced = is_traced
        self.traces = Path(tempfile.mkdtemp(prefix="trace-"))
        self.out: dict[str, Any] = {
            "job": name,
            "jax": jax.__version__,
            "environment": {key: os.environ[key] for key in os.environ if key.startswith("XLA")},
            "errors": [],
            "instants": {},
            "now": {},
            "hlomem": "",
        }
        if is_traced and name != PYTHON_TRACED:
            self.start_trace()
        super().__init__(name)
        self.mark("start")

    def start_trace(self) -> None:
        """Trace from here on."""
        options = jax.profiler.ProfileOptions()
        options.host_tracer_level = 2
        options.python_tracer_level = int(self.out["job"] == PYTHON_TRACED)
        jax.profiler.start_trace(str(self.traces), profiler_options=options)

    def mark(self, name: str) -> None:
        """Keep figures, arrays and a memory profile."""
        super().mark(name)
        if self.name == PYTHON_TRACED and name == LATE_MARK:
            self.start_trace()
        if self.is_traced:
            self.out["instants"][name] = self.instant()
            plain = "".join(letter if letter.isalnum() else "_" for letter in name)
            file = self.folder / f"{self.name}.{plain}.prof"
            file.write_bytes(jax.profiler.device_memory_profile())

    def instant(self) -> dict[str, Any]:
        """Everything `hlomem.jax.now` goes by: figures, arrays with addresses, programs."""
        stats = self.device.memory_stats() or {}
        return {
            "stats": {key: stats[key] for key in STATS if key in stats},
            "arrays": [describe(array) for array in jax.live_arrays()],
            "executables": len(getattr(self.device.client, "live_executables", list)()),
        }

    def note_error(self, error: BaseException) -> None:
        """Keep what an error says, what holds memory then, and hlomem's word on it."""
        frames = traceback.extract_tb(error.__traceback__)
        row = {
            "kind": type(error).__name__,
            "text": str(error)[:6000],
            "frames": [[frame.filename, frame.lineno, frame.name] for frame in frames],
            "instant": self.instant(),
            "entry": len(self.log),
            "note": "",
        }
        self.out["errors"].append(row)
        try:
            import_module("hlomem.jax.oom").annotate(error, None)
            row["note"] = "\n".join(getattr(error, "__notes__", ()))
        except ImportError as problem:
            row["note"] = f"not asked: {problem!r}"

    def finish(self) -> None:
        """Write what was recorded."""
        self.mark("end")
        if self.is_traced:
            jax.profiler.stop_trace()
            self.keep_profile()
            self.ask_now()
        self.out |= {
            "device": str(self.device.device_kind),
            "log": self.log,
            "marks": self.marks,
            "plans": self.plans,
        }
        data = json.dumps(self.out, default=str).encode()
        (self.folder / f"{self.name}.json.gz").write_bytes(gzip.compress(data, 6))
        figures = {key: self.marks[-1].get(key) for key in STATS[:3]}
        kinds = [error["kind"] for error in self.out["errors"]]
        print(self.name, figures, "errors", kinds, "hlomem", self.out["hlomem"], flush=True)

    def ask_now(self) -> None:
        """The answers of `hlomem.jax.now` at the end, with arrays, and the seconds it takes."""
        try:
            now = import_module("hlomem.jax.instants").now
            plain = import_module("msgspec").to_builtins
        except ImportError as problem:
            self.out["hlomem"] = f"not asked: {problem!r}"[:300]
            return
        kept = [jax.numpy.ones((500 + number, 1000)) for number in range(20)]
        few = [jax.numpy.float32(number) + 0 for number in range(MANY)]
        jax.block_until_ready((kept, few))
        began = time.perf_counter()
        answer = now()
        self.out["now"] = {"seconds": time.perf_counter() - began, "answer": plain(answer.data)}
        self.out["now"]["answer"]["rows"] = self.out["now"]["answer"]["rows"][:50]
        self.out["now"]["screen"] = str(answer)
        self.out["hlomem"] = "asked"

    def keep_profile(self) -> None:
        """The profile, packed."""
        found = sorted(self.traces.rglob("*.xplane.pb"))
        if not found:
            return
        raw = found[0].read_bytes()
        packed = gzip.compress(raw, 6)
        self.out["profile"] = [len(raw), len(packed)]
        if len(packed) > MAX_PROFILE:
            packed = gzip.compress(without_planes(raw, b"/device:"), 6)
        if len(packed) > MAX_KEPT:
            packed = gzip.compress(without_planes(raw, b"/device:", b"/host:CPU"), 6)
        (self.folder / f"{self.name}.xplane.pb.gz").write_bytes(packed)
        shutil.rmtree(self.traces, ignore_errors=True)


def describe(array: Any) -> list[Any]:
    """Size, shape, address, kind of memory and the user's calls of an array."""
    try:
        address = array.unsafe_buffer_pointer()
    except (RuntimeError, ValueError):  # sharded, or not there any more
        address = None
    frames = getattr(getattr(array, "traceback", None), "frames", ())
    stack = [[frame.function_name, frame.file_name, frame.line_num] for frame in frames]
    users = [frame for frame in stack if "-packages/" not in frame[1]]
    kind = str(getattr(array.sharding, "memory_kind", ""))
    is_ready = array.is_ready()
    return [
        int(array.nbytes), f"{array.dtype}{list(array.shape)}", address, kind, users[:4], is_ready,
    ]  # fmt: skip


def without_planes(raw: bytes, *names: bytes) -> bytes:
    """A profile without planes whose names begin so."""
    out, start = bytearray(), 0
    while start < len(raw):
        begin = start
        key, start = read_number(raw, start)
        size, start = read_number(raw, start)
        body = raw[start : start + size] if key & 7 == 2 else b""
        start += len(body)
        if not (key == 10 and any(name in body[:40] for name in names)):
            out += raw[begin:start]
    return bytes(out)


def read_number(raw: bytes, start: int) -> tuple[int, int]:
    """A number of the wire format, and the position after it."""
    number = shift = 0
    while raw[start] >= 0x80:
        number |= (raw[start] & 0x7F) << shift
        start, shift = start + 1, shift + 7
    return number | raw[start] << shift, start + 1


def main(folder: Path, name: str, *, is_traced: bool) -> None:
    """Run a job, whatever comes of it."""
    recorder = JobRecorder(name, folder, is_traced=is_traced)
    try:
        jobs = import_module("tools.recorded_jobs")
        getattr(jobs, "train" if name == PYTHON_TRACED else name)(recorder)
    except Exception as error:  # noqa: BLE001 - an error may be what the job is for
        recorder.note_error(error)
        traceback.print_exc()
    recorder.finish()
    sys.stdout.flush()
    os._exit(0)  # nothing is left to put away


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], is_traced="--no-trace" not in sys.argv)
