"""The machines that JAX can compile for here, and what others want; for `hlomem doctor`."""

from __future__ import annotations

from hlomem.jax.target_kinds import targets
from hlomem.report.data.health import TargetHealth


def examine_targets() -> list[TargetHealth]:
    """Every kind of machine to compile for; nothing is imported to find out."""
    return [TargetHealth(name=row.name, install=row.install) for row in targets()]
