"""Writes the module handed to passes, maybe with a policy of `jax.checkpoint` in the program."""

from __future__ import annotations

import inspect
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from hlomem.base.source import visible
from hlomem.jax.compile.factories import FactoryProgram, find_factory, make_program
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import CompileError, PlannedProgram, plan_in_child
from hlomem.jax.compile.programs import module_name
from hlomem.jax.pass_.hook import put_pass
from hlomem.jax.target_kinds import Target, parse_target
from hlomem.proto.edit import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


Place: TypeAlias = Literal["checkpoint", "gradient", "scan"]
PARAMETER = "checkpoint"
"""A factory's parameter that puts a function around what is to be recomputed; its default says that
it does, as `lambda function: function` does."""
_DIFFERENTIATING = ("grad", "value_and_grad", "vjp")


class Places(Struct, frozen=True, kw_only=True):
    """The parts of a program that `jax.checkpoint` can be put around."""

    wrapped: Place
    """The one it was put around."""
    gradients: int
    """Functions that were differentiated."""
    scans: int


class Checkpoints:
    """Replaces functions of JAX: wraps what is at one place, and counts the others."""

    def __init__(self, policy: str, place: Place) -> None:
        self._policy = policy
        self._place = place
        self._gradients = 0
        self._scans = 0

    def install(self) -> None:
        """Replace them, until the process ends."""
        jax = import_module("jax")
        for name in _DIFFERENTIATING:
            setattr(jax, name, self._differentiating(getattr(jax, name)))
        jax.lax.scan = self._scanning(jax.lax.scan)

    def settings_of(self, factory: Callable[..., Any]) -> dict[str, Any]:
        """Settings that a factory gets in addition: it wraps something itself, if it can."""
        if self._place == "gradient" and has_parameter(factory):
            self._place = "checkpoint"
        if self._place != "checkpoint":
            return {}
        return {PARAMETER: partial(import_module("jax").checkpoint, policy=self._found_policy())}

    @property
    def places(self) -> Places:
        """The parts that were found, once the factory's program has been traced."""
        return Places(wrapped=self._place, gradients=self._gradients, scans=self._scans)

    def _found_policy(self) -> Any:
        return getattr(import_module("jax").checkpoint_policies, self._policy)

    def _differentiating(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def replacement(fun: Any, *arguments: Any, **keywords: Any) -> Any:  # JAX's own name
            self._gradients += 1
            if self._place == "gradient":
                fun = _wrapped(fun, self._found_policy())
            return function(fun, *arguments, **keywords)

        return replacement

    def _scanning(self, scan: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(scan)
        def replacement(f: Any, *arguments: Any, **keywords: Any) -> Any:  # JAX's own name
            self._scans += 1
            if self._place == "scan":
                f = _wrapped(f, self._found_policy(), prevent_cse=False)
            return scan(f, *arguments, **keywords)

        return replacement


def has_parameter(factory: Callable[..., Any]) -> bool:
    """Whether a factory wraps what is to be recomputed itself, if it is told by what."""
    found = inspect.signature(factory).parameters.get(PARAMETER)
    return found is not None and found.default is not found.empty and callable(found.default)


def _wrapped(function: Any, policy: Any, **options: Any) -> Any:
    """A function under `jax.checkpoint`; arguments that are no arrays stay as given."""
    jax = import_module("jax")

    @wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        leaves, tree = jax.tree.flatten((arguments, keywords))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

        def inner(*arrays: Any) -> Any:
            filled = list(leaves)
            for place, array in zip(places, arrays, strict=True):
                filled[place] = array
            again, named = jax.tree.unflatten(tree, filled)
            return function(*again, **named)

        arrays = [leaves[place] for place in places]
        return jax.checkpoint(inner, policy=policy, **options)(*arrays)

    return called


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
    """The same by a file; with a `checkpoint` (`policy`, `place`) a second one has its parts."""
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
        problem = f"the compiler for {job.target} did not hand its module to a pass"
        raise CompileError(f"{problem}; jax 0.10.2 and later do")
    return planned, file.read_bytes()
