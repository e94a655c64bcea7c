"""A command behaves as if nobody were between: output, exit code, signals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hlomem.run.child import MAX_TAIL, CannotRunError, run_child


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_passes_and_the_end_of_errors_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    ended = run_child(_python(code), os.environ)
    assert ended == (7, "err\n")
    assert capfd.readouterr() == ("out\n", "err\n")


def test_a_signal_that_kills_is_128_and_its_number() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run_child(_python(code), os.environ).code == 137


def test_the_environment_is_the_one_given(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import os; print(os.environ['XLA_FLAGS'])"
    run_child(_python(code), {**os.environ, "XLA_FLAGS": "--a"})
    assert capfd.readouterr().out == "--a\n"


def test_of_long_output_the_end_is_kept_and_all_is_passed_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = f"import sys; sys.stderr.write('x' * {5 * MAX_TAIL // 2} + 'end')"
    ended = run_child(_python(code), os.environ)
    assert ended.tail.endswith("xend")
    assert len(ended.tail) <= 2 * MAX_TAIL
    assert len(capfd.readouterr().err) == 5 * MAX_TAIL // 2 + 3


def test_what_is_no_command_has_a_shells_exit_code(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match="command not found") as missing:
        run_child(["no-such-command-here"], os.environ)
    assert missing.value.exit_code == 127
    (tmp_path / "plain").write_text("text")
    with pytest.raises(CannotRunError, match="Permission denied") as refused:
        run_child([str(tmp_path / "plain")], os.environ)
    assert refused.value.exit_code == 126


def test_a_process_left_behind_does_not_hold_us_up() -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(8)'])\n"
    )
    start = time.monotonic()
    assert run_child(_python(code), os.environ).code == 0
    assert time.monotonic() - start < 7


CHILD = """
import signal, sys, time
def stop(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(3)
for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"):
    signal.signal(getattr(signal, name), stop)
print("ready", flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, sys
from hlomem.run.child import run_child
sys.exit(run_child([sys.executable, "-c", {CHILD!r}], os.environ).code)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_signals_are_handed_on_and_the_command_decides(name: str) -> None:
    line = _python(PARENT)
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        assert process.stdout.read() == f"got {name}\n"
        assert process.wait() == 3


def test_a_terminal_stays_a_terminal() -> None:
    reading, writing = pty.openpty()
    code = (
        "import os, sys; from hlomem.run.child import run_child\n"
        "run_child([sys.executable, '-c', 'import os; os.write(2, str(os.isatty(2)).encode())'],"
        " os.environ)\n"
    )
    try:
        subprocess.run(_python(code), stderr=writing, check=True)
        assert os.read(reading, 100) == b"True"
    finally:
        os.close(reading)
        os.close(writing)
