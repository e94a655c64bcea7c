"""The MCP server, asked by the SDK's own client."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from hlomem.agents.server import ask, build_server
from hlomem.base.errors import CommandError
from tests.places import ROOT

OOM = ROOT / "examples" / "oom"
SERVE = ROOT / "tests/goldens/jobs/serve.xplane.pb.gz"


def test_six_questions_are_answered_over_standard_input() -> None:
    async def talk() -> list[dict[str, Any]]:
        server = StdioServerParameters(command=sys.executable, args=["-m", "hlomem", "mcp"])
        async with Client(stdio_client(server)) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            before, after = str(OOM / "before"), str(OOM / "after")
            asked = {
                "what_takes_the_memory": {"dump": before, "capacity": "v5e"},
                "what_changed": {"before": before, "after": after},
                "what_would_help": {"program": before},
                "what_does_the_job_need": {"job": str(SERVE), "pool": "4GiB"},
                "why_out_of_memory": {"log": str(OOM / "error.txt")},
                "does_it_fit": {"factory": "nowhere.py:make", "target": "cpu"},
            }
            assert set(asked) == tools
            said = [await client.call_tool(name, words) for name, words in asked.items()]
            return [dict(answer.structured_content or {}) for answer in said]

    summary, diff, advice, job, oom, fits = asyncio.run(talk())
    assert summary["answer"]["space"]["size"] == 25_658_365_952
    assert diff["answer"]["delta"] == -9_780_084_224
    assert [one["rule"] for one in advice["answer"]["advice"]][:1] == ["donate"]
    assert job["exit_code"] == 1
    assert oom["answer"]["failure"]["moment"] == "compile"
    assert (fits["exit_code"], fits["answer"]) == (2, None)
    assert "nowhere.py" in fits["message"]


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    found = asyncio.run(ask(["summary", "--", str(OOM / "before")], timeout=0.001))
    assert found == {"exit_code": None, "answer": None, "message": "no answer in 0.001 s"}


def test_without_the_sdk_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(CommandError, match=r"pip install 'hlomem\[mcp\]'"):
        build_server(1.0)
