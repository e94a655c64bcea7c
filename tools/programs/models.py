"""Networks and their training steps, each written once, for any size."""

from __future__ import annotations

from typing import Any

from tools.programs.parts import (
    adam,
    block,
    centered,
    conv,
    cross_entropy,
    down,
    jax,
    jnp,
    lax,
    normed,
    wide_block,
)


def mlp(ws: Any, x: Any) -> Any:
    """Dense layers."""
    for w, b in ws[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ ws[-1][0] + ws[-1][1]


def gpt(ps: Any, tokens: Any, *, layer: Any = block) -> Any:
    """A transformer with its layers one after another."""
    x = ps["embed"][tokens]
    for w in ps["layers"]:
        x = layer(x, w)
    return centered(x) @ ps["embed"].T


def gpt_scan(
    ps: Any, tokens: Any, *, remat: bool = False, layer: Any = block, norm: Any = centered
) -> Any:
    """The same in a loop."""
    body = jax.checkpoint(layer) if remat else layer
    x, _ = lax.scan(lambda x, w: (body(x, w), None), ps["embed"][tokens], ps["layers"])
    return norm(x) @ ps["embed"].T


def gpt_remat(ps: Any, tokens: Any) -> Any:
    """The first, recomputed in the backward pass."""
    return gpt(ps, tokens, layer=jax.checkpoint(block))


def language_loss(ps: Any, tokens: Any, labels: Any) -> Any:
    """The loss of a large language model in a loop, recomputed."""
    logits = gpt_scan(ps, tokens, remat=True, layer=wide_block, norm=normed)
    return cross_entropy(logits, labels)


def resnet(ws: Any, x: Any) -> Any:
    """Convolutions with short cuts."""
    x = conv(x, ws["stem"])
    for first, second in ws["blocks"]:
        x = x + conv(jax.nn.relu(_batch_norm(conv(x, first))), second)
    return x.mean((1, 2)) @ ws["head"]


def _batch_norm(x: Any) -> Any:
    mean = x.mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean((0, 1, 2)) + 1e-5)


def unet(ws: Any, x: Any) -> Any:
    """Down, across and up again."""
    skips = []
    for w in ws["down"]:
        x = jax.nn.silu(conv(x, w))
        skips.append(x)
        x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") / 4
    for w, skip in zip(ws["up"], reversed(skips), strict=True):
        x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
        x = jax.nn.silu(conv(jnp.concatenate([x, skip], -1), w))
    return x


def vit(ws: Any, images: Any) -> Any:
    """A transformer over patches."""
    batch, side, _, channels = images.shape
    patches = images.reshape(batch, side // 8, 8, side // 8, 8, channels)
    x = patches.transpose(0, 1, 3, 2, 4, 5).reshape(batch, (side // 8) ** 2, -1) @ ws["embed"]
    for w in ws["layers"]:
        x = block(x, w)
    return x.mean(1) @ ws["head"]


def lstm(ws: Any, xs: Any) -> Any:
    """A recurrent network."""

    def cell(state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ ws, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], ws.shape[1] // 4))
    return lax.scan(cell, (zero, zero), xs)[1]


def moe(x: Any, gate: Any, experts: Any) -> Any:
    """The two best of several experts."""
    weights, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
    outs = jnp.stack([jax.nn.relu(x @ up) @ down for up, down in experts], 1)
    return jnp.einsum("nk,nkd->nd", weights, jnp.take_along_axis(outs, chosen[..., None], 1))


def integrate(y: Any, w: Any) -> Any:
    """Runge and Kutta's steps, unrolled."""

    def slope(y: Any) -> Any:
        return jnp.tanh(y @ w)

    for _ in range(6):
        a = slope(y)
        b = slope(y + 0.05 * a)
        c = slope(y + 0.05 * b)
        d = slope(y + 0.1 * c)
        y = y + 0.1 / 6 * (a + 2 * b + 2 * c + d)
    return y


def train(model: Any, ps: Any, x: Any, y: Any) -> Any:
    """A step of gradient descent on labels."""
    loss, gradients = jax.value_and_grad(lambda ps: cross_entropy(model(ps, x), y))(ps)
    return down(gradients, ps), loss


def train_with_adam(model: Any, state: Any, x: Any, y: Any) -> Any:
    """A step of Adam on labels."""
    loss, gradients = jax.value_and_grad(lambda ps: cross_entropy(model(ps, x), y))(state[0])
    return adam(gradients, state), loss


def square(model: Any) -> Any:
    """The mean of the squares of a network's results, a loss that needs no labels."""
    return lambda ps, *given: (model(ps, *given) ** 2).mean()
