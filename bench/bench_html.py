"""Writing the report, and using it: CPU time, size, and how quick the page is in a browser.

    python -m bench.bench_html [--corpus ../shared] [--repeat 3]

The reports of the largest CPU dump of the corpus, and of a made-up program of 100,000 buffers.
"html" is everything `hlomem html` does from the start of the process to its end, "plan" the same
for `hlomem plan` of the module, as a measure of the machine; the best of several counts. Needs
playwright and Chromium (`make browser`) for the rest; without them the page is only written.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# From compiled bytecode, as an installed package runs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = "real/cpu/hlo_llama31_8b_bf16_1x8"
BUFFERS = 100_000
REACHES = (1, 2, 3, 50, 400)
"""How far back the second operands of the made-up program lie."""

_FRAMES = """
new Promise((done) => {
  const steps = hlomem.report().steps, start = performance.now();
  let frames = 0;
  const next = () => {
    hlomem.setView(steps * 0.002 * frames, steps * (0.6 + 0.002 * frames));
    hlomem.draw();
    if (++frames < 30) requestAnimationFrame(next);
    else done(frames / (performance.now() - start) * 1000);
  };
  next();
})
"""


def cpu_seconds(*arguments: str | Path) -> float:
    """User and system time of a command line of ours."""
    command = [sys.executable, "-m", "hlomem", *map(str, arguments)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def many_buffers(count: int) -> str:
    """A program of `count` instructions, each with a buffer."""
    lines = ["HloModule many, is_scheduled=true", "", "ENTRY %main {"]
    lines.append("  %i0 = f32[64]{0} parameter(0)")
    for number in range(1, count):
        other = max(0, number - REACHES[number * 7919 % 13 % len(REACHES)])
        root = "ROOT " if number == count - 1 else ""
        metadata = f'op_name="jit(step)/layer{number % 80}/add" source_file="model.py"'
        lines.append(
            f"  {root}%i{number} = f32[64]{{0}} add(%i{number - 1}, %i{other}), "
            f"metadata={{{metadata} source_line={number % 900}}}"
        )
    return "\n".join([*lines, "}", ""])


def print_row(name: str, module: Path, dump: Path, repeat: int, browser: Browser | None) -> None:
    """One program: writing its report, and using it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.html")
        html = min(cpu_seconds("html", dump, "-o", report, "--force") for _ in range(repeat))
        command = ("plan", module, "-o", folder, "--force", "--backend", "cpu")
        plan = min(cpu_seconds(*command) for _ in range(repeat))
        row = f"{name:28} {html:7.2f} {plan:7.2f} {report.stat().st_size / 1e6:7.2f}"
        print(row + (_in_browser(browser, report) if browser else ""), flush=True)


def _in_browser(browser: Browser, report: Path) -> str:
    page = browser.new_page(viewport={"width": 1366, "height": 900})
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    opened = page.evaluate("performance.getEntriesByName('ready')[0].startTime")
    frames = page.evaluate(_FRAMES)
    page.close()
    return f" {opened / 1000:8.2f} {frames:8.1f}"


def print_table(corpus: Path, repeat: int, browser: Browser | None) -> None:
    """Both programs."""
    head = f"{'':28} {'html s':>7} {'plan s':>7} {'MB':>7}"
    print(head + (f" {'opens s':>8} {'frames/s':>8}" if browser else ""))
    real = corpus / REFERENCE
    if real.exists():
        print_row(real.name, real / "module.hlo", real, repeat, browser)
    with tempfile.TemporaryDirectory() as folder:
        module, dump = Path(folder, "many.hlo"), Path(folder, "dump")
        module.write_text(many_buffers(BUFFERS), encoding="utf-8")
        cpu_seconds("plan", module, "-o", dump, "--backend", "cpu")
        print_row(f"{BUFFERS} buffers", module, dump, repeat, browser)


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--corpus", type=Path, default=ROOT.parent / "shared")
    arguments.add_argument("--repeat", type=int, default=3)
    options = arguments.parse_args()
    if importlib.util.find_spec("playwright") is None:
        print_table(options.corpus, options.repeat, None)
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - may not be there

    sys.path.insert(0, str(ROOT))
    from tools.install_browser import find_browser  # noqa: PLC0415 - needs playwright

    path = find_browser()
    with sync_playwright() as playwright:
        launch = playwright.chromium.launch
        browser = launch(executable_path=path, args=["--no-sandbox"]) if path else None
        print_table(options.corpus, options.repeat, browser)


if __name__ == "__main__":
    main()
