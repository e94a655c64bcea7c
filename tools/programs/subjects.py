"""The programs that orders are measured with, and the rule that says which.

Three groups, none of them chosen by what an order saves:

- `corpus`: every entry of the newest XLA for CPU in the corpus, as XLA scheduled it;
- `trials`: every function of the trials for CPU (a GPT's training step and what changes it, a
  convolutional network's, decoding, windows, lost donations), as users compile them;
- `ours`: the programs of `tools.programs.small`.

Of these, the programs count that have at least `MIN_BYTES` of temporaries in XLA's default order:
those the pass looks at unless it is told otherwise. What they come to with the smaller ones, which
the pass leaves alone, is said beside. A program that calls back into Python cannot be made from its
text, and is left out.
"""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hlomem.jax
from hlomem.jax.pass_ import log
from hlomem.jax.pass_.limits import Limits
from hlomem.jax.pass_.register import compiler_options
from hlomem.jax.pass_.transform import Transform
from hlomem.opt.constants import RECOMPUTE
from hlomem.opt.goal import Rules
from tools.programs.carried import carry
from tools.programs.parts import jax
from tools.programs.small import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.jax.pass_.log import Outcome
    from tools.programs.carried import CarriedProgram
    from tools.programs.parts import Program

MIN_BYTES = 1 << 16
TRIALS = Path(__file__).resolve().parents[2] / "tests" / "goldens" / "trials" / "cpu"
_CORPUS_GROUP = "corpus/cpu-0.12.0.1"
_CALLS_PYTHON = "python_cpu_callback"
_BESIDE = ("jit_stage", "jit__threefry_seed")
"""Small programs that JAX compiles along with those of the trials."""
_FLAGGED = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


class Subject(NamedTuple):
    """A program to be measured."""

    group: str
    name: str
    arguments: Any
    """As shapes."""
    compile: Callable[[], Any]
    """In XLA's default order."""
    compile_flagged: Callable[[], Any]
    """By XLA's memory-optimised scheduler."""
    compile_better: Callable[[str], tuple[Any, Outcome]]
    """With the pass, at an effort."""


def iter_subjects(corpus: Path, is_wanted: Callable[[str, str], bool]) -> Iterator[Subject]:
    """The three groups; only what is wanted, by group and name, is made."""
    for path in sorted(corpus.glob(f"{_CORPUS_GROUP}/*/module.hlo")):
        text = path.read_text(encoding="utf-8")
        if _CALLS_PYTHON not in text and is_wanted("corpus", path.parent.name):
            yield _carried("corpus", path.parent.name, text)
    for path in sorted(TRIALS.glob("*/*.cpu_after_optimizations.txt*")):
        function = path.name.split(".")[1]
        name = f"{path.parent.name} {function.removeprefix('jit_')}"
        if function not in _BESIDE and is_wanted("trials", name):
            packed = path.read_bytes()
            text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode()
            yield _carried("trials", name, text)
    for name, program in PROGRAMS.items():
        if is_wanted("ours", name):
            yield _written(name, program)


def _carried(group: str, name: str, text: str) -> Subject:
    program = carry(text)
    return Subject(
        group,
        name,
        program.arguments,
        program.compile,
        partial(program.compile_with, _FLAGGED),
        partial(_compile_carried, program),
    )


def _compile_carried(program: CarriedProgram, effort: Any) -> tuple[Any, Outcome]:
    # One process has all devices of these programs, so that collectives may change places.
    rules = Rules(effort, may_reorder_collectives=True, recompute=RECOMPUTE)
    transform = Transform("cpu", compiler_options("cpu"), rules, Limits(MIN_BYTES, 50_000))
    log.forget()
    compiled = program.compile(transform)
    [outcome] = log.report().outcomes
    return compiled, outcome


def _written(name: str, program: Program) -> Subject:
    function = jax.jit(program.function, donate_argnums=program.donated)

    def compile_plain(options: Any = None) -> Any:
        jax.clear_caches()
        return function.lower(*program.arguments).compile(compiler_options=options)

    def compile_better(effort: Any) -> tuple[Any, Outcome]:
        log.forget()
        with hlomem.jax.optimize(effort=effort, min_bytes=MIN_BYTES):
            compiled = function.lower(*program.arguments).compile()
        [outcome] = log.report().outcomes
        return compiled, outcome

    return Subject(
        "ours",
        name,
        program.arguments,
        compile_plain,
        partial(compile_plain, _FLAGGED),
        compile_better,
    )
