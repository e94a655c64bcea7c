"""The programs orders are measured with: of the kinds people run, small enough to run on a CPU.

Each is a function and its arguments as shapes. Training steps come with and without donated
arguments, models unrolled, scanned and rematerialized.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tools.programs.models import (
    gpt,
    gpt_remat,
    gpt_scan,
    integrate,
    lstm,
    mlp,
    moe,
    resnet,
    square,
    train,
    train_with_adam,
    unet,
    vit,
)
from tools.programs.parts import (
    Program,
    block_shapes,
    dense,
    descend,
    floats,
    jax,
    jnp,
    language,
    lax,
    looped,
    numbers,
    run_softmax,
    thrice,
)


def decode(ps: Any, caches: Any, x: Any, place: Any) -> Any:
    """A token through layers with caches."""
    new = []
    for w, (old_keys, old_values) in zip(ps, caches, strict=True):
        q, k, v = (x @ w[name] for name in ("q", "k", "v"))
        keys = lax.dynamic_update_slice(old_keys, k[:, None], (0, place, 0))
        values = lax.dynamic_update_slice(old_values, v[:, None], (0, place, 0))
        shares = jax.nn.softmax(jnp.einsum("bd,bsd->bs", q, keys), -1)
        x = x + jnp.einsum("bs,bsd->bd", shares, values)
        new.append((keys, values))
    return new, x


def decode_scan(ps: Any, caches: Any, x: Any, place: Any) -> Any:
    """The same in a loop."""

    def layer(x: Any, inputs: Any) -> Any:
        w, cache = inputs
        [cache], x = decode([w], [cache], x, place)
        return x, cache

    return lax.scan(layer, x, (ps, caches))


def flash(q: Any, k: Any, v: Any) -> Any:
    """Attention block by block."""

    def step(state: Any, block: Any) -> Any:
        keys, values = block
        return run_softmax(state, q @ keys.T, lambda weight: weight @ values), None

    count = q.shape[0]
    blocks = (k.reshape(-1, 64, k.shape[1]), v.reshape(-1, 64, v.shape[1]))
    start = (jnp.full((count,), -1e9), jnp.zeros((count,)), jnp.zeros_like(q))
    (_, total, out), _ = lax.scan(step, start, blocks)
    return out / total[:, None]


def branches(x: Any, ws: Any) -> Any:
    """Many ways from one value, joined at the end."""
    return jnp.stack([jnp.cumsum(jnp.sort(x * w, 0)[:128], 1)[:, :1] for w in ws])


def statistics(x: Any) -> Any:
    """Orders, tops and sums of one array."""
    tops = lax.top_k(x, 8)[0]
    return jnp.sort(x).sum(), jnp.argsort(x, 0).sum(), tops.sum(), jnp.median(x, 0), x.argmax(1)


def embed_update(table: Any, tokens: Any, updates: Any) -> Any:
    """Rows read and written by index."""
    return table.at[tokens].add(updates), table[tokens] @ updates.T


def spectral(x: Any, k: Any) -> Any:
    """A convolution by Fourier transforms."""
    return jnp.fft.irfft2(jnp.fft.rfft2(x) * jnp.fft.rfft2(k), s=x.shape[-2:]) + x


def solve(a: Any, b: Any) -> Any:
    """Conjugate gradients."""
    spd = a @ a.T + jnp.eye(a.shape[0])

    def step(_: int, state: Any) -> Any:
        x, r, p = state
        ap = spd @ p
        alpha = (r @ r) / (p @ ap)
        new = r - alpha * ap
        return x + alpha * p, new, new + (new @ new) / (r @ r) * p

    return lax.fori_loop(0, 20, step, (jnp.zeros_like(b), b, b))[0]


def bodies(x: Any, v: Any) -> Any:
    """Forces between all pairs."""
    gap = x[:, None] - x[None]
    near = (gap**2).sum(-1) + 1e-2
    force = -(gap / near[..., None] ** 1.5).sum(1)
    return x + 0.01 * v, v + 0.01 * force


def clusters(points: Any, centers: Any) -> Any:
    """Five rounds of k-means."""
    for _ in range(5):
        far = ((points[:, None] - centers[None]) ** 2).sum(-1)
        member = jax.nn.one_hot(far.argmin(1), centers.shape[0])
        centers = (member.T @ points) / (member.sum(0)[:, None] + 1e-6)
    return centers


def prefix(x: Any) -> Any:
    """Products of all beginnings."""
    return lax.associative_scan(lambda a, b: a * b, x)


def drop(x: Any, w: Any, seed: Any) -> Any:
    """A gradient through dropped values."""
    key = jax.random.wrap_key_data(seed)

    def loss(w: Any) -> Any:
        kept = jax.random.bernoulli(key, 0.9, (x.shape[0], w.shape[1]))
        return jnp.where(kept, jnp.tanh(x @ w), 0).sum()

    return jax.grad(loss)(w)


def noise(seed: Any) -> Any:
    """Random numbers."""
    one, two = jax.random.split(jax.random.wrap_key_data(seed))
    return jax.random.normal(one, (256, 256)) @ jax.random.uniform(two, (256, 256))


def sample(ws: Any, x: Any) -> Any:
    """Steps of a diffusion sampler."""
    for _ in range(3):
        x = x - 0.1 * unet(ws, x)
    return x


def shifted(x: Any) -> Any:
    """Copies of a signal, shifted and joined."""
    windows = [jnp.roll(x, shift, 1) * (shift + 1) for shift in range(12)]
    return jnp.tanh(jnp.concatenate(windows, 1)).reshape(x.shape[0], 12, -1).sum(1)


def lost(a: Any, b: Any) -> Any:
    """An argument given away and read later."""
    new = a + b
    later = jnp.sort(a, 0) @ b
    return new, jnp.cumsum(later, 1), (a * later).sum()


def curvature(ws: Any, x: Any) -> Any:
    """A Hessian times a vector."""
    return jax.jvp(jax.grad(lambda ws: (mlp(ws, x) ** 2).mean()), (ws,), (ws,))[1]


def jacobian(w: Any, xs: Any) -> Any:
    """One matrix of derivatives per row."""
    return jax.vmap(jax.jacfwd(lambda x: jnp.tanh(x @ w)))(xs)


# The list.

_MLP = dense(256, 512, 512, 10)
_GPT = language(128, 4, 512)
_SCANNED = looped(128, 4, 512)
_TOKENS = numbers(4, 128)
_RESNET = {
    "stem": floats(3, 3, 3, 32),
    "blocks": [(floats(3, 3, 32, 32), floats(3, 3, 32, 32)) for _ in range(5)],
    "head": floats(32, 10),
}
_IMAGES = floats(8, 32, 32, 3)
_UNET = {
    "down": [floats(3, 3, 8, 16), floats(3, 3, 16, 32)],
    "up": [floats(3, 3, 64, 16), floats(3, 3, 32, 8)],
}
_VIT = {
    "embed": floats(192, 128),
    "layers": [block_shapes(128) for _ in range(3)],
    "head": floats(128, 10),
}
_DECODER = [{"q": floats(64, 64), "k": floats(64, 64), "v": floats(64, 64)} for _ in range(6)]
_CACHES = [(floats(8, 256, 64), floats(8, 256, 64)) for _ in range(6)]
_DECODER_SCAN = {"q": floats(6, 64, 64), "k": floats(6, 64, 64), "v": floats(6, 64, 64)}
_CACHES_SCAN = (floats(6, 8, 256, 64), floats(6, 8, 256, 64))
_SEED = floats(2, dtype="uint32")


def _training(name: str, model: Any, shapes: Any, x: Any, y: Any) -> dict[str, Program]:
    """Three steps of one model: plain, with Adam, with Adam and donation."""
    state = thrice(shapes)
    return {
        f"{name}_train": Program(partial(train, model), (shapes, x, y)),
        f"{name}_adam": Program(partial(train_with_adam, model), (state, x, y)),
        f"{name}_adam_donate": Program(partial(train_with_adam, model), (state, x, y), (0,)),
    }


PROGRAMS: dict[str, Program] = {
    "mlp": Program(mlp, (_MLP, floats(256, 256))),
    **_training("mlp", mlp, _MLP, floats(256, 256), numbers(256)),
    "gpt": Program(gpt, (_GPT, _TOKENS)),
    **_training("gpt", gpt, _GPT, _TOKENS, numbers(4, 128)),
    "gpt_remat": Program(partial(train, gpt_remat), (_GPT, _TOKENS, numbers(4, 128))),
    "gpt_scan": Program(gpt_scan, (_SCANNED, _TOKENS)),
    **_training("gpt_scan", gpt_scan, _SCANNED, _TOKENS, numbers(4, 128)),
    "gpt_scan_remat": Program(
        partial(train, partial(gpt_scan, remat=True)), (_SCANNED, _TOKENS, numbers(4, 128))
    ),
    "resnet": Program(resnet, (_RESNET, _IMAGES)),
    **_training("resnet", resnet, _RESNET, _IMAGES, numbers(8)),
    "vit": Program(vit, (_VIT, floats(8, 64, 64, 3))),
    **_training("vit", vit, _VIT, floats(8, 64, 64, 3), numbers(8)),
    "unet": Program(unet, (_UNET, floats(2, 32, 32, 8))),
    "unet_train": Program(descend(square(unet)), (_UNET, floats(2, 32, 32, 8))),
    "sampler": Program(sample, (_UNET, floats(2, 32, 32, 8))),
    "decode": Program(decode, (_DECODER, _CACHES, floats(8, 64), numbers())),
    "decode_donate": Program(decode, (_DECODER, _CACHES, floats(8, 64), numbers()), (1,)),
    "decode_scan": Program(decode_scan, (_DECODER_SCAN, _CACHES_SCAN, floats(8, 64), numbers())),
    "decode_scan_donate": Program(
        decode_scan, (_DECODER_SCAN, _CACHES_SCAN, floats(8, 64), numbers()), (1,)
    ),
    "lstm": Program(lstm, (floats(192, 512), floats(32, 16, 64))),
    "lstm_train": Program(jax.grad(square(lstm)), (floats(192, 512), floats(32, 16, 64))),
    "flash": Program(flash, (floats(512, 64), floats(512, 64), floats(512, 64))),
    "moe": Program(
        moe,
        (
            floats(256, 128),
            floats(128, 4),
            [(floats(128, 256), floats(256, 128)) for _ in range(4)],
        ),
    ),
    "branches": Program(branches, (floats(256, 256), [floats(256, 256) for _ in range(8)])),
    "statistics": Program(statistics, (floats(256, 256),)),
    "embed_update": Program(embed_update, (floats(2048, 128), numbers(256), floats(256, 128))),
    "spectral": Program(spectral, (floats(4, 128, 128), floats(4, 128, 128))),
    "solve": Program(solve, (floats(256, 256), floats(256))),
    "integrate": Program(integrate, (floats(256, 256), floats(256, 256))),
    "bodies": Program(bodies, (floats(384, 3), floats(384, 3))),
    "clusters": Program(clusters, (floats(2048, 16), floats(32, 16))),
    "prefix": Program(prefix, (floats(128, 512),)),
    "drop": Program(drop, (floats(256, 256), floats(256, 256), _SEED)),
    "noise": Program(noise, (_SEED,)),
    "curvature": Program(curvature, (_MLP, floats(256, 256))),
    "jacobian": Program(jacobian, (floats(64, 64), floats(64, 64))),
    "shifted": Program(shifted, (floats(256, 512),)),
    "lost": Program(lost, (floats(256, 256), floats(256, 256))),
    "lost_donate": Program(lost, (floats(256, 256), floats(256, 256)), (0,)),
}
