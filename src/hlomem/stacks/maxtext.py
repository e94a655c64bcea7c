"""MaxText's own train step: a config file, a recipe or a command line in, its program out.

    hlomem fit hlomem.stacks.maxtext:train_step --target tpu-v5e:16 --set model_name=llama2-7b \\
        --max per_device_batch_size --over mesh=auto --axes fsdp,tensor

Settings are MaxText's own. `maxtext.trainers.pre_train.train_compile` does the work, up to the
compile. A mesh names axes of one slice: `fsdp` is `ici_fsdp_parallelism`.
"""

from __future__ import annotations

import os
import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.stacks.lowering import StackProgram, current_target, import_stack, lowered_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.jax.target_kinds import Target

_MAIN = "maxtext.trainers.pre_train.train_compile"
_INSTALL = "pip install 'maxtext[tpu]'"
_FLAGS = "LIBTPU_INIT_ARGS"
_QUIET = {
    "run_name": "hlomem",
    "base_output_directory": "hlomem",
    "dataset_type": "synthetic",
    "enable_checkpointing": "false",
}
"""Settings that change no program, and spare a user whatever they are about."""
_EXPORT = re.compile(rf"^\s*export\s+{_FLAGS}=(.*)$", re.MULTILINE)
_START = re.compile(r"^\s*python3?\s+-m\s+\S+\s.*$", re.MULTILINE)


class Recipe(NamedTuple):
    """A command line of MaxText, read."""

    config: str
    settings: dict[str, str]
    flags: str = ""
    """For libtpu."""


def train_step(
    config: str = "base.yml",
    recipe: str = "",
    mesh: Mapping[str, int] | None = None,
    **settings: Any,
) -> StackProgram:
    """The factory: `config` is a file of MaxText's configs or any other; `recipe` a script or line.

    What is set here has precedence over what the recipe says.
    """
    given = read_recipe(recipe) if recipe else Recipe(config, {})
    own = {**given.settings, **{name: _text(value) for name, value in settings.items()}}
    if mesh is not None:
        own |= {"ici_fsdp_parallelism": "1"}
        own |= {f"ici_{name}_parallelism": str(size) for name, size in mesh.items()}
    if given.flags and given.flags not in os.environ.get(_FLAGS, ""):
        os.environ[_FLAGS] = f"{os.environ.get(_FLAGS, '')} {given.flags}".strip()
    target = current_target()
    preload()
    trainer = import_module(_MAIN)
    topology = {
        "compile_topology": _name_of(target),
        "compile_topology_num_slices": str(_slices(mesh, target)),
    }
    words = [f"{name}={value}" for name, value in ({**_QUIET, **own, **topology}).items()]
    argv = ["train_compile", str(_find_file(given.config)), *words]
    return lowered_by(lambda: trainer.main(argv), _command(given, own))


def preload() -> None:
    """Import MaxText, which takes most of the time of a plan; done once for all of a search."""
    os.environ.setdefault("DECOUPLE_GCLOUD", "TRUE")  # MaxText's way to do without Google Cloud
    import_stack(_MAIN, "MaxText", _INSTALL)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _slices(mesh: Mapping[str, int] | None, target: Target) -> int:
    """Slices are MaxText's own axis: those of a mesh are of one of them."""
    if mesh is not None and target.slices > 1:
        problem = "MaxText divides a mesh among slices itself"
        raise CommandError(f"{problem}: set ici_…_parallelism and dcn_…_parallelism instead")
    return target.slices


def _name_of(target: Target) -> str:
    """MaxText's name of a target: `v5e-16`, `v4-8`."""
    names = import_module("maxtext.utils.accelerator_to_spec_map")
    wanted = getattr(target, "topology_name", "")
    spellings = {wanted, wanted.replace("v5p:", "v5:")} - {""}
    devices = target.device_count // target.slices
    for name, known in names.UserFacingNameToSystemCharacteristics.items():
        if known.topology_name in spellings and known.devices_per_slice == devices:
            return str(name)
    raise CommandError(f"MaxText has no name for {target.name}: it compiles for usual TPU slices")


def _find_file(name: str) -> Path:
    """A file as it is given, or else one of MaxText's configs: `base.yml`, `v5e/16b.sh`."""
    if Path(name).is_file():
        return Path(name)
    home = Path(import_stack("maxtext", "MaxText", _INSTALL).__path__[0]) / "configs"
    found = sorted(file for file in home.rglob(Path(name).name) if file.match(name))
    if not found:
        raise CommandError(f"{visible(name)}: no such file, nor one of MaxText's configs")
    return found[0]


def read_recipe(words: str) -> Recipe:
    """A script or a command line of MaxText, without the words that have shell variables."""
    text = _find_file(words).read_text(encoding="utf-8") if words.endswith(".sh") else words
    text = text.replace("\\\n", " ")
    start = _START.search(text)
    line = start[0] if start is not None else text
    try:
        parts = shlex.split(line, comments=True)
        flags = " ".join(shlex.split(exported[1])) if (exported := _EXPORT.search(text)) else ""
    except ValueError as error:
        raise CommandError(f"`{visible(words)}` is no command line: {error}") from error
    configs = [part for part in parts if part.endswith(".yml") and "=" not in part.split("}")[-1]]
    pairs = [part.partition("=") for part in parts if "$" not in part and part not in configs]
    settings = {name: value for name, equals, value in pairs if equals and name.isidentifier()}
    if not settings:
        raise CommandError(f"`{visible(words)}` has no settings of MaxText, such as model_name=…")
    config = Path(configs[0]).name if configs and "$" in configs[0] else "".join(configs[:1])
    return Recipe(config or "base.yml", settings, flags)


def _command(given: Recipe, own: Mapping[str, str]) -> str:
    """The line to start training with, for a shell."""
    words = [f"{name}={shlex.quote(value)}" for name, value in own.items()]
    flags = f"{_FLAGS}={shlex.quote(given.flags)} " if given.flags else ""
    start = "python3 -m maxtext.trainers.pre_train.train"
    return f"{flags}{start} {shlex.quote(given.config)} {' '.join(words)}"
