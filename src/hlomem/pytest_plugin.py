"""A pytest plugin: tests that fail if compiled programs need too much memory.

    @pytest.mark.limit_hbm("14 GiB", target="tpu-v5e:1x1")
    def test_train_step(hbm):
        hbm(train_step, params, batch, jit={"donate_argnums": 0})

The fixture `hbm` measures programs; the mark `limit_hbm` limits them, or every program compiled by
a test without the fixture. Measurements are compared with a baseline, a file written by
`--hlomem-update`. With pytest-xdist, workers measure and the controller writes. Only pytest is
imported until a test uses the plugin.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from hlomem.api.explain import MemoryExplanation
    from hlomem.testing.session import Session

_PROPERTY = "hlomem"
"""The report property that carries a measurement."""
_MARK = "limit_hbm"
_SESSION = pytest.StashKey["Session"]()
_DEFAULTS = {
    "baseline": ("hlomem-baseline.json", "the file with the expected memory of programs"),
    "tolerance": ("1%", "the allowed increase over the baseline: 2%, 10MiB"),
    "programs": ("", "a folder with the baseline's programs, for detailed differences"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options, each also a configuration setting."""
    group = parser.getgroup("hlomem", "memory of compiled programs (hlomem)")
    group.addoption(
        "--hlomem-update", action="store_true", help="write the measurements to the baseline"
    )
    group.addoption(
        "--hlomem-summary",
        metavar="FILE",
        help="write a Markdown table; GitHub Actions always get it in their summary",
    )
    for name, (default, what) in _DEFAULTS.items():
        group.addoption(f"--hlomem-{name}", metavar=name.upper(), help=f"{what} [{default}]")
        parser.addini(f"hlomem_{name}", what, default=default)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARK}(limit=None, *, target=None): fail if a program needs more memory than this,"
        " by default the memory of the target's chip (hlomem)",
    )


def _setting(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"hlomem_{name}")
    return str(config.getini(f"hlomem_{name}") if given is None else given)


def _session(config: pytest.Config) -> Session:
    found = config.stash.get(_SESSION, None)
    if found is None:
        from hlomem.testing.session import Session, Settings  # noqa: PLC0415 - only when used

        programs = _setting(config, "programs")
        settings = Settings(
            root=config.rootpath,
            baseline=config.rootpath / _setting(config, "baseline"),
            tolerance=_setting(config, "tolerance"),
            updates=bool(config.getoption("hlomem_update")),
            programs=config.rootpath / programs if programs else None,
        )
        found = config.stash[_SESSION] = Session(settings)
    return found


@pytest.fixture
def hbm(request: pytest.FixtureRequest) -> Meter:
    """Measures the memory of programs, and fails the test if it is too much."""
    return Meter(request.node)


