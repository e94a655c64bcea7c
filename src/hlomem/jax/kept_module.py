"""A factory's program with the module kept that the compiler hands to passes.

In: another factory, its settings, and a file. Out: that factory's program; while it is compiled,
the scheduled module is written to the file. The compiler goes on with its own order. A policy of
`jax.checkpoint` may be put around a place of the program.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hlomem.jax.checkpoints import Checkpoints
from hlomem.jax.compiles import module_name
from hlomem.jax.factories import find_factory, make_program
from hlomem.jax.module_proto import name_of
from hlomem.jax.target_kinds import parse_target

if TYPE_CHECKING:
    from hlomem.jax.checkpoints import Place
    from hlomem.jax.factories import FactoryProgram
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
    """The factory: the other one's program, lowered.

    With a policy `jax.checkpoint` is put around a place of it, and what places there are goes to a
    file beside the module's.
    """
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

    extension: Any = import_module("jax.extend.xla")
    extension.register_hlo_module_transformation(
        keep, name=_HOOK, stage=extension.PipelineStage.POST_SCHEDULER, platforms=aim.family
    )
    return made.lowered


def _checkpointed(
    factory: str, aim: Target, settings: dict[str, Any], output: str, checkpoints: Checkpoints
) -> FactoryProgram:
    checkpoints.install()
    own = find_factory(factory)
    made = make_program(own, {**settings, **checkpoints.settings_of(own)}, aim)
    Path(f"{output}{PLACES}").write_bytes(msgspec.json.encode(checkpoints.places))
    return made
