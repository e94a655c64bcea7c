"""The messages between the process that probes and the one that asks it."""

from __future__ import annotations

from msgspec import Struct, field

from hlomem.jax.compile.messages import Errand  # noqa: TC001 - msgspec reads it
from hlomem.jax.probes.levers import Seen  # noqa: TC001 - msgspec reads it


class Survey(Struct, frozen=True, kw_only=True):
    """A factory to probe; the answers are files of the errand's folder."""

    errand: Errand
    workers: int
    seconds: int
    """That one probe may take."""


class Probe(Struct, frozen=True, kw_only=True):
    """A change at one place of the source; none for the program as it is."""

    number: int
    key: str = ""
    change: str = ""
    site: str = ""
    """The line whose calls are meant; empty for all."""

    @property
    def file(self) -> str:
        return f"probe_{self.number}.json"


class Placed(Struct, frozen=True, kw_only=True):
    """An array, and how a program says it is split."""

    name: str
    """`argument params['w']`, `result 0`, or a decision: its kind, lines and number."""
    spec: str
    size: int
    """Bytes of the whole array."""
    dimensions: int = 0
    """Their number; 0 where it is not known."""


class Traced(Struct, frozen=True, kw_only=True):
    """The shardings of a program that was traced."""

    arrays: tuple[Placed, ...] = ()
    kept: int = 0
    """Bytes that loops stack, and that backward passes read."""
    kept_as_placed: int = 0
    """Of that, what is an argument, gathered or in another precision."""
    products: int = 0
    """Matrix products and convolutions, by their equations."""
    seen: tuple[Seen, ...] = ()
    """The levers, where none was changed."""
    is_changed: bool = False
    """Whether the expression to change was evaluated."""
    problem: str = ""
    """The failure; empty if there was none."""
    modules: list[str] = field(default_factory=list)
    """Installed modules that it imports."""

    def changed(self, base: Traced) -> dict[str, str]:
        """The specs of arrays that were split otherwise before, by their names."""
        before = {one.name: one.spec for one in base.arrays}
        return {
            one.name: one.spec for one in self.arrays if before.get(one.name, one.spec) != one.spec
        }
