"""`hlomem timeline`, `leaks`, `job` and `export` from outside."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from hlomem.job.log import JobLog, Run, encode_log
from hlomem.job.plans import ProgramPlan, Request
from hlomem.proto.pprof import read_pprof
from tests.cli.conftest import Run as RunCommand
from tests.job.recorded import H200, JOBS

SERVE, FRAG = JOBS / "serve.xplane.pb.gz", JOBS / "frag.xplane.pb.gz"
GIB = 1 << 30


def test_a_timeline_in_one_screen(run: RunCommand) -> None:
    result = run("timeline", SERVE)
    screen = result.out.decode()
    assert result.code == 0
    assert "Peak 4.66 GiB of 104.9 GiB at 11.417 s" in screen
    assert "temporaries: fwd, allocation 14" in screen
    assert "1742 of 1742 events" in " ".join(screen.split())
    assert all(len(line) <= 80 for line in screen.splitlines())


def test_a_timeline_as_json_adds_up(run: RunCommand) -> None:
    content = json.loads(run("timeline", SERVE, "--json", "--at", "2.5").out)
    assert (content["schema"], content["kind"]) == ("hlomem/1", "timeline")
    moment = content["moment"]
    assert sum(row["size"] for row in moment["rows"]) == moment["in_use"]
    assert any(row["owner"] == "autotuner" for row in moment["rows"])


def test_a_timeline_as_a_page(run: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("timeline", FRAG, "--html", page).code == 0
    assert "modules.timeline" in page.read_text()
    again = run("timeline", FRAG, "--html", page)
    assert again.code == 2
    assert "exists; give --force" in again.err


def test_a_profile_without_allocations_is_refused_in_words(run: RunCommand, goldens: Path) -> None:
    result = run("timeline", goldens / "protos/cpu_train_step/profile.xplane.pb")
    assert result.code in (2, 3)
    assert "no allocator wrote events" in result.err or "no events of the host" in result.err


def test_leaks_exit_with_a_finding(run: RunCommand) -> None:
    result = run("leaks", JOBS / "restore.saved.prof", JOBS / "restore.both.prof")
    assert result.code == 1
    assert "+384.0 MiB  /home/me/jobs.py:72" in result.out.decode()
    assert run("leaks", JOBS / "frag.filled.prof", JOBS / "frag.end.prof").code == 0
    assert run("leaks", JOBS / "frag.filled.prof").code == 2
    assert run("leaks", FRAG, FRAG).code == 3


def test_a_recorded_job_in_another_pool(run: RunCommand) -> None:
    fits = run("job", SERVE, "--pool", "4951375872")
    assert fits.code == 0
    assert "the smallest pool, taken at once, is 4.61 GiB" in fits.out.decode()
    under = run("job", SERVE, "--pool", "4800MiB", "--growth")
    assert under.code == 1
    assert "Does not fit in a pool that grows" in under.out.decode()


def test_a_log_of_a_job(run: RunCommand, tmp_path: Path) -> None:
    plan = ProgramPlan(name="step", requests=(Request(index=0, size=3 * GIB, role="temporaries"),))
    log = JobLog(name="job", entries=(Run("step", (), (), ()),), programs={"step": plan})
    path = tmp_path / "log.json"
    path.write_bytes(encode_log(log))
    assert run("job", path, "--pool", "4GiB").code == 0
    assert run("job", path, "--pool", "2GiB").code == 1
    assert "give --pool" in run("job", path).err
    for damaged in (b'{"kind": "hlomem job"}', encode_log(log).replace(b'"step":', b'"stop":')):
        path.write_bytes(damaged)
        assert run("job", path, "--pool", "2GiB").code == 3


def test_exports_for_other_tools(run: RunCommand, tmp_path: Path, goldens: Path) -> None:
    trace = json.loads(run("export", FRAG, "--to", "perfetto").out)
    counters = [event for event in trace["traceEvents"] if event["ph"] == "C"]
    assert max(event["args"].get("bytes", 0) for event in counters) == 7_516_192_768
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 58
    out = tmp_path / "peak.pb.gz"
    assert run("export", FRAG, "--to", "pprof", "-o", out).code == 0
    held = read_pprof(out.read_bytes(), "peak")
    assert sum(one.size for one in held) == 7_516_192_768
    assert held[0].stack[0].line == 244
    dump = goldens / "protos/cpu_train_step/profile.xplane.pb"
    plan = json.loads(run("export", dump, "--to", "perfetto", "--plan").out)
    assert any(event["ph"] == "b" for event in plan["traceEvents"])
    stacks = read_pprof(run("export", dump, "--to", "pprof", "--plan").out, "plan")
    assert sum(one.size for one in stacks) > 0


def test_a_log_is_exported_as_its_forecast(run: RunCommand) -> None:
    log = H200 / "train.log.json.gz"
    trace = json.loads(run("export", log, "--to", "perfetto").out)
    sizes = [event["args"]["bytes"] for event in trace["traceEvents"] if event["ph"] == "C"]
    held = read_pprof(run("export", log, "--to", "pprof").out, "peak")
    assert max(sizes) == sum(one.size for one in held) == 3_128_053_760


def test_owners_of_a_trace_add_up_to_the_bytes_in_use(run: RunCommand) -> None:
    trace = json.loads(run("export", SERVE, "--to", "perfetto").out)
    counters = [event for event in trace["traceEvents"] if event["ph"] == "C"]
    for whole, parts in zip(counters[::2], counters[1::2], strict=True):
        assert whole["args"]["bytes"] == sum(parts["args"].values())


def test_a_cut_profile_is_refused(run: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(gzip.decompress(FRAG.read_bytes())[:20_000])
    result = run("timeline", path)
    assert result.code == 3
    assert "cut off" in result.err


def test_a_log_that_is_not_utf8_is_damaged(run: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(gzip.decompress((H200 / "train.log.json.gz").read_bytes())[:500] + b'\xff"}')
    result = run("job", path, "--pool", "2GiB")
    assert result.code == 3
    assert "a damaged log of a job" in result.err


def test_damaged_jobs_are_not_exported_as_plans(run: RunCommand, tmp_path: Path) -> None:
    profile = bytearray(gzip.decompress(SERVE.read_bytes()))
    profile[profile.index(b"/host:CPU") + 9] = 0xFF
    log = gzip.decompress((H200 / "train.log.json.gz").read_bytes())
    for name, data in (("run.xplane.pb", profile), ("log.json", log[:1000])):
        path = tmp_path / name
        path.write_bytes(data)
        result = run("export", path, "--to", "perfetto")
        assert (result.code, result.out) == (3, b"")
        assert "damaged" in result.err


def test_a_pool_is_asked_for_before_anything_is_compiled(run: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "loop.py"
    path.write_text("def train():\n    raise SystemExit('it ran')\n")
    result = run("job", f"{path}:train", "--target", "cpu")
    assert result.code == 2
    assert "how large the pool may be is not known: give --pool SIZE" in result.err
