"""The lines of a factory's shardings, and other shardings for the same program.

For a child process that does nothing else. Before the factory is imported, `jax.jit` and
`jax.ShapeDtypeStruct` are made to note who calls them; afterwards arguments and results can be
given other shardings by name, and the lines of the user's code are told.
"""

from __future__ import annotations

import inspect
from functools import wraps
from importlib import import_module
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.jax.compile.decisions import read_spec
from hlomem.jax.compile.frames import users_frames
from hlomem.jax.compile.messages import ArgumentLines
from hlomem.jax.compile.origins import Origins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NAMED = "NamedSharding"


class NotedJit(NamedTuple):
    """A call of jax.jit."""

    function: Any
    options: dict[str, Any]
    line: str


class Notes:
    """The calls of a factory that tell shardings, with their lines."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[Any, tuple[str, ...]]] = {}
        self._mapped: set[int] = set()
        """Arguments that a function of the user makes for jax.tree.map or the like."""
        self._jits: dict[int, tuple[Any, NotedJit]] = {}
        self.real_jit: Any = None
        self.origins = Origins()

    def install(self) -> None:
        """From now on, note calls of jax.jit, new jax.ShapeDtypeStructs and NamedShardings."""
        jax: Any = import_module("jax")
        self.origins.install()
        self.real_jit = jax.jit
        jax.jit = self._noting_jit(jax.jit)
        struct: Any = jax.ShapeDtypeStruct
        original = struct.__init__

        @wraps(original)
        def noting(made: Any, *arguments: Any, **options: Any) -> None:
            original(made, *arguments, **options)
            self._note(made)

        struct.__init__ = noting
        named = jax.sharding.NamedSharding
        for place in (jax, jax.sharding):
            if getattr(place, _NAMED, None) is named:
                setattr(place, _NAMED, _noting_class(named, self._note_sharding))

    def _note_sharding(self, made: Any, arguments: tuple[Any, ...], options: Any) -> None:
        self._note(made)
        spec = arguments[1] if len(arguments) > 1 else options.get("spec")
        self.origins.note(made, users_frames(), spec)

    def _note(self, made: Any) -> None:
        frames = users_frames()
        if frames:
            self._lines[id(made)] = (made, tuple([frame.line for frame in frames]))
            self._mapped.update([id(made)] if frames[0].is_mapped else [])

    def _noting_jit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def jit(*functions: Any, **options: Any) -> Any:
            made = original(*functions, **options)
            if functions and hasattr(made, "lower"):
                line = self._line()
                noted = NotedJit(functions[0], options, line)
                self._jits[id(made)] = (made, noted)
                return made
            if functions:
                return made
            return lambda function: jit(function, **options)

        return jit

    def _line(self) -> str:
        return next((frame.line for frame in users_frames()), "")

    def jit_of(self, function: Any) -> NotedJit | None:
        found = self._jits.get(id(function))
        return None if found is None else found[1]

    def lines_of(self, leaf: Any) -> tuple[str, ...]:
        """The lines that made an argument or a sharding, innermost first; empty if unknown."""
        found = self._lines.get(id(leaf))
        return () if found is None else found[1]

    def lines_written(self, sharding: Any) -> tuple[str, ...]:
        """The lines that wrote the spec of a sharding."""
        return tuple([frame.line for frame in self.origins.written(sharding)])

    def is_mapped(self, leaf: Any) -> bool:
        """Whether the function that made an argument was called by a library, once for each."""
        return id(leaf) in self._mapped


def _noting_class(real: Any, note: Callable[[Any, tuple[Any, ...], Any], None]) -> Any:
    """A stand-in for a class of jaxlib, whose `__init__` cannot be replaced; it notes its new."""

    class Noting(type):
        def __call__(cls, *arguments: Any, **options: Any) -> Any:
            made = real(*arguments, **options)
            note(made, arguments, options)
            return made

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, real)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, real)

        def __getattr__(cls, name: str) -> Any:
            return getattr(real, name)

    return Noting(real.__name__, (), {"__doc__": real.__doc__})


def argument_lines(
    notes: Notes, function: Any, arguments: Any, keywords: Any
) -> dict[str, ArgumentLines]:
    """The lines that made arguments, by the names that XLA knows them by."""
    placed = placed_arguments(notes, function, arguments)
    jax = import_module("jax")
    numbers = [at for at, one in enumerate(placed) for _ in jax.tree.leaves(one)]
    leaves = named_leaves(function, arguments, keywords)
    given = named_leaves(function, placed, keywords)
    places = chain(numbers, repeat(-1))
    found = {}
    for (name, leaf), (_, other), number in zip(leaves, given, places, strict=False):
        is_own = other is leaf
        found[name] = ArgumentLines(
            made=notes.lines_of(leaf),
            sharding=notes.lines_of(getattr(other, "sharding", None)),
            written=notes.lines_written(getattr(other, "sharding", None)),
            is_mapped=notes.is_mapped(leaf),
            position=-1 if is_own else number,
        )
    return found


def result_lines(notes: Notes, function: Any, lowered: Any) -> tuple[ArgumentLines, ...]:
    """The lines that made the shardings that jax.jit is given for its results, in their order."""
    return tuple(
        [
            ArgumentLines(sharding=notes.lines_of(one), written=notes.lines_written(one))
            for one in result_shardings(notes, function, getattr(lowered, "out_info", None))
        ]
    )


def result_shardings(notes: Notes, function: Any, info: Any) -> list[Any]:
    """The shardings that jax.jit is given for its results, in their order; none if it has none."""
    noted = notes.jit_of(function)
    given = None if noted is None else noted.options.get("out_shardings")
    if given is None or info is None:
        return []
    try:
        return _of_leaves(import_module("jax"), given, info)
    except ValueError:
        return []


def placed_arguments(notes: Notes, function: Any, arguments: Any) -> tuple[Any, ...]:
    """Arguments with the shardings that jax.jit was given for them."""
    noted = notes.jit_of(function)
    if noted is None or noted.options.get("in_shardings") is None:
        return tuple(arguments)
    static = static_numbers(noted.options, function, len(arguments))
    dynamic = [number for number in range(len(arguments)) if number not in static]
    given = tuple([arguments[number] for number in dynamic])
    placed = _placed_by(import_module("jax"), noted.options["in_shardings"], given)
    by_number = dict(zip(dynamic, placed, strict=True))
    return tuple([by_number.get(number, one) for number, one in enumerate(arguments)])


def static_numbers(options: Mapping[str, Any], function: Any, count: int) -> frozenset[int]:
    """The positional arguments that jax.jit takes for constants, by number or by name."""
    numbers = options.get("static_argnums")
    names = options.get("static_argnames")
    numbers = () if numbers is None else (numbers,) if isinstance(numbers, int) else numbers
    names = () if names is None else (names,) if isinstance(names, str) else names
    tops = _top_names(function, count)
    by_name = [tops.index(name) for name in names if name in tops]
    return frozenset([number + count if number < 0 else number for number in (*numbers, *by_name)])


def donated_names(lowered: Any) -> tuple[str, ...]:
    """The arguments that JAX was told to donate, by path."""
    tree_util = import_module("jax.tree_util")
    found = getattr(lowered, "args_info", None)
    if found is None:
        return ()
    leaves, _ = tree_util.tree_flatten_with_path(found)
    return tuple(str(tree_util.keystr(path)) for path, info in leaves if info.donated)


def name_donated(function: Any, arguments: Any, keywords: Any, paths: tuple[str, ...]) -> list[str]:
    """The same by the names of the function's arguments."""
    tree_util = import_module("jax.tree_util")
    leaves, _ = tree_util.tree_flatten_with_path((tuple(arguments), dict(keywords)))
    named = [name for name, _ in named_leaves(function, arguments, keywords)]
    found = dict(zip([str(tree_util.keystr(path)) for path, _ in leaves], named, strict=False))
    return [found[path] for path in paths if path in found]


