"""`import hlomem.jax.auto`: every program of this process is optimised, until it ends.

For programs that cannot be changed: `python -c "import hlomem.jax.auto, runpy; …"`, or a line in
sitecustomize. In a child of `hlomem compile` it is on for the compile's target. A JAX without the
hook is said once, by a warning, and is otherwise as before.
"""

from __future__ import annotations

import os
import warnings

from hlomem.jax.compile.messages import TARGET
from hlomem.jax.pass_.register import Optimization, UnsupportedJaxError, optimize

OPTIMIZATION: Optimization | None = None
"""The pass, where it is on."""
try:
    OPTIMIZATION = optimize(target=os.environ.get(TARGET, ""))
except UnsupportedJaxError as error:
    warnings.warn(f"hlomem.jax.auto does nothing: {error}", stacklevel=2)
