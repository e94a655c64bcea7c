"""A factory's program with the module kept that the compiler hands to passes.

In: another factory, its settings, and a file. Out: that factory's program; while it is compiled,
the scheduled module is written to the file. The compiler goes on with its own order.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from hlomem.jax.compiles import module_name
from hlomem.jax.factories import find_factory, make_program
from hlomem.jax.module_proto import name_of
from hlomem.jax.target_kinds import parse_target

FACTORY = f"{__name__}:program"
_HOOK = "hlomem-capture"


def program(factory: str, target: str, settings: dict[str, Any], output: str) -> Any:
    """The factory: the other one's program, lowered."""
    aim = parse_target(target)
    made = make_program(find_factory(factory), settings, aim)
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