def named_leaves(function: Any, arguments: Any, keywords: Any) -> list[tuple[str, Any]]:
    """The leaves of arguments, by the names that XLA knows them by."""
    tree_util = import_module("jax.tree_util")
    leaves, _ = tree_util.tree_flatten_with_path((tuple(arguments), dict(keywords)))
    tops = _top_names(function, len(arguments))
    named = []
    for path, leaf in leaves:
        side, first, *rest = path
        if getattr(side, "idx", 0) == 0:
            top = tops[first.idx] if first.idx < len(tops) else f"args[{first.idx}]"
        else:
            top = str(first.key)
        named.append((top + str(tree_util.keystr(tuple(rest))), leaf))
    return named


def _top_names(function: Any, count: int) -> list[str]:
    """The names of positional arguments, as JAX tells them to XLA."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{number}]" for number in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return names


def with_argument_shardings(
    function: Any, arguments: Any, keywords: Any, specs: Mapping[str, str]
) -> tuple[Any, Any]:
    """Arguments with other shardings, over the meshes they have."""
    jax = import_module("jax")
    if not specs:
        return arguments, keywords
    leaves, tree = jax.tree.flatten((tuple(arguments), dict(keywords)))
    named = named_leaves(function, arguments, keywords)
    mesh = mesh_of([leaf for _, leaf in named])
    changed = [
        _resharded(jax, leaf, mesh, specs[name]) if name in specs else leaf for name, leaf in named
    ]
    if missing := set(specs) - {name for name, _ in named}:
        raise CommandError(f"the factory has no argument `{visible(min(missing))}`")
    assert len(changed) == len(leaves)
    placed: tuple[Any, Any] = jax.tree.unflatten(tree, changed)
    return placed


def mesh_of(leaves: list[Any]) -> Any:
    """The mesh of the first leaf that has one."""
    for leaf in leaves:
        mesh = getattr(getattr(leaf, "sharding", None), "mesh", None)
        if mesh is not None:
            return mesh
    raise CommandError("no argument has a sharding over a mesh")


def constrain_by_mesh_alone() -> None:
    """From now on, a constraint by P has no effect where no mesh is set.

    A factory may trace its model before the mesh of its arguments is known, as for their shapes.
    """
    jax = import_module("jax")
    original = jax.lax.with_sharding_constraint

    @wraps(original)
    def constrain(value: Any, shardings: Any) -> Any:
        try:
            return original(value, shardings)
        except RuntimeError:
            if isinstance(shardings, jax.sharding.PartitionSpec):
                return value
            raise

    jax.lax.with_sharding_constraint = constrain


def enter_mesh(arguments: Any, keywords: Any) -> None:
    """Trace all that follows under the mesh of the arguments."""
    mesh_of(import_module("jax").tree.leaves((arguments, keywords))).__enter__()


def _resharded(jax: Any, leaf: Any, mesh: Any, spec: str) -> Any:
    own = getattr(getattr(leaf, "sharding", None), "mesh", None) or mesh
    sharding = jax.sharding.NamedSharding(own, read_spec(spec))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def rejitted(
    notes: Notes,
    function: Any,
    arguments: Any,
    keywords: Any,
    results: Mapping[str, str],
    *,
    has_new_arguments: bool,
) -> tuple[Any, Any, Any]:
    """A function jitted as before, but with other shardings of its results and arguments."""
    jax = import_module("jax")
    noted = notes.jit_of(function)
    if noted is None:
        options: dict[str, Any] = {}
        inner = function
    else:
        options, inner = dict(noted.options), noted.function
    if has_new_arguments:
        options.pop("in_shardings", None)
    if results:
        options["out_shardings"] = _result_shardings(
            jax, notes.real_jit(inner, **options), arguments, keywords, results, options
        )
    return notes.real_jit(inner, **options), arguments, keywords


def _placed_by(jax: Any, given: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with the shardings that jax.jit was given for them, unless they have their own."""
    try:
        shardings = _of_leaves(jax, given, arguments)
    except ValueError:  # not a prefix of them: JAX will say so
        return arguments

    def put(leaf: Any, sharding: Any) -> Any:
        is_whole = hasattr(sharding, "device_set") and hasattr(leaf, "shape")
        if not is_whole or getattr(leaf, "sharding", None) is not None:
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    leaves, tree = jax.tree.flatten(arguments)
    placed = [put(leaf, sharding) for leaf, sharding in zip(leaves, shardings, strict=True)]
    made: tuple[Any, ...] = jax.tree.unflatten(tree, placed)
    return made


