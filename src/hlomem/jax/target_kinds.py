"""Targets (`tpu-v5e:2x2`, `cpu`), by `jax.experimental.topologies` without the hardware."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import prod
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from hlomem.base.errors import CommandError, HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.machines.capacity import Capacity, capacity_of
from hlomem.machines.gpu_facts import GPUS, target_config
from hlomem.machines.registry import CHIPS, find_machine, machines_of
from hlomem.report.data.health import TargetHealth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.machines.machine import Chip, Machine

_TPUS = {
    machine.chip.name.removeprefix("tpu"): machine.chip
    for machine in machines_of("tpu", also_on_request=True)
    if machine.chip is not None
}
"""TPUs by the names that targets have: `v5e`, `7x`."""
_GRIDS = {
    2: ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"),
    3: (
        *("1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8"),
        *("8x8x8", "8x8x16", "8x16x16", "16x16x16"),
    ),
}
"""The usual slices, by the dimensions of a chip's network; another may be given whole."""
TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_ID": "0",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
    "TPU_MIN_LOG_LEVEL": "3",
}
"""Keeps libtpu from looking for the chips of this machine when it is only to compile."""
_CUDA_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
_SLICES = re.compile(r"[1-9]\d{0,3}")
_environment_lock = RLock()


class MissingSoftwareError(HlomemError):
    """A target that cannot be compiled for with what is installed; says what to install."""


class Target(Struct, frozen=True, dict=True):
    """A machine to compile for; the family of machines it is of is its class."""

    chip: str = ""
    topology: str = ""
    slices: int = 1
    """Groups of chips with that topology, which the data center's network joins."""

    family: ClassVar[str] = ""
    """The beginning of its name."""
    machines: ClassVar[str] = ""
    """The platform of its machines, as hlomem calls it."""
    wanted: ClassVar[str] = "jax"
    """The software that compiles for it."""
    environment: ClassVar[dict[str, str]] = {}
    """Variables its compiler must find in the environment when it is loaded."""
    plan_mark: ClassVar[str] = ""
    """The ending of the file written right after the plan's; empty if little follows."""
    chips: ClassVar[dict[str, str]] = {}
    """The chips there are, each with its smallest topology."""
    form: ClassVar[re.Pattern[str]] = re.compile("")
    """Of a topology."""
    has_slices: ClassVar[bool] = False
    """For chips of which several groups can work on one program."""

    @property
    def name(self) -> str:
        """Its name in full: `tpu-v5e:2x2`, of two slices `tpu-v5e:2x2@2`."""
        several = f"@{self.slices}" if self.slices > 1 else ""
        return f"{self.family}-{self.chip}:{self.topology}{several}"

    @property
    def machine(self) -> Machine:
        """The machine, with its kinds of memory and its rules for planning them."""
        return find_machine(self.machines, self._chip_name)

    @property
    def chip_facts(self) -> Chip | None:
        """The facts of its chip; None where it is the host."""
        return CHIPS.get(self._chip_name)

    @property
    def capacity(self) -> Capacity | None:
        """The memory of one device; None where it has what the host has."""
        return capacity_of(self._chip_name)

    @property
    def _chip_name(self) -> str:
        return self.chip

    @property
    def chip_count(self) -> int:
        """Chips in all slices."""
        return 1

    @property
    def device_count(self) -> int:
        """Devices in all slices, as JAX counts them."""
        return self.chip_count

    @property
    def devices_per_host(self) -> int:
        """Devices whose programs share the memory of one host."""
        return self.device_count

    @property
    def missing(self) -> str:
        """The command that installs what is missing here; empty where nothing is."""
        return _install_jax()

    @cached_property
    def devices(self) -> list[Any]:
        """The devices JAX compiles for; `MissingSoftwareError` where that cannot be."""
        if self.missing:
            problem = f"cannot compile for {self.name}: {self.wanted} is not installed"
            raise MissingSoftwareError(f"{problem}\n  {self.missing}")
        with _environment(self.environment):
            try:
                return self._find_devices()
            except (RuntimeError, ValueError, NotImplementedError) as error:
                reason = visible(str(error).partition("\n")[0])
                raise CommandError(f"no topology for {self.name}: {reason}") from error

    def _find_devices(self) -> list[Any]:
        raise NotImplementedError

    @classmethod
    def _complaint(cls, chip: str) -> str:
        """The fault of a topology, and one that is right."""
        raise NotImplementedError

    @classmethod
    def parse(cls, chip: str, topology: str, slices: int = 1) -> Target | None:
        """The target of a chip, by default in the smallest topology; None if there is none."""
        if chip not in cls.chips:
            return None
        if slices > 1 and not cls.has_slices:
            raise CommandError(f"{cls.family}-{visible(chip)} has no slices: leave out @{slices}")
        topology = cls.topology_of(chip, topology or cls.chips[chip])
        if not cls.form.fullmatch(topology):
            raise CommandError(f"`{visible(topology)}` is no {cls._complaint(chip)}")
        return cls(chip, topology, slices)

    @classmethod
    def topology_of(cls, _chip: str, words: str) -> str:
        """A topology by what a user calls it."""
        return words

    @classmethod
    def examples(cls) -> list[Target]:
        """One of each chip, in its smallest topology."""
        return [cls(chip, topology) for chip, topology in cls.chips.items()]


