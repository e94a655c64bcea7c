"""The server of the Model Context Protocol: six questions, each answered by a command's `--json`.

A tool runs the command in a process of its own, so that nothing it imports stays in the server.
The answer has `exit_code`, `answer` (the command's JSON) and `message` (its standard error).
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlomem import __version__
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, CommandError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

INSTRUCTIONS = """Memory of programs compiled by XLA (JAX, PyTorch/XLA, vLLM on TPU or GPU).
Sizes are bytes. exit_code 0: fine; 1: a finding, such as a program that does not fit; 2: wrong
arguments; 3: input that cannot be read, and `message` says what to do. FACTORY is FILE.py:FUNCTION,
which returns (function, arguments) or a jax.stages.Lowered; its file is imported and its function
called, so give only code you would run. Numbers of advice are promises only if `method` says that
the change was compiled or planned; what has no bytes was not tried."""
_HOME = str(Path(__file__).parents[2])
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from hlomem.cli import main; sys.exit(main())"
)


async def ask(words: list[str], timeout: float) -> dict[str, Any]:
    """Run a command with --json in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", _START, _HOME, words[0], "--json", *words[1:]),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), timeout)
    except TimeoutError:
        process.kill()
        await process.wait()
        return {"exit_code": None, "answer": None, "message": f"no answer in {timeout:g} s"}
    is_answer = process.returncode in {EXIT_OK, EXIT_FINDING} and bool(out.strip())
    return {
        "exit_code": process.returncode,
        "answer": json.loads(out) if is_answer else None,
        "message": err.decode(errors="replace").strip(),
    }


def _options(**values: str | float | None) -> list[str]:
    return [word for name, value in values.items() if value for word in (f"--{name}", str(value))]


def _settings(settings: dict[str, str | int | float | bool] | None) -> list[str]:
    return [
        word for name, value in (settings or {}).items() for word in ("--set", f"{name}={value}")
    ]


def build_server(timeout: float) -> MCPServer[Any]:
    """The server with its tools; `mcp` is an extra."""
    try:
        from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - an extra
        from mcp_types import ToolAnnotations  # noqa: PLC0415
    except ImportError as error:
        raise CommandError("the server needs the MCP SDK: pip install 'hlomem[mcp]'") from error
    server: MCPServer[Any] = MCPServer("hlomem", version=__version__, instructions=INSTRUCTIONS)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    @server.tool(annotations=reads)
    async def does_it_fit(
        factory: str,
        target: str,
        settings: dict[str, str | int | float | bool] | None = None,
        capacity: str = "",
    ) -> dict[str, Any]:
        """Compile FACTORY for a target that need not be here (tpu-v5e:2x2, cuda-h100:8): needs, by
        role and line, and whether it fits. Runs the factory's code."""
        words = ["compile", *_options(target=target, capacity=capacity), *_settings(settings)]
        return await ask([*words, "--", factory], timeout)

    @server.tool(annotations=reads)
    async def what_takes_the_memory(
        dump: str, capacity: str = "", space: str = "", module: str = ""
    ) -> dict[str, Any]:
        """Show what a program needs, by role, its peak and the lines alive there. DUMP: a folder of
        --xla_dump_to, a profile, a compilation cache, an HLO module or proto."""
        options = _options(capacity=capacity, space=space, module=module)
        return await ask(["summary", *options, "--", dump], timeout)

    @server.tool(annotations=reads)
    async def what_changed(before: str, after: str, by: str = "line") -> dict[str, Any]:
        """Tell why two compiles of one program differ: causes, and rows that add up."""
        return await ask(["diff", *_options(by=by), "--", before, after], timeout)

    @server.tool(annotations=reads)
    async def what_would_help(
        program: str,
        target: str = "",
        fit: str = "",
        settings: dict[str, str | int | float | bool] | None = None,
    ) -> dict[str, Any]:
        """Find changes that reduce memory. Of a FACTORY (with a target) every change is compiled,
        `fit` finds the cheapest set that fits a chip or a size. Of a dump, bytes are given only for
        what was planned again."""
        words = ["advise", *_options(target=target, fit=fit), *_settings(settings)]
        return await ask([*words, "--", program], timeout)

    @server.tool(annotations=reads)
    async def what_does_the_job_need(
        job: str, target: str = "", pool: str = "", largest: str = ""
    ) -> dict[str, Any]:
        """Tell whether a whole job fits a GPU: JOB is FILE.py:FUNCTION of a job, a log of it, or a
        profile (.xplane.pb) to replay in another pool."""
        options = _options(target=target, pool=pool, largest=largest)
        return await ask(["job", *options, "--", job], timeout)

    @server.tool(annotations=reads)
    async def why_out_of_memory(log: str) -> dict[str, Any]:
        """Explain an out-of-memory error of XLA: a log's path, or the message itself."""
        return await ask(["oom", "--", log], timeout)

    return server
