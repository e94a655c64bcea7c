"""`hlomem.jax.job()`: a loop that runs, recorded as a log of what it does with memory.

    with hlomem.jax.job("train") as job:
        state = job.call(init, key)
        state, loss = job.call(step, state, job.put(batch), donate=(0,))
    job.write("train.job.json")        # hlomem job train.job.json --pool 40GiB
    print(job.report(40 << 30))

The log has XLA's own plan of every program, so that the job is forecast in any other pool.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from hlomem.base.atomic_files import write_files
from hlomem.jax.compiled_programs import plan_of_compiled
from hlomem.jax.job_script import JobScript
from hlomem.job.forecast import requests_of_log
from hlomem.job.log import AnyEntry, JobLog, encode_log
from hlomem.job.report import report_job
from hlomem.machines.registry import find_device
from hlomem.report.screens.forecast_text import draw_forecast
from hlomem.report.screens.text import PIPED_WIDTH, plain

if TYPE_CHECKING:
    from hlomem.job.report import JobReport


STATS = (
    "num_allocs", "bytes_in_use", "peak_bytes_in_use", "bytes_limit", "bytes_reserved",
    "largest_alloc_size", "largest_free_block_bytes", "pool_bytes", "peak_pool_bytes",
)  # fmt: skip
"""The figures of an allocator that are kept."""


def job(name: str = "job", device: Any = None) -> JobRecording:
    """Record a loop that runs on a device, by default the first of this process."""
    return JobRecording(name, device)


class JobRecording(JobScript):
    """A loop that runs, and its log."""

    def __init__(self, name: str = "job", device: Any = None) -> None:
        super().__init__(name)
        self.device = device or self._jax.local_devices()[0]
        self.marks: list[dict[str, Any]] = []
        """The allocator's figures at each mark; a device without any has none."""
        self.plans: dict[str, dict[str, int]] = {}
        """By program what XLA says it reserves (`memory_analysis`)."""
        self.compiled: dict[str, Any] = {}
        """By program its executable."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.mark("end")

    def mark(self, name: str) -> None:
        """Give this point of the loop a name, and keep the allocator's figures."""
        annotation = self._jax.profiler.TraceAnnotation(f"mark:{name}")
        with annotation:
            stats = self.device.memory_stats() or {}
        kept = {key: stats[key] for key in STATS if key in stats}
        self.marks.append({"name": name, "entry": len(self.log), **kept})
        super().mark(name)

    def _put_leaf(self, value: Any) -> Any:
        if isinstance(value, self._jax.ShapeDtypeStruct):
            value = import_module("numpy").zeros(value.shape, value.dtype)
        return self._jax.device_put(value, self.device)

    def _compile(self, lowered: Any, name: str) -> Any:
        with self._jax.profiler.TraceAnnotation(f"compile:{name}"):
            compiled = lowered.compile()
        analysis = compiled.memory_analysis()
        self.plans[name] = {
            key: int(getattr(analysis, key)) for key in dir(analysis) if key.endswith("_in_bytes")
        }
        self.compiled[name] = compiled
        return compiled

    def _run(self, program: str, compiled: Any, arguments: tuple[Any, ...]) -> Any:
        with self._jax.profiler.TraceAnnotation(f"call:{program}"):
            return compiled(*arguments)

    def _wait(self, values: tuple[Any, ...]) -> None:
        self._jax.block_until_ready(values)

    def job_log(self) -> JobLog:
        """The log so far, with the plan of every program."""
        machine = find_device(self.device.platform, self.device.device_kind)
        has_bfc = machine is not None and machine.has_bfc
        return JobLog(
            name=self.name,
            entries=tuple(msgspec.convert(self.log, list[AnyEntry])),
            programs={
                name: plan_of_compiled(name, compiled, has_bfc)
                for name, compiled in self.compiled.items()
            },
            has_bfc=has_bfc,
            platform=self.device.platform,
            pool_share=1.0 if machine is None else machine.pool_share,
            made_by=f"{self.device.device_kind}, jax {self._jax.__version__}",
        )

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Write the log, which `hlomem job` reads."""
        target = Path(path)
        content = [encode_log(self.job_log())]
        write_files(target.parent, {target.name: content}, force=force)

    def report(self, pool: int, *, grows: bool = False, tunes: bool = True) -> ShownJob:
        """The job in a pool of so many bytes."""
        return ShownJob(report_job(requests_of_log(self.job_log(), tunes=tunes), pool, grows=grows))


class ShownJob:
    """A job in a pool; printed, it is the screen of `hlomem job`."""

    def __init__(self, data: JobReport) -> None:
        self.data = data

    def __str__(self) -> str:
        return plain(draw_forecast(self.data, PIPED_WIDTH))