class TpuTarget(Target, frozen=True, dict=True):
    """Chips of a TPU in a grid: `tpu-v5e:2x2`."""

    family: ClassVar[str] = "tpu"
    machines: ClassVar[str] = "tpu"
    wanted: ClassVar[str] = "libtpu"
    environment: ClassVar[dict[str, str]] = TPU_ENVIRONMENT
    plan_mark: ClassVar[str] = "after_optimizations_after_buffer_assignment.txt"
    chips: ClassVar[dict[str, str]] = {name: chip.one_host for name, chip in _TPUS.items()}
    form: ClassVar[re.Pattern[str]] = re.compile(r"[1-9]\d{0,3}(x[1-9]\d{0,3}){1,2}")
    has_slices: ClassVar[bool] = True

    @property
    def chip_count(self) -> int:
        return self.slices * prod(map(int, self.topology.split("x")))

    @property
    def device_count(self) -> int:
        return self.chip_count * _TPUS[self.chip].devices

    @property
    def devices_per_host(self) -> int:
        one_host = prod(map(int, _TPUS[self.chip].one_host.split("x")))
        chips = self.chip_count // self.slices
        return min(chips, one_host) * _TPUS[self.chip].devices

    @classmethod
    def topology_of(cls, chip: str, words: str) -> str:
        """The usual slice of a number of chips, or the topology that is given."""
        if not words.isdecimal() or len(words) > 5:
            return words
        grids = _GRIDS[cls.chips[chip].count("x") + 1]
        sizes = {prod(map(int, grid.split("x"))): grid for grid in grids}
        return sizes.get(int(words), words)

    @property
    def missing(self) -> str:
        """The command that installs JAX or libtpu."""
        if missing := _install_jax():
            return f"{missing} libtpu"
        return "" if _is_there("libtpu") else "pip install libtpu"

    @property
    def topology_name(self) -> str:
        """As libtpu calls it: `v5e:2x2`."""
        generation = self._chip_name.partition("-")[0]
        return f"{generation}:{self.topology}"

    @property
    def _chip_name(self) -> str:
        return _TPUS[self.chip].name

    @property
    def topology_options(self) -> dict[str, Any]:
        """Further options of `get_topology_desc`."""
        config = _TPUS[self.chip].config
        options: dict[str, Any] = {"chip_config_name": config} if config else {}
        return {**options, "num_slices": self.slices} if self.slices > 1 else options

    def _find_devices(self) -> list[Any]:
        topologies = import_module("jax.experimental.topologies")
        found = topologies.get_topology_desc(
            platform="tpu", topology_name=self.topology_name, **self.topology_options
        )
        return list(found.devices)

    @classmethod
    def _complaint(cls, chip: str) -> str:
        usual = f"tpu-{chip}:{cls.chips[chip]}"
        return f"topology of a TPU: give chips by chips, as in {usual}, or the number of a slice's"


class CudaTarget(Target, frozen=True, dict=True):
    """GPUs in one host: `cuda-h100:8`."""

    family: ClassVar[str] = "cuda"
    machines: ClassVar[str] = "gpu"
    wanted: ClassVar[str] = "JAX's CUDA plugin"
    plan_mark: ClassVar[str] = ".debug_options"
    chips: ClassVar[dict[str, str]] = dict.fromkeys(GPUS, "1")
    form: ClassVar[re.Pattern[str]] = re.compile(r"[1-9]\d{0,5}")

    @property
    def chip_count(self) -> int:
        return int(self.topology)

    @property
    def missing(self) -> str:
        """The command that installs JAX or its plugin, of the same version."""
        if missing := _install_jax():
            return f"{missing} jax-cuda13-plugin"
        if any(map(_is_there, _CUDA_PLUGINS)):
            return ""
        return f"pip install jax-cuda13-plugin=={version('jaxlib')}"

    def _find_devices(self) -> list[Any]:
        topologies = import_module("jax.experimental.topologies")
        description = topologies.get_topology_desc(
            platform="cuda",
            topology_name="",
            target_config=target_config(self.chip),
            topology=f"1x1x{self.topology}",
        )
        return list(description.devices)

    @classmethod
    def _complaint(cls, chip: str) -> str:
        return f"number of GPUs: give one, as in cuda-{chip}:8"


