"""`hlomem.jax.link`: a factory's program, linked by libtpu with a smaller plan: an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hlomem.base.atomic_files import write_files
from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.jax.compile.messages import Facts, Job, Linked
from hlomem.jax.compile.parent import link_in_child
from hlomem.jax.fitting import spec_of
from hlomem.jax.target_kinds import TpuTarget, parse_target
from hlomem.libtpu.versions import find_library

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class LinkReport(Struct, frozen=True, kw_only=True):
    """A program that was linked, or why it was not."""

    target: str
    facts: Facts
    linked: Linked
    output: Path | None
    """The file; None where the program does not fit, or no file was asked for."""


def link(
    factory: str | Callable[..., Any],
    *,
    target: str,
    output: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    imports: Sequence[str] = (),
    timeout: float | None = None,
    force: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> LinkReport:
    """Link a program for a TPU with the smaller of libtpu's and our packing: an experiment.

    `factory` is one of `hlomem compile`. `output` is the file for the executable: what
    `jax.experimental.serialize_executable` returns, pickled; the release of libtpu it is for is
    added to its name. Without `output` nothing is kept. Nothing so linked was ever run on a TPU by
    the authors of hlomem.
    """
    aim = parse_target(target)
    if not isinstance(aim, TpuTarget):
        raise CommandError(f"only libtpu takes a plan: give a target tpu-…, not {aim.name}")
    if aim.topology_options:
        problem = "libtpu links for one slice in its own configuration"
        raise CommandError(f"{problem}: give another target than {aim.name}, such as tpu-v4-core")
    file = None
    if not aim.missing:  # the child says what is
        release = find_library().version
        file = None if output is None else _named(Path(output), release)
        if file is not None and file.is_file() and not force:
            raise CommandError(f"{visible(str(file))} exists; give --force to overwrite it")
    job = Job(
        factory=spec_of(factory),
        target=aim.name,
        settings=dict(settings or {}),
        imports=tuple(imports),
        is_linked=True,
    )
    facts, linked, executable = link_in_child(job, timeout=timeout, on_progress=on_progress)
    if file is None or not executable:
        return LinkReport(target=aim.name, facts=facts, linked=linked, output=None)
    write_files(file.parent, {file.name: [executable]}, force=force)
    return LinkReport(target=aim.name, facts=facts, linked=linked, output=file)


def _named(output: Path, release: str) -> Path:
    """The file with the release in its name; a device keeps its own."""
    if output.is_dir():
        raise CommandError(f"{visible(str(output))} is a folder: give the name of a file")
    ending = f".libtpu-{release}"
    if output.name.endswith(ending) or (output.exists() and not output.is_file()):
        return output
    return output.with_name(output.name + ending)
