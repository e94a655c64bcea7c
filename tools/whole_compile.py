"""A factory's program compiled whole, without a dump: `python -m tools.whole_compile JOB`.

JOB is the JSON of a `Job`. Prints one line of JSON: what the compiler says the program needs, or
the first line of its refusal, and CPU seconds of the compile and of all.
"""

from __future__ import annotations

import json
import os
import resource
import sys

import msgspec

from hlomem.jax.compile.factories import find_factory, make_program
from hlomem.jax.compile.messages import TARGET, Job
from hlomem.jax.compile.parent import environment_of
from hlomem.jax.target_kinds import parse_target


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Compile, and print."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    target = parse_target(job.target)
    os.environ.update({**environment_of(target), TARGET: target.name})
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as Python does for a script
    output = os.dup(1)
    os.dup2(2, 1)  # what a stack prints is not the answer
    program = make_program(find_factory(job.factory), job.settings, target)
    began = _seconds()
    answer: dict[str, object] = {"refusal": ""}
    try:
        compiled = program.lowered.compile(compiler_options=dict(program.compiler_options))
        stats = compiled.memory_analysis()
        answer["total"] = int(stats.total_allocation_bytes)
        answer["code"] = int(stats.generated_code_size_in_bytes)
    except RuntimeError as error:  # JaxRuntimeError is one
        answer["refusal"] = str(error).partition("\n")[0]
    answer["compile_seconds"] = round(_seconds() - began, 1)
    answer["seconds"] = round(_seconds(), 1)
    os.write(output, json.dumps(answer).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main()