def _result_shardings(
    jax: Any, jitted: Any, arguments: Any, keywords: Any, specs: Mapping[str, str], options: Any
) -> Any:
    """The tree of all results, with new shardings for some and those of before for the others."""
    mesh = mesh_of(jax.tree.leaves((arguments, keywords)))
    info = jitted.lower(*arguments, **keywords).out_info
    leaves, tree = jax.tree_util.tree_flatten_with_path(info)
    before: list[Any] = [None] * len(leaves)
    if options.get("out_shardings") is not None:
        before = _of_leaves(jax, options["out_shardings"], info)
    made = []
    for number, (path, _) in enumerate(leaves):
        names = (f"result{jax.tree_util.keystr(path)}", f"result {number}")
        spec = next((specs[name] for name in names if name in specs), None)
        made.append(
            before[number] if spec is None else jax.sharding.NamedSharding(mesh, read_spec(spec))
        )
    return jax.tree.unflatten(tree, made)


def _of_leaves(jax: Any, prefix: Any, tree: Any) -> list[Any]:
    """The values that a prefix of a tree has for each of its leaves, None included.

    A tree may hold None, too, as one of which a library took the other half: no leaf to jax.jit.
    """
    is_none = lambda leaf: leaf is None  # noqa: E731 - a leaf of the prefix
    full = jax.tree.broadcast(prefix, tree, is_leaf=is_none)
    leaves = jax.tree.leaves(tree, is_leaf=is_none)
    found = jax.tree.leaves(full, is_leaf=is_none)
    return [one for one, leaf in zip(found, leaves, strict=True) if leaf is not None]
