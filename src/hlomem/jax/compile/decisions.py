"""The acts by which a program says how its arrays are split, noted while it is made and traced.

For a child process that does nothing else. Where JAX is asked for a constraint, a `shard_map` or a
loop, the lines of the user's code that led to it are noted, and a `Job` may have it do otherwise:
so helpers, tables, closures and libraries are all the same.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from functools import partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.jax.compile.exchanged import exchanged
from hlomem.jax.compile.flat_jaxprs import bytes_of, inner_jaxprs
from hlomem.jax.compile.frames import is_users, users_frames
from hlomem.jax.compile.hoisted import HoistedValues
from hlomem.report.data.sharding.decision import Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hlomem.jax.compile.origins import Origins
    from hlomem.report.data.sharding.decision import Frame, OtherDecision

_MAX_DECISIONS = 4000
PARTITIONABLE = "threefry2x32"
"""The generator of JAX of which each device can draw its own part."""
_CALLERS = ("_run_python_pjit", "_python_pjit_helper")
"""Functions of JAX that call a jitted one for the user, not for a transformation of it."""
PLACING = frozenset(
    {"sharding_constraint", "reshard", "all_gather", "all_gather_invariant", "copy", "device_put",
     "convert_element_type", "jit", "pjit", "pvary", "pcast", "stop_gradient"}
)  # fmt: skip
"""Operations of functions that only place what they are given."""
_DERIVED = frozenset(
    {"reduce_scatter", "psum_scatter", "psum", "psum2", "psum_invariant", "add_any", "reduce_sum",
     "broadcast_in_dim", "mul"}
)  # fmt: skip
"""Operations of their gradients."""


class Decisions:
    """The decisions of a program, in the order in which they were met."""

    def __init__(self, origins: Origins, others: Sequence[OtherDecision] = ()) -> None:
        self.origins = origins
        self.noted: dict[Decision, None] = {}
        self._others = {one.key: one for one in others}
        self._exchanged = {
            one.decision.applied[0].line
            for one in others
            if one.decision.kind == "gather" and one.decision.applied
        }
        self._constrained: dict[int, tuple[Any, str]] = {}
        """The values of constraints, which are kept so that no other has their `id`."""
        self._hoisted = HoistedValues()
        self._rules: Any = None
        """The last rules of logical axes that Flax was told of."""

    def install(self) -> None:
        """From now on, note what JAX is asked for, and do otherwise where it is said."""
        import_module("jax._src.source_info_util").register_exclusion(__file__)
        pjit: Any = import_module("jax._src.pjit")
        if hasattr(pjit, "sharding_constraint_p"):
            pjit.sharding_constraint_p.bind = self._constraining(pjit)
        _hook(getattr(pjit, "jit_p", None), "bind", self._calling)
        _hook(import_module("jax._src.shard_map"), "_shard_map", self._mapping)
        remat = getattr(import_module("jax._src.ad_checkpoint"), "remat_p", None)
        _hook(remat, "bind", self._recomputing)
        _hook(import_module("jax.lax"), "scan", self._scanning)
        _hook(import_module("jax.lax"), "all_gather", self._gathering)
        for name in ("key", "PRNGKey"):
            _hook(import_module("jax.random"), name, self._seeding)
        convert = getattr(import_module("jax._src.lax.lax"), "convert_element_type_p", None)
        _hook(convert, "bind", self._converting)

    def install_in_libraries(self) -> None:
        """From now on, note constraints by logical axes that Flax leaves out, if it is imported."""
        for name in ("flax.linen", "flax.linen.spmd"):
            _hook(sys.modules.get(name), "with_logical_constraint", self._naming)
        in_force = getattr(sys.modules.get("flax.core.spmd"), "_axis_rules", None)
        if in_force is not None:
            in_force.__class__ = self._noting_rules(type(in_force))

    def _noting_rules(self, kind: type[Any]) -> type[Any]:
        """The class of Flax's rules in force, which a trace after their `with` does not find."""

        def note(in_force: Any, name: str, value: Any) -> None:
            super(kind, in_force).__setattr__(name, value)
            if name == "rules" and value:
                self._rules = value

        return type(kind.__name__, (kind,), {"__setattr__": note})

    def _naming(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def constrain(x: Any, logical_axis_resources: Any, *rest: Any, **options: Any) -> Any:
            made = original(x, logical_axis_resources, *rest, **options)
            if made is not x or not hasattr(x, "shape") or not self.origins.meshes:
                return made
            rules = (*rest, options.get("rules"))[0]
            if rules is None and not sys.modules["flax.linen"].get_logical_axis_rules():
                rules = self._rules
            axes = sys.modules["flax.linen"].logical_to_mesh_axes(logical_axis_resources, rules)
            if axes is None or not any(axes):
                return made
            decision = Decision(
                kind="dropped",
                shapes=(tuple(x.shape),),
                specs=(spec_text(axes),),
                sizes=(bytes_of(x),),
                applied=users_frames(),
            )
            if self._note(decision) is None:
                return made
            jax = import_module("jax")
            sharding = jax.sharding.NamedSharding(self.origins.meshes[-1], axes)
            return jax.lax.with_sharding_constraint(x, sharding)

        return constrain

    def _note(self, decision: Decision) -> OtherDecision | None:
        if len(self.noted) < _MAX_DECISIONS:
            self.noted.setdefault(decision)
        return self._others.get(decision.key)

    def _constraining(self, pjit: Any) -> Callable[..., Any]:
        primitive = pjit.sharding_constraint_p
        original = primitive.bind
        asking = _inner_code(pjit.with_sharding_constraint)

        @wraps(original)
        def bind(value: Any, **options: Any) -> Any:
            if sys._getframe(1).f_code is not asking:
                return original(value, **options)
            sharding = options["sharding"]
            given = sys._getframe(1).f_locals.get("shardings", sharding)
            decision = Decision(
                kind="constraint",
                shapes=(tuple(value.shape),),
                specs=(spec_text(sharding),),
                sizes=(bytes_of(value),),
                applied=users_frames(),
                made=self._of_one(given, sharding, self.origins.made),
                written=self._of_one(given, sharding, self.origins.written),
                of=self._constrained.get(id(value), (None, ""))[1],
            )
            other = self._note(decision)
            if other is None:
                made = original(value, **options)
                self._constrained[id(made)] = (made, decision.specs[0])
                self._note_constrained(made, value, sharding, decision)
                return made
            made = _twin(value) if other.is_used else value
            for spec in other.specs:
                options["sharding"] = _with_spec(sharding, spec)
                made = original(made, **options)
            if other.is_used:
                _put_in_place(made, value)
            return made

        return bind

    def _note_constrained(self, made: Any, value: Any, sharding: Any, decision: Decision) -> None:
        """A constraint on all that leaves the first dimension whole may be put on each part."""
        spec = getattr(sharding, "spec", None)
        if spec is None or (len(spec) > 0 and spec[0] is not None):
            return
        jax = import_module("jax")
        part = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*spec[1:]))
        constrain = jax.lax.with_sharding_constraint
        self._hoisted.note(made, value, lambda one: constrain(one, part), decision)

    def _converting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def bind(value: Any, **options: Any) -> Any:
            made = original(value, **options)
            self._hoisted.note(made, value, lambda part: part.astype(options["new_dtype"]))
            return made

        return bind

    def _calling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Note the results of jitted functions, inside another, that are to have a sharding."""
        tracer = import_module("jax").core.Tracer

        @wraps(original)
        def bind(*values: Any, **options: Any) -> Any:
            is_users = sys._getframe(1).f_code.co_name in _CALLERS
            if is_users and any(isinstance(one, tracer) for one in values):
                frames, shapes = users_frames(), options["jaxpr"].out_avals
                pairs = zip(options["out_shardings"], shapes, strict=True)
                asked = tuple([self._asked(one, value, frames) for one, value in pairs])
                options = {**options, "out_shardings": asked}
            return original(*values, **options)

        return bind

    def _asked(self, sharding: Any, value: Any, frames: tuple[Frame, ...]) -> Any:
        """The sharding of one result of a jitted function, as it is or is to be instead."""
        if not isinstance(sharding, import_module("jax").sharding.NamedSharding):
            return sharding
        decision = Decision(
            kind="constraint",
            shapes=(tuple(value.shape),),
            specs=(spec_text(sharding),),
            sizes=(bytes_of(value),),
            applied=frames,
            made=self.origins.made(sharding),
            written=self.origins.written(sharding),
        )
        other = self._note(decision)
        if other is None:
            return sharding
        if other.specs:
            return _with_spec(sharding, other.specs[-1])
        return import_module("jax._src.sharding_impls").UNSPECIFIED

    def _of_one(
        self, given: Any, sharding: Any, origin: Callable[[Any], tuple[Frame, ...]]
    ) -> tuple[Frame, ...]:
        """The origin of that part of a tree of shardings which is the one that was used."""
        leaves = import_module("jax").tree.leaves(given)
        specs = [leaf for leaf in leaves if spec_text(leaf) == spec_text(sharding)]
        return next((found for leaf in specs if (found := origin(leaf))), ())

    def _mapping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def shard_map(function: Any, **options: Any) -> Any:
            made = users_frames()

            def called(*arguments: Any) -> Any:
                jax = import_module("jax")
                specs, placed = _flat_specs(jax, options["in_specs"], arguments)
                decision = Decision(
                    kind="shard_map",
                    shapes=tuple([tuple(getattr(one, "shape", ())) for one in placed]),
                    specs=tuple([spec_text(spec) for spec in specs]),
                    sizes=tuple([bytes_of(one) for one in placed]),
                    applied=made,
                    made=users_frames(),
                    written=next((f for spec in specs if (f := self.origins.written(spec))), ()),
                )
                other = self._note(decision)
                given = options if other is None else _with_axes(jax, options, other.specs)
                return original(self._with_exchanges(function), **given)(*arguments)

            return called

        return shard_map

    def _gathering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def all_gather(x: Any, axis_name: Any, **options: Any) -> Any:
            leaves = import_module("jax").tree.leaves(x)
            decision = Decision(
                kind="gather",
                shapes=tuple([tuple(leaf.shape) for leaf in leaves]),
                specs=(repr(axis_name),),
                sizes=tuple([bytes_of(leaf) for leaf in leaves]),
                applied=users_frames(),
            )
            self._note(decision)
            made = original(x, axis_name, **options)
            if (at := options.get("axis", 0)) > 0:
                of_part = partial(original, axis_name=axis_name, **{**options, "axis": at - 1})
                for one, before in zip(import_module("jax").tree.leaves(made), leaves, strict=True):
                    self._hoisted.note(one, before, of_part, decision)
            return made

        return all_gather

    def _seeding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Note the keys of generators whose numbers each device draws all of."""
        config = import_module("jax").config

        @wraps(original)
        def make(seed: Any, **options: Any) -> Any:
            given = options.get("impl") or config.jax_default_prng_impl
            name = str(getattr(given, "name", given))
            if name == PARTITIONABLE and config.jax_threefry_partitionable:
                return original(seed, **options)
            other = self._note(Decision(kind="random", specs=(name,), applied=users_frames()))
            if other is not None:
                config.update("jax_threefry_partitionable", True)
                options = {**_without(options, "dtype"), "impl": PARTITIONABLE}
            return original(seed, **options)

        return make

    def _recomputing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def bind(*values: Any, **options: Any) -> Any:
            self._note(Decision(kind="checkpoint", applied=users_frames()))
            return original(*values, **options)

        return bind

    def _scanning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def scan(f: Any, *arguments: Any, **options: Any) -> Any:
            jax = import_module("jax")
            start = (*arguments, options.get("init"))[0]
            if len(arguments) > 1:
                f, rows = self._hoisted.sunk(f, arguments[1], self._note, users_frames())
                arguments = (arguments[0], rows, *arguments[2:])
            elif "xs" in options:
                f, rows = self._hoisted.sunk(f, options["xs"], self._note, users_frames())
                options = {**options, "xs": rows}
            leaves = [one for one in jax.tree.leaves(start) if hasattr(one, "shape")]
            decision = Decision(
                kind="scan",
                shapes=tuple([tuple(one.shape) for one in leaves]),
                sizes=tuple([bytes_of(one) for one in leaves]),
                applied=users_frames(),
            )
            other = self._note(decision)
            if other is not None and other.specs:
                start = self._constrained_tree(start, other)
                arguments, options = (start, *arguments[1:]), _without(options, "init")
            elif other is not None:
                f = jax.checkpoint(f, prevent_cse=False, policy=_policy(other.dropped))
            return original(self._with_exchanges(f), *arguments, **options)

        return scan

    def _constrained_tree(self, tree: Any, other: OtherDecision) -> Any:
        """The arrays of a tree with constraints, of those of a decision that have a spec."""
        jax, mesh = import_module("jax"), self.origins.meshes[-1]
        wanted = dict(zip(other.decision.shapes, other.specs, strict=True))

        def constrain(one: Any) -> Any:
            spec = wanted.get(tuple(one.shape), "") if hasattr(one, "shape") else ""
            if not spec:
                return one
            sharding = jax.sharding.NamedSharding(mesh, read_spec(spec))
            return jax.lax.with_sharding_constraint(one, sharding)

        return jax.tree.map(constrain, tree)

    def _with_exchanges(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function with all-to-alls instead of the gathers that are to be done otherwise."""
        return exchanged(function, self._exchanged) if self._exchanged else function


def _without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}


def _twin(value: Any) -> Any:
    """Another tracer of the same value, which stays what it is if the first becomes another."""
    made = object.__new__(type(value))
    _put_in_place(value, made)
    return made


def _put_in_place(made: Any, value: Any) -> None:
    """Have a traced value be another from now on, wherever it is read."""
    if type(made) is not type(value):
        return
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    for name in names:
        if name != "__weakref__" and hasattr(made, name):
            setattr(value, name, getattr(made, name))


def _policy(dropped: Sequence[str]) -> Callable[..., bool] | None:
    """A policy of jax.checkpoint that keeps all but the results of some operations."""
    return (lambda primitive, *_, **__: primitive.name not in dropped) if dropped else None


def _hook(owner: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
    """Wrap a function of JAX, where this release has it."""
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, wrapped(original))


def _inner_code(function: Any) -> Any:
    return getattr(function, "__wrapped__", function).__code__


def spec_text(sharding: Any) -> str:
    """A spec as JAX writes it: `P('data', None)`."""
    spec = getattr(sharding, "spec", sharding)
    return f"P({', '.join(map(repr, spec))})" if isinstance(spec, tuple) or _is_spec(spec) else ""


def _is_spec(spec: Any) -> bool:
    return isinstance(spec, import_module("jax").sharding.PartitionSpec)


def read_spec(text: str) -> Any:
    """A `jax.sharding.PartitionSpec` of its text, `P('data', None)`."""
    partition = import_module("jax").sharding.PartitionSpec
    inside = text.removeprefix("P(").removesuffix(")").strip()
    return partition(*ast.literal_eval(f"({inside},)")) if inside else partition()


def _with_spec(sharding: Any, text: str) -> Any:
    jax = import_module("jax")
    return jax.sharding.NamedSharding(sharding.mesh, read_spec(text))


def _flat_specs(jax: Any, prefix: Any, arguments: Any) -> tuple[list[Any], list[Any]]:
    """The spec of each array that a `shard_map` is called with."""
    is_spec = lambda one: one is None or _is_spec(one)  # noqa: E731 - a leaf of the prefix
    try:
        full = jax.tree.broadcast(prefix, arguments, is_leaf=is_spec)
    except ValueError:
        return [], []
    specs = jax.tree.leaves(full, is_leaf=is_spec)
    values = jax.tree.leaves(arguments, is_leaf=lambda one: one is None)
    if len(specs) != len(values):
        return [], []
    given = [(spec, one) for spec, one in zip(specs, values, strict=True) if one is not None]
    return [spec for spec, _ in given], [one for _, one in given]


def _with_axes(jax: Any, options: dict[str, Any], specs: Sequence[str]) -> dict[str, Any]:
    """The options of a `shard_map` with another spec where one is written."""
    pairs = dict(pair.split(" -> ") for pair in specs)

    def other(spec: Any) -> Any:
        return (
            read_spec(pairs[spec_text(spec)])
            if _is_spec(spec) and spec_text(spec) in pairs
            else spec
        )

    is_leaf = lambda one: one is None or _is_spec(one)  # noqa: E731 - a leaf of the tree
    changed = {
        name: jax.tree.map(other, options[name], is_leaf=is_leaf)
        for name in ("in_specs", "out_specs")
    }
    return {**options, **changed}


def decision_names(decisions: Iterable[Decision]) -> dict[Decision, str]:
    """Names of decisions by their lines and order, whatever they ask for."""
    counts: Counter[str] = Counter()
    names = {}
    for one in decisions:
        head = " ".join([one.kind, *[frame.line for frame in one.applied]])
        counts[head] += 1
        names[one] = f"{head} #{counts[head]}"
    return names


def placing_functions(jaxpr: Any) -> tuple[str, ...]:
    """`file:line` where functions of the user begin that compute nothing, but place and convert.

    What JAX computes of a function's gradient is not written in it.
    """
    computes: dict[str, bool] = {}
    for equation, is_gradient in _equations_of(getattr(jaxpr, "jaxpr", jaxpr)):
        if is_gradient and equation.primitive.name in _DERIVED:
            continue
        is_computed = equation.primitive.name not in PLACING
        trace = getattr(equation.source_info, "traceback", None)
        for frame in getattr(trace, "frames", ()):
            if is_users(frame.file_name):
                key = f"{frame.file_name}::{frame.function_name}"
                computes[key] = computes.get(key, False) or is_computed
    return tuple([name for name, is_computed in computes.items() if not is_computed])


def equations_of(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr, and of those in it."""
    for equation, _ in _equations_of(jaxpr):
        yield equation


def _equations_of(jaxpr: Any, *, is_inside: bool = False) -> Iterator[tuple[Any, bool]]:
    """The equations, and whether each is a gradient's, or inside of one."""
    for equation in jaxpr.eqns:
        is_gradient = is_inside or "transpose(" in str(equation.source_info.name_stack)
        yield equation, is_gradient
        for part in inner_jaxprs(equation):
            yield from _equations_of(getattr(part, "jaxpr", part), is_inside=is_gradient)
