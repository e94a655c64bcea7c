"""Runs random programs with and without values computed again, and compares all results to the bit.

    python -m tools.check_recompute [--count 1000] [--seed 0] [--wrong 3]

Each program of `tools.random_programs` is compiled by XLA:CPU as it is and with
`hlomem.jax.optimize(fit=…)` for a random share of its temporaries, and both are run. Then `--wrong`
wrong edits of what was handed over are made, each reading another value of the same shape
somewhere, or another number, and a judge must refuse each; one that is let pass is run, and must
give the same bits: another value may be an equal one. Needs jax 0.10.2 or later. XLA compiles
kernels for where their buffers lie, and may round otherwise: results that differ in last bits are
counted (`last bits`). The exit code is 1 if a result differs otherwise, a program needs more than
XLA's or more than a few scalars other than was said, something failed, or a wrong edit was let
pass.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from functools import partial
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any

import hlomem.jax
from hlomem import hlo
from hlomem.base.errors import HlomemError
from hlomem.jax.pass_ import answer_search, compiler, log
from hlomem.jax.pass_.compiler import write_candidate
from hlomem.jax.pass_.register import compiler_options
from hlomem.opt.checks.edit import find_edit_problems
from hlomem.opt.checks.equivalence import find_meaning_problems
from hlomem.opt.search import new_findings
from hlomem.proto.edit import name_of
from tools.programs.carried import proto_of, text_of
from tools.random_programs import arguments, make_program
from tools.spoiling import spoil

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.opt.candidate import Candidate
    from tools.random_programs import RandomProgram

jax: Any = import_module("jax")
numpy: Any = import_module("numpy")
_WRITER = "write_candidate"
_HOOK = "hlomem-check"
_LAST_BITS = 1e-6
"""The share of a result's largest number by which rounding otherwise may change it."""
_FEW_SCALARS = 256
"""Bytes that places of scalars differ by, where lists of equal buffers have another order."""


def check(seed: int, wrong: int) -> Counter[str]:
    """One program; what came of it, by word."""
    program, given = make_program(seed), arguments()
    handed: list[tuple[bytes, bytes]] = []

    def keep(candidate: Candidate) -> bytes:
        answer = write_candidate(candidate)
        if candidate.edit is not None:
            handed.append((candidate.given.data, answer))
        return answer

    compiled = jax.jit(program.function, donate_argnums=program.donated)
    jax.clear_caches()
    plain = compiled.lower(*given).compile()
    log.forget()
    for module in (answer_search, compiler):  # to see what is handed over
        setattr(module, _WRITER, keep)
    try:
        limit = _limit(plain, program)
        with hlomem.jax.optimize(fit=limit, min_bytes=1 << 10, platforms="cpu", effort="low"):
            fitted = compiled.lower(*given).compile()
    finally:
        for module in (answer_search, compiler):
            setattr(module, _WRITER, write_candidate)
    outcome = log.report().outcomes[-1]
    expected = _results(plain, given)
    found = Counter({f"kind {program.kind}": 1, outcome.kind: 1})
    found["fits"] += outcome.kind == "improved" and not outcome.missing
    found["computed again"] += bool(outcome.clones or outcome.stacks)
    found["other loops"] += bool(outcome.stacks)
    after = fitted.memory_analysis().temp_size_in_bytes
    found["FAILED"] += outcome.kind == "failed" or "rejected" in outcome.reason
    found[_difference(_results(fitted, given), expected)] += 1
    found["LARGER"] += after > plain.memory_analysis().temp_size_in_bytes
    if outcome.kind == "improved" and after != outcome.after:
        is_small = abs(after - outcome.after) <= _FEW_SCALARS
        found["scalars elsewhere" if is_small else "NOT AS SAID"] += 1
    if handed and wrong:
        chance = Random(seed)  # noqa: S311 - no secrets
        run = partial(_run_instead, program, given)
        found += _check_wrong(*handed[-1], chance, wrong, run, expected)
    return found


def _limit(plain: Any, program: RandomProgram) -> int:
    sizes = plain.memory_analysis()
    rest = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return int(rest + program.share * sizes.temp_size_in_bytes)


def _results(compiled: Any, given: tuple[Any, ...]) -> list[Any]:
    leaves = jax.tree.leaves(compiled(*[jax.numpy.array(one) for one in given]))
    return [numpy.asarray(leaf) for leaf in leaves]


def _difference(found: list[Any], expected: list[Any]) -> str:
    """How results differ, in a word."""
    pairs = list(zip(found, expected, strict=True))
    if all(one.tobytes() == other.tobytes() for one, other in pairs):
        return "equal bits"
    scales = [float(numpy.abs(other).max()) for _, other in pairs]
    is_close = all(
        float(numpy.abs(one - other).max()) <= _LAST_BITS * scale
        for (one, other), scale in zip(pairs, scales, strict=True)
    )
    return "last bits" if is_close else "OTHER BITS"


def _check_wrong(
    before: bytes,
    after: bytes,
    chance: Random,
    count: int,
    run: Callable[[bytes], list[Any]],
    expected: list[Any],
) -> Counter[str]:
    """Wrong edits of a module that was handed over, each to be refused."""
    given, text = hlo.parse(text_of(before)), text_of(after)
    right = hlo.parse(text)
    found: Counter[str] = Counter()
    for _ in range(count):
        changed = spoil(text, chance)
        if changed is None:
            continue
        found["wrong"] += 1
        try:
            edited = hlo.parse(changed)
            edited.validate()
        except HlomemError:
            found["wrong refused"] += 1
            continue
        if (
            find_edit_problems(right, edited)
            or find_meaning_problems(given, edited)
            or new_findings(edited, right, compiler_options("cpu"))
        ):
            found["wrong refused"] += 1
        else:
            found[_run_wrong(partial(run, proto_of(changed)), expected)] += 1
    return found


def _run_wrong(run: Callable[[], list[Any]], expected: list[Any]) -> str:
    """The end of an edit that no judge refused, in a word."""
    try:
        results = run()
    except jax.errors.JaxRuntimeError:
        return "wrong refused by XLA"
    is_same = _difference(results, expected) != "OTHER BITS"
    return "wrong by its text alone" if is_same else "LET PASS"


def _run_instead(program: RandomProgram, given: tuple[Any, ...], module: bytes) -> list[Any]:
    """The results of a module put in the place of a program's."""
    extension: Any = import_module("jax.extend.xla")
    stage = extension.PipelineStage.POST_SCHEDULER
    name = name_of(module)
    extension.register_hlo_module_transformation(
        lambda other: module if name_of(bytes(other)) == name else None,
        name=_HOOK,
        stage=stage,
        platforms="cpu",
    )
    try:
        jax.clear_caches()
        compiled = jax.jit(program.function, donate_argnums=program.donated)
        return _results(compiled.lower(*given).compile(), given)
    finally:
        extension.clear_hlo_module_transformation(_HOOK, stage=stage, platforms="cpu")


def main(arguments: Sequence[str]) -> int:
    """Check; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wrong", type=int, default=3)
    options = parser.parse_args(arguments)
    total: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        found = check(seed, options.wrong)
        total += found
        if seed % 50 == 49:
            print(f"{seed + 1 - options.seed} done", file=sys.stderr, flush=True)
        faults = [word for word in found if word.isupper() and found[word]]
        if faults:
            print(f"seed {seed}: {', '.join(faults)}", flush=True)
    print(", ".join(f"{word} {count}" for word, count in sorted(total.items())))
    return int(any(word.isupper() and total[word] for word in total))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
