"""The policies of `jax.checkpoint`, each tried on a factory's program by XLA's own plan.

A factory with a parameter `checkpoint` says itself what is wrapped; else the function that is
differentiated is, and then the bodies of scans.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from hlomem.assign.footprint import footprint
from hlomem.base.errors import HlomemError
from hlomem.jax.compile.placeholder import temporaries_of
from hlomem.jax.compile.scheduled_module import PLACES, Place, Places, capture_into
from hlomem.jax.pass_.register import compiler_options
from hlomem.opt.candidate import start_text
from hlomem.opt.orders.cost import model_time, program_flops
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.jax.compile.messages import Job
    from hlomem.report.data.front import FrontPoint

POLICIES = (
    "everything_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "nothing_saveable",
)
_IN_WORDS: Mapping[Place, str] = {
    "checkpoint": "what the factory wraps with `checkpoint`",
    "gradient": "what jax.grad, jax.value_and_grad and jax.vjp differentiate",
    "scan": "the bodies of jax.lax.scan",
}
_IN_NAMES: Mapping[Place, str] = {"checkpoint": "", "gradient": ", whole", "scan": ", scan"}
_WRAPPED: Mapping[Place, str] = {
    "checkpoint": "layer = jax.checkpoint(layer, policy=policy)  # what `checkpoint` wraps",
    "gradient": "loss = jax.checkpoint(loss, policy=policy)  # what is differentiated",
    "scan": "body = jax.checkpoint(body, policy=policy, prevent_cse=False)  # of the scan",
}
_NOTHING_SEEN = (
    "nothing was seen to be differentiated; a factory's parameter `checkpoint` can say what to wrap"
)


class TriedPolicies(NamedTuple):
    """The policies of which there is a plan, and words on the others."""

    points: tuple[FrontPoint, ...]
    notes: tuple[str, ...]


def try_policies(
    job: Job, given: FrontPoint, timeout: float, on_progress: Callable[[str], None] = lambda _: None
) -> TriedPolicies:
    """Plan a factory's program under each policy, at each place it can be put around."""
    search = _Search(job, given, timeout, on_progress)
    first = search.try_all("gradient")
    if any(places.wrapped == "gradient" and places.gradients * places.scans for places in first):
        search.try_all("scan")
    return TriedPolicies(tuple(search.points), tuple(dict.fromkeys(search.notes)))


class _Search:
    def __init__(
        self, job: Job, given: FrontPoint, timeout: float, on_progress: Callable[[str], None]
    ) -> None:
        self._job = job
        self._given = given
        self._timeout = timeout
        self._on_progress = on_progress
        self.points: list[FrontPoint] = []
        self.notes: list[str] = []

    def try_all(self, place: Place) -> list[Places]:
        """Try every policy at a place; what was seen of the program's places."""
        seen = []
        for policy in POLICIES:
            self._on_progress(f"tries {policy} on")
            try:
                point, places = self._try(policy, place)
            except HlomemError as error:
                problem = str(error).partition("\n")[0]
                self.notes.append(f"{_legend(place)}: {problem}")
                continue
            seen.append(places)
            if places.wrapped == "gradient" and not places.gradients:
                self.notes.append(f"jax.checkpoint was not tried: {_NOTHING_SEEN}")
                break
            self.points.append(point)
            self.notes.append(f"{_legend(places.wrapped)}, as XLA plans it")
        return seen

    def _try(self, policy: str, place: Place) -> tuple[FrontPoint, Places]:
        with TemporaryDirectory(prefix="hlomem-") as folder:
            file = Path(folder) / "module.pb"
            checkpoint = {"policy": policy, "place": place}
            planned, proto = capture_into(
                file, self._job, self._timeout, lambda _: None, checkpoint
            )
            found = Path(f"{file}{PLACES}").read_bytes()
        places = msgspec.json.decode(found, type=Places)
        options = compiler_options(planned.target.family, planned.target.machine.chip_name)
        stages = start_text(read_module(proto), options)
        given = self._given
        assert planned.dump.assignment is not None
        point = replace(
            given,
            name=f"{policy}{_IN_NAMES[places.wrapped]}",
            kind="policy",
            temporaries=temporaries_of(planned.dump),
            total=footprint(planned.dump.assignment.allocations),
            flops=program_flops(stages) - given.program_flops,
            time=model_time(stages, {}).before - given.program_time,
            code=f"policy = jax.checkpoint_policies.{policy}\n{_WRAPPED[places.wrapped]}",
        )
        return point, places


def _legend(place: Place) -> str:
    return f"`…_saveable{_IN_NAMES[place]}`: jax.checkpoint around {_IN_WORDS[place]}"
