"""The programs that orders are measured with, and the rule that says which.

Three groups, none of them chosen by what an order saves:

- `corpus`: every entry of the newest XLA for CPU in the corpus, as XLA scheduled it;
- `trials`: every function of the trials for CPU (a GPT's training step and what changes it, a
  convolutional network's, decoding, windows, lost donations), as users compile them;
- `ours`: the programs below, of the kinds people run, each a function and its arguments as shapes.
  Training steps come with and without donated arguments, models unrolled, scanned and
  rematerialised.

Of these, the programs count that have at least `MIN_BYTES` of temporaries in XLA's default order:
those the pass looks at unless it is told otherwise. What they come to with the smaller ones, which
the pass leaves alone, is said beside. A program that calls back into Python cannot be made from its
text, and is left out.
"""

from __future__ import annotations

import gzip
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hlomem.jax
from hlomem.jax.pass_ import log
from hlomem.jax.pass_.register import compiler_options
from hlomem.jax.pass_.transform import Limits, Transform
from hlomem.opt.constants import RECOMPUTE
from hlomem.opt.goal import Rules
from tools.carried_programs import carry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.jax.pass_.log import Outcome
    from tools.carried_programs import CarriedProgram

MIN_BYTES = 1 << 16
TRIALS = Path(__file__).resolve().parent.parent / "tests" / "goldens" / "trials" / "cpu"
_CORPUS_GROUP = "corpus/cpu-0.12.0.1"
_CALLS_PYTHON = "python_cpu_callback"
_BESIDE = ("jit_stage", "jit__threefry_seed")
"""Small programs that JAX compiles along with those of the trials."""
_FLAGGED = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")


