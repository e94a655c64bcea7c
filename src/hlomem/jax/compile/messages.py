"""The messages between parent and child of a compile.

The parent writes an `Errand` to the child's standard input and leaves that open: its end tells the
child to stop. The child leaves `Facts` when the program is lowered, an `Outcome` when it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from hlomem.report.data.sharding.decision import (  # noqa: TC001 - msgspec reads them
    Decision,
    Exchange,
    OtherDecision,
    OtherValue,
)

if TYPE_CHECKING:
    from pathlib import Path

TARGET = "HLOMEM_TARGET"
"""The variable of the child's environment that names the target of its compile."""
FACTS, OUTCOME, OUTPUT, DUMP = "facts.json", "outcome.json", "output.txt", "dump"
LINKED, EXECUTABLE = "linked.json", "executable"
KERNELS, DOING = "kernels.json", "doing.json"
"""The files and the folder of a job, in the folder it is given."""


class ExportedKernel(Struct, frozen=True, kw_only=True):
    """A kernel that another process has cut out and lowered."""

    file: str
    """An `Exported` of `jax.export`, pickled for a process of the same JAX."""
    facts: bytes
    """`KernelFacts`, encoded."""


class KernelRequest(Struct, frozen=True, kw_only=True):
    """Kernels to cut out of a factory's program, and to compile alone."""

    targets: tuple[str, ...]
    over: dict[str, list[Any]] = field(default_factory=dict)
    """Settings of which every combination is asked for."""
    is_largest: bool = False
    """Whether only the largest blocks that fit are wanted."""
    is_exact: bool = False
    """Whether all that may fit are compiled, whatever follows from others."""
    is_shrink: bool = False
    """Whether integer settings are to be halved until all kernels fit."""
    cache: str = ""
    """The folder of known numbers; empty for none."""
    broken: tuple[str, ...] = ()
    """Fingerprints of kernels that ended the compiler's process."""
    exported: tuple[ExportedKernel, ...] = ()
    """Kernels that are cut out already; the factory is only a name then."""


class Doing(Struct, frozen=True, kw_only=True):
    """The work of a child at the moment."""

    words: str
    fingerprint: str = ""
    """Of the kernel being compiled."""


