"""A function and its arguments for a child: the function by name, arguments as shapes in a file.

In: arguments, arrays or trees of them. Out: a file; and the factory that reads it in the child and
hands the function of a module with these shapes to the compiler. A sharding over a mesh is made
again over the target's devices.
"""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import CommandError
from hlomem.jax.compile.factories import find_factory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FACTORY = f"{__name__}:program"


class _Leaf(NamedTuple):
    """An array, without its values."""

    shape: tuple[int, ...]
    dtype: str
    is_weak: bool
    mesh: tuple[tuple[str, int], ...]
    """Names and sizes of the axes of the mesh it is sharded over."""
    spec: tuple[Any, ...]


@contextmanager
def kept_arguments(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Iterator[Path]:
    """A file with the shapes of arguments, gone afterwards."""
    jax = import_module("jax")
    shapes = jax.tree.map(_leaf_of, (tuple(arguments), dict(keywords)))
    with TemporaryDirectory(prefix="hlomem-") as folder:
        file = Path(folder) / "arguments.pickle"
        try:
            file.write_bytes(pickle.dumps(shapes))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            problem = f"the arguments cannot be handed to another process: {error}"
            raise CommandError(f"{problem}\n  give a factory that makes them instead") from error
        yield file


def _leaf_of(leaf: Any) -> Any:
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    sharding = getattr(leaf, "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    axes = tuple(dict(mesh.shape).items()) if mesh is not None else ()
    spec = tuple(sharding.spec) if sharding is not None and axes else ()
    is_weak = bool(getattr(leaf, "weak_type", False))
    return _Leaf(tuple(leaf.shape), str(leaf.dtype), is_weak, axes, spec)


def program(devices: Sequence[Any], function: str, arguments: str) -> Any:
    """The factory: a function of a module, and its arguments as shapes."""
    jax = import_module("jax")
    numpy = import_module("numpy")
    shapes = pickle.loads(Path(arguments).read_bytes())  # noqa: S301 - written by `kept_arguments`

    def shape_of(leaf: Any) -> Any:
        if not isinstance(leaf, _Leaf):
            return leaf
        dtype = jax.random.key(0).dtype if leaf.dtype.startswith("key<") else leaf.dtype
        sharding = None
        if leaf.mesh:
            sizes = [size for _, size in leaf.mesh]
            count = int(numpy.prod(sizes))
            if count > len(devices):
                problem = f"an argument is sharded over {count} devices, the target has"
                raise CommandError(f"{problem} {len(devices)}")
            grid = numpy.array(devices[:count]).reshape(sizes)
            mesh = jax.sharding.Mesh(grid, [name for name, _ in leaf.mesh])
            sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*leaf.spec))
        return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=sharding, weak_type=leaf.is_weak)

    is_leaf = lambda leaf: isinstance(leaf, _Leaf)  # noqa: E731 - a tuple is a tree otherwise
    placed, named = jax.tree.map(shape_of, shapes, is_leaf=is_leaf)
    return find_factory(function), placed, named
