"""A factory's program; while it is compiled, the module handed to passes is written to a file.

A policy of `jax.checkpoint` may be put around a part of the program.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from hlomem.base.source import visible
from hlomem.jax.checkpoints import Checkpoints
from hlomem.jax.compile.factories import find_factory, make_program
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import CompileError, plan_in_child
from hlomem.jax.compile.with_dump import module_name
from hlomem.jax.pass_.hook import put_pass
from hlomem.jax.target_kinds import parse_target
from hlomem.proto.edit import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.jax.checkpoints import Place
    from hlomem.jax.compile.factories import FactoryProgram
    from hlomem.jax.compile.parent import PlannedProgram
    from hlomem.jax.target_kinds import Target

FACTORY = f"{__name__}:program"
PLACES = ".places"
"""How the name of the file with the program's places ends."""
_HOOK = "hlomem-capture"


def program(
    factory: str,
    target: str,
    settings: dict[str, Any],
    output: str,
    policy: str = "",
    place: Place = "gradient",
) -> Any:
    """The factory: the program of the other one, lowered, with `jax.checkpoint` by a policy."""
    aim = parse_target(target)
    made = (
        _checkpointed(factory, aim, settings, output, Checkpoints(policy, place))
        if policy
        else make_program(find_factory(factory), settings, aim)
    )
    wanted = module_name(made.lowered)

    def keep(proto: bytes) -> None:
        if name_of(bytes(proto)) == wanted:
            partial = Path(f"{output}.part")
            partial.write_bytes(bytes(proto))
            partial.replace(output)

    put_pass(import_module("jax.extend.xla"), keep, _HOOK, aim.family)
    return made.lowered


def _checkpointed(
    factory: str, aim: Target, settings: dict[str, Any], output: str, checkpoints: Checkpoints
) -> FactoryProgram:
    checkpoints.install()
    own = find_factory(factory)
    made = make_program(own, {**settings, **checkpoints.settings_of(own)}, aim)
    Path(f"{output}{PLACES}").write_bytes(msgspec.json.encode(checkpoints.places))
    return made


def capture(
    job: Job, timeout: float, on_progress: Callable[[str], None]
) -> tuple[PlannedProgram, bytes]:
    """The compiler's plan of its own order, and the module it handed to passes."""
    with TemporaryDirectory(prefix="hlomem-") as folder:
        file = Path(folder) / "module.pb"
        return capture_into(file, job, timeout, on_progress)


def capture_into(
    file: Path,
    job: Job,
    timeout: float,
    on_progress: Callable[[str], None],
    checkpoint: Mapping[str, str] | None = None,
) -> tuple[PlannedProgram, bytes]:
    """The same by a file; with `policy` and `place` of a `checkpoint` its places lie beside it."""
    settings = {
        "factory": job.factory,
        "target": job.target,
        "settings": job.settings,
        "output": str(file),
        **(checkpoint or {}),
    }
    errand = Job(factory=FACTORY, target=job.target, settings=settings, imports=job.imports)
    try:
        planned = plan_in_child(errand, timeout=timeout, on_progress=on_progress)
    except CompileError as error:  # the user's factory is what failed, not ours around it
        raise CompileError(str(error).replace(FACTORY, visible(job.factory))) from error
    if not file.exists():
        problem = f"the compiler for {job.target} handed its module to no pass"
        raise CompileError(f"{problem}; jax 0.10.2 and later do")
    return planned, file.read_bytes()