class Job(Struct, frozen=True, kw_only=True):
    """A program to compile, and where to leave its dump."""

    factory: str
    """`pkg.module:name`"""
    target: str
    settings: dict[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    """Modules to import first: `hlomem.jax.auto` plans with the pass on."""
    texts: dict[str, str] = field(default_factory=dict)
    """Files to import with other texts than they have."""
    jit: dict[str, Any] = field(default_factory=dict)
    """Options of jax.jit for a function that the factory did not jit."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the compiler, as `Lowered.compile` takes them."""
    has_fingerprint: bool = False
    """Whether facts are to have the program's fingerprint."""
    is_from_here: bool = True
    """Whether its modules may lie in the current folder; no code of that is imported else."""
    has_calls: bool = False
    """Whether facts are to have how often functions were called, and with which values."""
    is_linked: bool = False
    """Whether it is to be linked by libtpu's phases instead of planned."""
    home: str = ""
    """The folder that stands for the current one, where another process asked for it."""
    kernels: KernelRequest | None = None
    """The kernels of it that are wanted instead of its plan."""
    has_shardings: bool = False
    """Whether facts are to have the lines where shardings are written."""
    arguments: dict[str, str] = field(default_factory=dict)
    """Other shardings of arguments, by name: `P('data', None)`."""
    has_mesh: bool = False
    """Whether it is traced under the mesh of its arguments, for constraints by P alone."""
    result_shardings: dict[str, str] = field(default_factory=dict)
    """Other shardings of results, by path."""
    decisions: tuple[OtherDecision, ...] = ()
    """Acts of the program that are done otherwise."""
    value: OtherValue | None = None
    """Another value of an expression of its source."""


class Errand(Struct, frozen=True, kw_only=True):
    """A job as it is handed to a child."""

    job: Job
    folder: str
    path: list[str]
    """`sys.path` of the parent."""


class ArgumentLines(Struct, frozen=True, kw_only=True):
    """The lines of the user's code that made an argument, innermost first."""

    made: tuple[str, ...] = ()
    sharding: tuple[str, ...] = ()
    """The lines that made its sharding."""
    is_mapped: bool = False
    """Whether a library called the function that made it, once for each of several."""
    written: tuple[str, ...] = ()
    """The lines that wrote the spec of that."""
    position: int = -1
    """Its number among the positional arguments, where only jax.jit gives it a sharding."""


class Facts(Struct, frozen=True, kw_only=True):
    """The facts known of a program once it is lowered."""

    module_name: str
    """As XLA knows it: `jit_train_step`."""
    results: tuple[str, ...] = ()
    """The paths of what it returns."""
    flops: int | None = None
    """Of its matrix products; None where only the Lowered was given."""
    has_while: bool = False
    """Whether a loop of unknown length is in it, which `flops` counts once."""
    fingerprint: str = ""
    """Of the lowered program and of what compiles it."""
    calls: dict[str, int] = field(default_factory=dict)
    """How often functions of the user were called while it was traced, by `file::name`."""
    plain_arguments: dict[str, list[str]] = field(default_factory=dict)
    """Those of their arguments that were no arrays, by `file::name`."""
    versions: dict[str, str] = field(default_factory=dict)
    command: str = ""
    """The command line by which the factory's own stack makes the same program."""
    argument_lines: dict[str, ArgumentLines] = field(default_factory=dict)
    """The lines of the user's code that made the arguments, by name."""
    result_lines: tuple[ArgumentLines, ...] = ()
    """The same of the shardings that jax.jit is given for its results, in their order."""
    donated: tuple[str, ...] = ()
    """The arguments that are to be donated, by name."""
    dead_constraints: tuple[str, ...] = ()
    """The lines of constraints whose values are not used."""
    jit_line: str = ""
    """The line that jits the function; empty if unknown."""
    decisions: tuple[Decision, ...] = ()
    """The acts by which it says how arrays are split."""
    placing: tuple[str, ...] = ()
    """Functions of the user that only place what they are given, `file::name`."""
    exchanges: tuple[Exchange, ...] = ()
    """The all-to-alls that it writes as a gather and a slice."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How a job ended."""

    refusal: str = ""
    """XLA's message where the program does not fit."""
    problem: str = ""
    """A description of the failure; empty where there was none."""
    kind: Literal["", "usage", "factory", "compiler", "missing", "link"] = ""
    trace: tuple[str, ...] = ()
    """The last lines of the user's traceback."""


class Linked(Struct, frozen=True, kw_only=True):
    """A program that libtpu linked by a plan it was given, or refused."""

    libtpu: str
    """The release it is for."""
    libtpu_temporaries: int
    """Bytes of temporaries in HBM by libtpu's own plan."""
    temporaries: int
    """The same by the plan that was linked: the smaller of libtpu's and ours."""
    libtpu_hbm: int
    """Bytes of all allocations in HBM by libtpu's own plan."""
    hbm: int
    """The same by the plan that was linked."""
    jax_refusal: str = ""
    """The compiler's message to JAX where its own plan does not fit."""
    refusal: str = ""
    """Its message to the smaller plan; empty where that was linked."""
    code_bytes: int = 0
    """Machine code found equal to JAX's: of the program, or of a small one where JAX has none."""

    @property
    def is_packed(self) -> bool:
        """Whether it was linked by our packing."""
        return self.temporaries < self.libtpu_temporaries

    @property
    def is_rescued(self) -> bool:
        """Whether JAX's compile refuses it, and it was linked."""
        return bool(self.jax_refusal) and not self.refusal


T = TypeVar("T", bound=Struct)


def write_message(folder: Path, name: str, message: Struct) -> None:
    """A message as a file that is there whole or not at all."""
    partial = folder / f"{name}.part"
    partial.write_bytes(msgspec.json.encode(message))
    partial.replace(folder / name)


def read_message(folder: Path, name: str, kind: type[T]) -> T | None:
    """A message that may not be there yet."""
    try:
        return msgspec.json.decode((folder / name).read_bytes(), type=kind)
    except FileNotFoundError:
        return None