class HostTarget(Target, frozen=True, dict=True):
    """The CPU of this machine."""

    family: ClassVar[str] = "cpu"
    machines: ClassVar[str] = "cpu"
    chips: ClassVar[dict[str, str]] = {"": ""}

    @property
    def name(self) -> str:
        return self.family

    def _find_devices(self) -> list[Any]:
        return list(import_module("jax").local_devices(backend=self.family))

    @classmethod
    def parse(cls, chip: str, topology: str, slices: int = 1) -> Target | None:
        """The host has neither chips nor a topology."""
        return None if chip or topology or slices > 1 else cls()


_FAMILIES: tuple[type[Target], ...] = (TpuTarget, CudaTarget, HostTarget)


def parse_target(name: str) -> Target:
    """The target of a name; one without a topology has that of one host, or one GPU."""
    head, _, rest = name.strip().lower().partition(":")
    prefix, _, chip = head.partition("-")
    topology, at, count = rest.partition("@")
    if at and not _SLICES.fullmatch(count):
        problem = f"`{visible(name)}` has no number of slices"
        raise CommandError(f"{problem}: give it as in tpu-v4:4x4x4@2")
    for family in _FAMILIES:
        found = family.parse(chip, topology, int(count or 1)) if family.family == prefix else None
        if found is not None:
            return found
    raise CommandError(_unknown(name, head))


def chip_target(chip: str, topology: str = "", slices: int = 1) -> Target:
    """The target of a chip of any family: `v5e`, `h100`."""
    for family in _FAMILIES:
        if chip and (found := family.parse(chip.lower(), topology, slices)) is not None:
            return found
    known = [name for family in _FAMILIES for name in family.chips if name]
    near = get_close_matches(chip.lower(), known, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    problem = f"no compiler for a chip `{visible(chip)}`"
    raise CommandError(f"{problem}: `hlomem doctor` lists what can be compiled for{hint}")


def devices(target: str) -> list[Any]:
    """The devices of a target, to make meshes and shardings of."""
    return parse_target(target).devices


def _unknown(name: str, head: str) -> str:
    known = [target.name for target in _all_targets()]
    near = get_close_matches(head, [other.partition(":")[0] for other in known], n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"no target `{visible(name)}`: known are {', '.join(known)}{hint}"


def _all_targets() -> list[Target]:
    return [target for family in _FAMILIES for target in family.examples()]


class KnownTarget(Struct, frozen=True):
    """A row of `targets()`."""

    name: str
    """With the topology it has when none is given; any other may be given."""
    capacity: int | None
    """Bytes of one device; None where it has what the host has."""
    install: str
    """The command that installs what is missing; empty where it can be compiled for now."""

    @property
    def is_installed(self) -> bool:
        """Whether it can be compiled for now."""
        return not self.install


class KnownTargets(tuple[KnownTarget, ...]):
    """The targets there are; printed, a table."""

    __slots__ = ()

    def __str__(self) -> str:
        lines = []
        for row in self:
            size = format_bytes(row.capacity) if row.capacity else "the host's"
            lines.append(f"{row.name:<17} {size:>12}  {row.install or 'ready'}")
        return "\n".join(lines)


def targets() -> KnownTargets:
    """Every kind of machine that can be compiled for, with what it lacks."""
    return KnownTargets(
        KnownTarget(target.name, target.capacity.size if target.capacity else None, target.missing)
        for target in _all_targets()
    )


def _install_jax() -> str:
    return "" if version_of("jax") else "pip install 'hlomem[jax]'"


def version_of(package: str) -> str:
    """The version of a package; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is not there
        return False


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Variables for a compiler that is being loaded; those that are set stay as they are."""
    with _environment_lock:
        added = {name: value for name, value in wanted.items() if name not in os.environ}
        os.environ.update(added)
        try:
            yield
        finally:
            for name in added:
                os.environ.pop(name, None)


def examine_targets() -> list[TargetHealth]:
    """Every kind of machine to compile for; nothing is imported to find out."""
    return [TargetHealth(name=row.name, install=row.install) for row in targets()]
