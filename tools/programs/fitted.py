"""Training steps that programs are fitted to a number with, in addition to those of `small`.

A U-net of three levels, experts in four layers, and, where Flax and Optax are installed, a
transformer and a residual network written with them. In the smaller ones of `small` a
single instruction already needs more than half of the temporaries.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tools.programs.models import moe, square, unet
from tools.programs.parts import Program, down, floats, jax, jnp
from tools.programs.small import PROGRAMS


def _descend(loss: Any, ps: Any, *given: Any) -> Any:
    value, gradients = jax.value_and_grad(loss)(ps, *given)
    return down(gradients, ps), value


def _experts_loss(layers: Any, x: Any) -> Any:
    for gate, experts in layers:
        x = x + moe(jnp.tanh(x), gate, experts)
    return (x**2).mean()


_UNET = {
    "down": [floats(3, 3, 8, 16), floats(3, 3, 16, 32), floats(3, 3, 32, 64)],
    "up": [floats(3, 3, 128, 32), floats(3, 3, 64, 16), floats(3, 3, 32, 8)],
}
_EXPERTS = [
    (floats(128, 4), [(floats(128, 256), floats(256, 128)) for _ in range(4)]) for _ in range(4)
]


def _flax_programs() -> dict[str, Program]:
    """Two models of Flax with Adam, their state given for good."""
    nn: Any = import_module("flax.linen")
    optax: Any = import_module("optax")

    class Encoder(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            for _ in range(4):
                x = x + nn.SelfAttention(num_heads=4)(nn.LayerNorm()(x))
                x = x + nn.Dense(128)(nn.gelu(nn.Dense(512)(nn.LayerNorm()(x))))
            return x

    class Residual(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(32, (3, 3))(x)
            for _ in range(6):
                x = x + nn.Conv(32, (3, 3))(nn.relu(nn.GroupNorm(8)(nn.Conv(32, (3, 3))(x))))
            return x.mean((1, 2))

    def step(model: Any, state: Any, x: Any) -> Any:
        ps, memory = state
        loss, grads = jax.value_and_grad(lambda ps: (model.apply(ps, x) ** 2).mean())(ps)
        updates, memory = optax.adam(1e-3).update(grads, memory, ps)
        return (optax.apply_updates(ps, updates), memory), loss

    made: dict[str, Program] = {}
    for name, model, x in (
        ("flax_encoder", Encoder(), floats(8, 128, 128)),
        ("flax_resnet", Residual(), floats(8, 32, 32, 3)),
    ):
        ps = jax.eval_shape(model.init, jax.random.key(0), x)
        memory = jax.eval_shape(optax.adam(1e-3).init, ps)
        made[name] = Program(partial(step, model), ((ps, memory), x), (0,))
    return made


FIT_PROGRAMS: dict[str, Program] = {
    **PROGRAMS,
    "unet_deep_train": Program(partial(_descend, square(unet)), (_UNET, floats(4, 64, 64, 8))),
    "moe_train": Program(partial(_descend, _experts_loss), (_EXPERTS, floats(512, 128))),
    **(_flax_programs() if find_spec("flax") and find_spec("optax") else {}),
}