class Program(NamedTuple):
    """A function, the shapes of its arguments, and which of them it is given for good."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donated: tuple[int, ...] = ()


def _f32(*dimensions: int) -> Any:
    return jax.ShapeDtypeStruct(dimensions, "float32")


def _s32(*dimensions: int) -> Any:
    return jax.ShapeDtypeStruct(dimensions, "int32")


# Layers.


def _norm(x: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5)


def _attention(x: Any, w: Any, heads: int = 4) -> Any:
    batch, length, width = x.shape
    q, k, v = jnp.split(_norm(x) @ w["qkv"], 3, -1)
    q, k, v = (part.reshape(batch, length, heads, width // heads) for part in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
    mask = jnp.tril(jnp.ones((length, length), bool))
    shares = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(batch, length, width)
    return x + mixed @ w["out"]


def _block(x: Any, w: Any) -> Any:
    x = _attention(x, w)
    return x + jax.nn.gelu(_norm(x) @ w["up"]) @ w["down"]


def _block_shapes(width: int, *layers: int) -> dict[str, Any]:
    return {
        "qkv": _f32(*layers, width, 3 * width),
        "out": _f32(*layers, width, width),
        "up": _f32(*layers, width, 4 * width),
        "down": _f32(*layers, 4 * width, width),
    }


def _conv(x: Any, w: Any, stride: int = 1) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=numbers)


def _batch_norm(x: Any) -> Any:
    mean = x.mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean((0, 1, 2)) + 1e-5)


# Models.


def mlp(ws: Any, x: Any) -> Any:
    """Dense layers."""
    for w, b in ws[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ ws[-1][0] + ws[-1][1]


def gpt(ps: Any, tokens: Any) -> Any:
    """A transformer with its layers one after another."""
    x = ps["embed"][tokens]
    for w in ps["layers"]:
        x = _block(x, w)
    return _norm(x) @ ps["embed"].T


def gpt_scan(ps: Any, tokens: Any, *, remat: bool = False) -> Any:
    """The same in a loop."""
    body = jax.checkpoint(_block) if remat else _block
    x, _ = lax.scan(lambda x, w: (body(x, w), None), ps["embed"][tokens], ps["layers"])
    return _norm(x) @ ps["embed"].T


def gpt_remat(ps: Any, tokens: Any) -> Any:
    """The first, recomputed in the backward pass."""
    x = ps["embed"][tokens]
    for w in ps["layers"]:
        x = jax.checkpoint(_block)(x, w)
    return _norm(x) @ ps["embed"].T


def resnet(ws: Any, x: Any) -> Any:
    """Convolutions with short cuts."""
    x = _conv(x, ws["stem"])
    for first, second in ws["blocks"]:
        x = x + _conv(jax.nn.relu(_batch_norm(_conv(x, first))), second)
    return x.mean((1, 2)) @ ws["head"]


def unet(ws: Any, x: Any) -> Any:
    """Down, across and up again."""
    skips = []
    for w in ws["down"]:
        x = jax.nn.silu(_conv(x, w))
        skips.append(x)
        x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") / 4
    for w, skip in zip(ws["up"], reversed(skips), strict=True):
        x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
        x = jax.nn.silu(_conv(jnp.concatenate([x, skip], -1), w))
    return x


def vit(ws: Any, images: Any) -> Any:
    """A transformer over patches."""
    batch, side, _, channels = images.shape
    patches = images.reshape(batch, side // 8, 8, side // 8, 8, channels)
    x = patches.transpose(0, 1, 3, 2, 4, 5).reshape(batch, (side // 8) ** 2, -1) @ ws["embed"]
    for w in ws["layers"]:
        x = _block(x, w)
    return x.mean(1) @ ws["head"]


def _entropy(logits: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -chosen.mean()


def train(model: Any, ps: Any, x: Any, y: Any) -> Any:
    """A step of gradient descent."""
    loss, grads = jax.value_and_grad(lambda ps: _entropy(model(ps, x), y))(ps)
    return jax.tree.map(lambda p, g: p - 0.1 * g, ps, grads), loss


def adam(model: Any, state: Any, x: Any, y: Any) -> Any:
    """A step of Adam."""
    ps, first, second = state
    loss, grads = jax.value_and_grad(lambda ps: _entropy(model(ps, x), y))(ps)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
    ps = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), ps, first, second)
    return (ps, first, second), loss


# Others.


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


def flash(q: Any, k: Any, v: Any) -> Any:
    """Attention block by block."""

    def step(state: Any, block: Any) -> Any:
        high, total, out = state
        keys, values = block
        scores = q @ keys.T
        new = jnp.maximum(high, scores.max(-1))
        weight, scale = jnp.exp(scores - new[:, None]), jnp.exp(high - new)
        return (new, total * scale + weight.sum(-1), out * scale[:, None] + weight @ values), None

    count = q.shape[0]
    blocks = (k.reshape(-1, 64, k.shape[1]), v.reshape(-1, 64, v.shape[1]))
    start = (jnp.full((count,), -1e9), jnp.zeros((count,)), jnp.zeros_like(q))
    (_, total, out), _ = lax.scan(step, start, blocks)
    return out / total[:, None]


def moe(x: Any, gate: Any, experts: Any) -> Any:
    """The two best of several experts."""
    weights, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
    outs = jnp.stack([jax.nn.relu(x @ up) @ down for up, down in experts], 1)
    return jnp.einsum("nk,nkd->nd", weights, jnp.take_along_axis(outs, chosen[..., None], 1))


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

_MLP = [(_f32(256, 512), _f32(512)), (_f32(512, 512), _f32(512)), (_f32(512, 10), _f32(10))]
_GPT = {"embed": _f32(512, 128), "layers": [_block_shapes(128) for _ in range(4)]}
_SCANNED = {"embed": _f32(512, 128), "layers": _block_shapes(128, 4)}
_TOKENS = _s32(4, 128)
_RESNET = {
    "stem": _f32(3, 3, 3, 32),
    "blocks": [(_f32(3, 3, 32, 32), _f32(3, 3, 32, 32)) for _ in range(5)],
    "head": _f32(32, 10),
}
_IMAGES = _f32(8, 32, 32, 3)
_UNET = {
    "down": [_f32(3, 3, 8, 16), _f32(3, 3, 16, 32)],
    "up": [_f32(3, 3, 64, 16), _f32(3, 3, 32, 8)],
}
_VIT = {
    "embed": _f32(192, 128),
    "layers": [_block_shapes(128) for _ in range(3)],
    "head": _f32(128, 10),
}
_DECODER = [{"q": _f32(64, 64), "k": _f32(64, 64), "v": _f32(64, 64)} for _ in range(6)]
_CACHES = [(_f32(8, 256, 64), _f32(8, 256, 64)) for _ in range(6)]
_DECODER_SCAN = {"q": _f32(6, 64, 64), "k": _f32(6, 64, 64), "v": _f32(6, 64, 64)}
_CACHES_SCAN = (_f32(6, 8, 256, 64), _f32(6, 8, 256, 64))
_SEED = jax.ShapeDtypeStruct((2,), "uint32")


def _tripled(shapes: Any) -> Any:
    return shapes, shapes, shapes


def _training(name: str, model: Any, shapes: Any, x: Any, y: Any) -> dict[str, Program]:
    """Three steps of one model: plain, with Adam, with Adam and donation."""
    state = _tripled(shapes)
    return {
        f"{name}_train": Program(partial(train, model), (shapes, x, y)),
        f"{name}_adam": Program(partial(adam, model), (state, x, y)),
        f"{name}_adam_donate": Program(partial(adam, model), (state, x, y), (0,)),
    }


def _unet_train(ws: Any, x: Any) -> Any:
    grads = jax.grad(lambda ws: (unet(ws, x) ** 2).mean())(ws)
    return jax.tree.map(lambda w, g: w - 0.1 * g, ws, grads)


def _lstm_train(ws: Any, xs: Any) -> Any:
    return jax.grad(lambda ws: (lstm(ws, xs) ** 2).mean())(ws)


PROGRAMS: dict[str, Program] = {
    "mlp": Program(mlp, (_MLP, _f32(256, 256))),
    **_training("mlp", mlp, _MLP, _f32(256, 256), _s32(256)),
    "gpt": Program(gpt, (_GPT, _TOKENS)),
    **_training("gpt", gpt, _GPT, _TOKENS, _s32(4, 128)),
    "gpt_remat": Program(partial(train, gpt_remat), (_GPT, _TOKENS, _s32(4, 128))),
    "gpt_scan": Program(gpt_scan, (_SCANNED, _TOKENS)),
    **_training("gpt_scan", gpt_scan, _SCANNED, _TOKENS, _s32(4, 128)),
    "gpt_scan_remat": Program(
        partial(train, partial(gpt_scan, remat=True)), (_SCANNED, _TOKENS, _s32(4, 128))
    ),
    "resnet": Program(resnet, (_RESNET, _IMAGES)),
    **_training("resnet", resnet, _RESNET, _IMAGES, _s32(8)),
    "vit": Program(vit, (_VIT, _f32(8, 64, 64, 3))),
    **_training("vit", vit, _VIT, _f32(8, 64, 64, 3), _s32(8)),
    "unet": Program(unet, (_UNET, _f32(2, 32, 32, 8))),
    "unet_train": Program(_unet_train, (_UNET, _f32(2, 32, 32, 8))),
    "sampler": Program(sample, (_UNET, _f32(2, 32, 32, 8))),
    "decode": Program(decode, (_DECODER, _CACHES, _f32(8, 64), _s32())),
    "decode_donate": Program(decode, (_DECODER, _CACHES, _f32(8, 64), _s32()), (1,)),
    "decode_scan": Program(decode_scan, (_DECODER_SCAN, _CACHES_SCAN, _f32(8, 64), _s32())),
    "decode_scan_donate": Program(
        decode_scan, (_DECODER_SCAN, _CACHES_SCAN, _f32(8, 64), _s32()), (1,)
    ),
    "lstm": Program(lstm, (_f32(192, 512), _f32(32, 16, 64))),
    "lstm_train": Program(_lstm_train, (_f32(192, 512), _f32(32, 16, 64))),
    "flash": Program(flash, (_f32(512, 64), _f32(512, 64), _f32(512, 64))),
    "moe": Program(
        moe, (_f32(256, 128), _f32(128, 4), [(_f32(128, 256), _f32(256, 128)) for _ in range(4)])
    ),
    "branches": Program(branches, (_f32(256, 256), [_f32(256, 256) for _ in range(8)])),
    "statistics": Program(statistics, (_f32(256, 256),)),
    "embed_update": Program(embed_update, (_f32(2048, 128), _s32(256), _f32(256, 128))),
    "spectral": Program(spectral, (_f32(4, 128, 128), _f32(4, 128, 128))),
    "solve": Program(solve, (_f32(256, 256), _f32(256))),
    "integrate": Program(integrate, (_f32(256, 256), _f32(256, 256))),
    "bodies": Program(bodies, (_f32(384, 3), _f32(384, 3))),
    "clusters": Program(clusters, (_f32(2048, 16), _f32(32, 16))),
    "prefix": Program(prefix, (_f32(128, 512),)),
    "drop": Program(drop, (_f32(256, 256), _f32(256, 256), _SEED)),
    "noise": Program(noise, (_SEED,)),
    "curvature": Program(curvature, (_MLP, _f32(256, 256))),
    "jacobian": Program(jacobian, (_f32(64, 64), _f32(64, 64))),
    "shifted": Program(shifted, (_f32(256, 512),)),
    "lost": Program(lost, (_f32(256, 256), _f32(256, 256))),
    "lost_donate": Program(lost, (_f32(256, 256), _f32(256, 256)), (0,)),
}


# All of them, each to be compiled in three ways.


class Subject(NamedTuple):
    """A program to be measured."""

    group: str
    name: str
    arguments: Any
    """As shapes."""
    compile: Callable[[], Any]
    """In XLA's default order."""
    compile_flagged: Callable[[], Any]
    """By XLA's memory-optimised scheduler."""
    compile_better: Callable[[str], tuple[Any, Outcome]]
    """With the pass, at an effort."""