class Meter:
    """Measures the programs of a test."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._mark = item.get_closest_marker(_MARK)
        self._keys: set[str] = set()

    def __call__(
        self,
        function: Any,
        /,
        *arguments: Any,
        name: str = "",
        target: str | None = None,
        jit: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> MemoryExplanation:
        """Compile as `hlomem.jax.memory` does, and check; `name` tells a test's programs apart.

        A factory of `hlomem compile`, given by name, is called with `settings`.
        """
        __tracebackhide__ = True
        from hlomem.base.errors import HlomemError  # noqa: PLC0415 - only when used
        from hlomem.jax.verdicts import memory_of  # noqa: PLC0415 - only when used

        chosen = target or self._marked("target")
        try:
            found = memory_of(
                function, *arguments, target=chosen, jit=jit, settings=settings, **keywords
            )
        except HlomemError as error:
            pytest.fail(f"hlomem: {error}", pytrace=False)
        return self.check(found, name=name, target=chosen)

    def check(
        self, memory: MemoryExplanation, *, name: str = "", target: str | None = None
    ) -> MemoryExplanation:
        """Check the memory of a program."""
        __tracebackhide__ = True
        from hlomem.base.errors import HlomemError  # noqa: PLC0415 - only when used
        from hlomem.testing.session import SourceLine, parse_hbm_limit  # noqa: PLC0415 - only when used

        path, line, _ = self._item.location
        try:
            limit = parse_hbm_limit(self._marked("limit"))
            if limit is None and target is not None:
                from hlomem.jax.verdicts import limit_on  # noqa: PLC0415 - only when used

                limit = limit_on(target)
            session = _session(self._item.config)
            where = SourceLine(path, (line or 0) + 1)
            entry = session.check(self._key(name), memory, where, target=target, limit=limit)
        except HlomemError as error:
            pytest.fail(f"hlomem: {error}", pytrace=False)
        import msgspec  # noqa: PLC0415 - only when used

        self._item.user_properties.append((_PROPERTY, msgspec.to_builtins(entry)))
        if entry.problems:
            problems = "\n".join(entry.problems)
            pytest.fail(f"hlomem: {problems}\n{entry.key}", pytrace=False)
        return memory

    @property
    def has_measured(self) -> bool:
        """Whether a program was checked."""
        return bool(self._keys)

    def _marked(self, name: str) -> Any:
        if self._mark is None:
            return None
        if name == "limit" and self._mark.args:
            return self._mark.args[0]
        return self._mark.kwargs.get(name)

    def _key(self, name: str) -> str:
        """The test, with a name or a number for further programs."""
        key = f"{self._item.nodeid}#{name}" if name else self._item.nodeid
        number = 1
        while key in self._keys:
            number += 1
            key = f"{self._item.nodeid}#{name or number}" + (f"-{number}" if name else "")
        self._keys.add(key)
        return key


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Measure every program compiled by a marked test without the fixture."""
    mark = item.get_closest_marker(_MARK)
    if mark is None:
        return (yield)
    if "hbm" in getattr(item, "fixturenames", ()):
        return (yield from _measured(item))
    if mark.kwargs.get("target") is not None:
        pytest.fail("hlomem: a target is for programs that the fixture `hbm` compiles", False)
    from hlomem.jax.capture import captured  # noqa: PLC0415 - only when used

    with captured() as compiles:
        result = yield
    if compiles.largest is not None:
        Meter(item).check(compiles.largest.explanation)
    return result


def _measured(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run a marked test that has the fixture, which must measure something."""
    result = yield
    meter = getattr(item, "funcargs", {}).get("hbm")
    if isinstance(meter, Meter) and not meter.has_measured:
        problem = "nothing was measured: the test never calls `hbm`"
        pytest.fail(f"hlomem: {problem}, so its limit holds for nothing", pytrace=False)
    return result


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


class _Collector:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, dict):
                _session(self._config).add(value)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Collect measurements in the controlling process."""
    if not _is_worker(session.config):
        session.config.pluginmanager.register(_Collector(session.config), "hlomem-collector")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the measurements, and write the requested files."""
    session = config.stash.get(_SESSION, None)
    if session is None or not session.entries or _is_worker(config):
        return
    from hlomem.base.errors import HlomemError  # noqa: PLC0415 - only when used
    from hlomem.testing.session import draw_annotations, draw_table  # noqa: PLC0415 - only when used

    entries = list(session.entries.values())
    terminalreporter.section("memory", sep="-")
    for line in _lines(session):
        terminalreporter.write_line(line)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in draw_annotations(entries):
            terminalreporter.write_line(line)
    try:
        _write_table(config, draw_table(entries))
        if session.settings.updates:
            session.write_baseline()
            terminalreporter.write_line(f"written to {session.settings.baseline}")
    except (HlomemError, OSError) as error:
        raise pytest.UsageError(f"hlomem: {error}") from error


def _lines(session: Session) -> Generator[str, None, None]:
    from hlomem.base.sizes import format_bytes  # noqa: PLC0415 - only when used

    for key, entry in sorted(session.entries.items()):
        note = entry.note or ("" if entry.before else "not in the baseline")
        size = format_bytes(entry.measurement.bytes)
        yield f"{size:>11}  {entry.measurement.target}  {key}" + (f"  ({note})" if note else "")


def _write_table(config: pytest.Config, text: str) -> None:
    given = config.getoption("hlomem_summary")
    if given is not None:
        from hlomem.base.atomic_files import write_files  # noqa: PLC0415 - only when used

        path = Path(given)
        write_files(path.parent, {path.name: [text.encode()]}, force=True)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)
