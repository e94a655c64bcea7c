"""Reading a program's proto against jaxlib's own reading: CPU time and peak memory, in one run.

    python -m bench.bench_proto [MODULE.pb] [--corpus ../shared] [--repeat 5]

Needs jaxlib beside hlomem; without MODULE.pb it makes one from the corpus' Llama 3.1 8B. "module"
is the program as it is planned from, bodies of fusions unread; "opened" has read those, too, which
is what jaxlib makes of it. Times are the best of some turns in which all take part, and ratios are
to jaxlib's: the bar is at most 0.5 for time and 0.33 for memory. Memory is what a fresh process
that reads one file grows by at most while it does so, imports apart.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REFERENCE = "real/cpu/hlo_llama31_8b_bf16_1x8/module.hlo"
_PEAK = """
import sys
from pathlib import Path
def held(which):
    return int(Path("/proc/self/status").read_text().split(which + ":")[1].split()[0]) / 1024
data = Path(sys.argv[1]).read_bytes()
{imports}
before = held("VmRSS")
result = {work}
print(held("VmHWM") - before)
"""
_READ = "from hlomem.proto.module import read_module; from hlomem.proto import schema"
_WORKS = {
    "module": (f"{_READ}; schema.message_types()", "read_module(data)"),
    "opened": (f"{_READ}; schema.message_types()", "[read_module(data)]; result[0].open_all()"),
    "jaxlib": ("from jaxlib import _hlo", "_hlo.HloModule.from_serialized_hlo_module_proto(data)"),
}


def cpu_time(work: Callable[[], object]) -> float:
    """CPU seconds of one run; what an earlier one left behind is collected before."""
    gc.collect()
    start = time.process_time()
    result = work()
    seconds = time.process_time() - start
    del result
    return seconds


def measure(data: bytes, repeat: int) -> dict[str, float]:
    """The best times; all take turns, so that noise hits all."""
    from jaxlib import _hlo  # noqa: PLC0415 - only here

    from hlomem.proto.module import read_module  # noqa: PLC0415 - beside it

    works: dict[str, Callable[[], object]] = {
        "module": lambda: read_module(data),
        "opened": lambda: read_module(data).open_all(),
        "jaxlib": lambda: _hlo.HloModule.from_serialized_hlo_module_proto(data),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeat):
        best = {name: min(best[name], cpu_time(work)) for name, work in works.items()}
    return best


def peak_memory(which: str, path: Path) -> float:
    """Megabytes by which a fresh process grows at most."""
    imports, work = _WORKS[which]
    script = _PEAK.format(imports=imports, work=work)
    command = [sys.executable, "-c", script, str(path)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def make_reference(corpus: Path, folder: Path) -> Path:
    """The proto of the corpus' largest program, as jaxlib writes it."""
    from jaxlib import _hlo  # noqa: PLC0415 - only here

    module = _hlo.hlo_module_from_text((corpus / REFERENCE).read_text())
    path = folder / "module.pb"
    path.write_bytes(module.as_serialized_hlo_module_proto())
    return path


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--corpus", type=Path, default=Path("../shared"))
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.path or make_reference(options.corpus, Path(folder))
        times = measure(path.read_bytes(), options.repeat)
        grown = {name: peak_memory(name, path) for name in times}
        for name, seconds in times.items():
            time_ratio = seconds / times["jaxlib"]
            memory_ratio = grown[name] / grown["jaxlib"]
            print(
                f"{name:<8} {seconds:7.3f} s  ratio {time_ratio:5.2f}"
                f"  {grown[name]:7.1f} MB  ratio {memory_ratio:5.2f}"
            )


if __name__ == "__main__":
    main()