def iter_subjects(corpus: Path, is_wanted: Callable[[str, str], bool]) -> Iterator[Subject]:
    """The three groups; only what is wanted, by group and name, is made."""
    for path in sorted(corpus.glob(f"{_CORPUS_GROUP}/*/module.hlo")):
        text = path.read_text(encoding="utf-8")
        if _CALLS_PYTHON not in text and is_wanted("corpus", path.parent.name):
            yield _carried("corpus", path.parent.name, text)
    for path in sorted(TRIALS.glob("*/*.cpu_after_optimizations.txt*")):
        function = path.name.split(".")[1]
        name = f"{path.parent.name} {function.removeprefix('jit_')}"
        if function not in _BESIDE and is_wanted("trials", name):
            packed = path.read_bytes()
            text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode()
            yield _carried("trials", name, text)
    for name, program in PROGRAMS.items():
        if is_wanted("ours", name):
            yield _written(name, program)


def _carried(group: str, name: str, text: str) -> Subject:
    program = carry(text)
    return Subject(
        group,
        name,
        program.arguments,
        program.compile,
        partial(program.compile_with, _FLAGGED),
        partial(_compile_carried, program),
    )


def _compile_carried(program: CarriedProgram, effort: Any) -> tuple[Any, Outcome]:
    # One process has all devices of these programs, so that collectives may change places.
    rules = Rules(effort, may_reorder_collectives=True, recompute=RECOMPUTE)
    transform = Transform("cpu", compiler_options("cpu"), rules, Limits(MIN_BYTES, 50_000))
    log.forget()
    compiled = program.compile(transform)
    [outcome] = log.report().outcomes
    return compiled, outcome


def _written(name: str, program: Program) -> Subject:
    function = jax.jit(program.function, donate_argnums=program.donated)

    def compile_plain(options: Any = None) -> Any:
        jax.clear_caches()
        return function.lower(*program.arguments).compile(compiler_options=options)

    def compile_better(effort: Any) -> tuple[Any, Outcome]:
        log.forget()
        with hlomem.jax.optimize(effort=effort, min_bytes=MIN_BYTES):
            compiled = function.lower(*program.arguments).compile()
        [outcome] = log.report().outcomes
        return compiled, outcome

    return Subject(
        "ours",
        name,
        program.arguments,
        compile_plain,
        partial(compile_plain, _FLAGGED),
        compile_better,
    )
