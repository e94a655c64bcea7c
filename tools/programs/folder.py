"""Programs of a folder that is not ours: `programs.py` with a dict `PROGRAMS`.

`PROGRAMS[name](mesh=None)` gives a function, its arguments as shapes, and keywords of `jax.jit`;
its attributes `multi` (needs four devices), `x64` and `backends` say where it compiles.
"""

from __future__ import annotations

import sys
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class FolderProgram(NamedTuple):
    """A program as its folder makes it."""

    name: str
    build: Any

    def is_for(self, backend: str) -> bool:
        return backend in getattr(self.build, "backends", ("cpu",))

    @property
    def is_multi(self) -> bool:
        """Whether it needs four devices."""
        return getattr(self.build, "multi", False)

    def make(self) -> tuple[Any, tuple[Any, ...]]:
        """The jitted function, and the shapes of its arguments."""
        jax: Any = import_module("jax")
        jax.config.update("jax_enable_x64", getattr(self.build, "x64", False))
        mesh = None
        if self.is_multi:
            numpy = import_module("numpy")
            devices = numpy.array(jax.devices()[:4]).reshape(2, 2)
            mesh = jax.sharding.Mesh(devices, ("x", "y"))
        function, arguments, keywords = self.build(mesh)
        return jax.jit(function, **keywords), tuple(arguments)


def read_folder(folder: Path, backend: str = "cpu") -> Mapping[str, FolderProgram]:
    """The programs of a folder that are meant for a backend; there are four CPUs from then on."""
    import_module("jax").config.update("jax_num_cpu_devices", 4)
    file = folder / "programs.py"
    spec = util.spec_from_file_location("folder_programs", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise SystemExit(f"{file} is not there; it has the dict `PROGRAMS`")
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    programs = [FolderProgram(name, build) for name, build in module.PROGRAMS.items()]
    return {program.name: program for program in programs if program.is_for(backend)}


def program(folder: str, name: str, backend: str) -> tuple[Any, tuple[Any, ...]]:
    """The factory: a program of a folder by name, on one device."""
    return read_folder(Path(folder), backend)[name].make()
