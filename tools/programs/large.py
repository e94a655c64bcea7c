"""Programs with more than 100 MB of temporaries, to be compiled for accelerators.

Steps of training and inference as they are written for one TPU or GPU: transformers one layer after
another, in a loop, recomputed; convolutions; adversaries; steps through steps. They are the models
of `tools.programs.small` at another size, and others. `program` is a factory for `hlomem compile`.
"""

from __future__ import annotations

import logging
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from hlomem.jax.pass_.log import Outcome
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
    conv,
    cross_entropy,
    dense,
    descend,
    down,
    floats,
    jax,
    jnp,
    language,
    looped,
    numbers,
    thrice,
)

_WORDS = 8192

# Steps that the smaller programs do not have.


def accumulate(ps: Any, xs: Any, ys: Any) -> Any:
    """A step whose gradients are summed over parts of the batch."""

    def loss(ps: Any, x: Any, y: Any) -> Any:
        return cross_entropy(gpt(ps, x), y)

    parts = [jax.grad(loss)(ps, x, y) for x, y in zip(xs, ys, strict=True)]
    return down(jax.tree.map(lambda *gs: sum(gs) / len(gs), *parts), ps)


def adversaries(maker: Any, judge: Any, noise: Any, real: Any) -> Any:
    """A step of a network that makes images and of one that tells them from real ones."""

    def judged(judge: Any) -> Any:
        return (unet(judge, real) ** 2).mean() - (unet(judge, unet(maker, noise)) ** 2).mean()

    def made(maker: Any) -> Any:
        return (unet(judge, unet(maker, noise)) ** 2).mean()

    return down(jax.grad(made)(maker), maker), down(jax.grad(judged)(judge), judge)


def learn_to_learn(ws: Any, x: Any, y: Any) -> Any:
    """A gradient through two steps of training."""

    def step(ws: Any) -> Any:
        return down(jax.grad(lambda ws: (mlp(ws, x) ** 2).mean())(ws), ws)

    return jax.grad(lambda ws: (mlp(step(step(ws)), y) ** 2).mean())(ws)


def experts_train(ps: Any, x: Any) -> Any:
    """A step of a layer of experts."""
    return down(jax.grad(lambda ps: (moe(x, ps["gate"], ps["experts"]) ** 2).mean())(ps), ps)


def dense_blocks(ws: Any, x: Any) -> Any:
    """A step of convolutions that see all that came before them."""

    def loss(ws: Any) -> Any:
        seen = x
        for w in ws:
            seen = jnp.concatenate([seen, jax.nn.relu(conv(seen, w))], -1)
        return (seen.mean((1, 2)) ** 2).mean()

    return down(jax.grad(loss)(ws), ws)


def pairs_train(ps: Any, images: Any, words: Any) -> Any:
    """A step that brings images and texts together."""

    def loss(ps: Any) -> Any:
        pictures = vit(ps["images"], images)
        texts = gpt(ps["texts"], words).mean(1) @ ps["join"]
        return (jax.nn.logsumexp(pictures @ texts.T, -1) - (pictures * texts).sum(-1)).mean()

    return down(jax.grad(loss)(ps), ps)


def slope(w: Any, y: Any) -> Any:
    """A gradient through an integration."""
    return jax.grad(lambda w: integrate(y, w).sum())(w)


_BATCH = (numbers(32, 512), numbers(32, 512))
_HALF = (numbers(16, 512), numbers(16, 512))
_PART = (numbers(8, 512), numbers(8, 512))
_UNET = {
    "down": [floats(3, 3, 32, 64), floats(3, 3, 64, 128), floats(3, 3, 128, 256)],
    "up": [floats(3, 3, 512, 128), floats(3, 3, 256, 64), floats(3, 3, 128, 32)],
}
_RESNET = {
    "stem": floats(3, 3, 3, 64),
    "blocks": [(floats(3, 3, 64, 64), floats(3, 3, 64, 64)) for _ in range(8)],
    "head": floats(64, 1000),
}


def _seeing(width: int, layers: int) -> dict[str, Any]:
    return {
        "embed": floats(192, width),
        "layers": [block_shapes(width) for _ in range(layers)],
        "head": floats(width, 1000),
    }


_EXPERTS = {
    "gate": floats(512, 8),
    "experts": [(floats(512, 2048), floats(2048, 512)) for _ in range(8)],
}
_PAIRS = {
    "images": _seeing(384, 4),
    "texts": language(256, 4, 4096),
    "join": floats(4096, 1000),
}

LARGE_PROGRAMS: dict[str, Program] = {
    "gpt_train": Program(partial(train, gpt), (language(512, 4, _WORDS), *_BATCH)),
    "gpt_adam_donate": Program(
        partial(train_with_adam, gpt), (thrice(language(512, 4, _WORDS)), *_BATCH), (0,)
    ),
    "gpt_remat": Program(partial(train, gpt_remat), (language(512, 8, _WORDS), *_HALF)),
    "gpt_remat_adam_donate": Program(
        partial(train_with_adam, gpt_remat), (thrice(language(512, 8, _WORDS)), *_HALF), (0,)
    ),
    "gpt_scan": Program(partial(train, gpt_scan), (looped(512, 8, _WORDS), *_PART)),
    "gpt_scan_adam_donate": Program(
        partial(train_with_adam, gpt_scan), (thrice(looped(512, 8, _WORDS)), *_PART), (0,)
    ),
    "gpt_scan_remat": Program(
        partial(train, partial(gpt_scan, remat=True)), (looped(512, 8, _WORDS), *_HALF)
    ),
    "gpt_accumulate": Program(
        accumulate, (language(512, 2, _WORDS), numbers(4, 8, 512), numbers(4, 8, 512))
    ),
    "resnet_train": Program(partial(train, resnet), (_RESNET, floats(64, 64, 64, 3), numbers(64))),
    "vit_train": Program(
        partial(train, vit), (_seeing(384, 6), floats(64, 128, 128, 3), numbers(64))
    ),
    "unet_train": Program(descend(square(unet)), (_UNET, floats(16, 128, 128, 32))),
    "dense_blocks": Program(
        dense_blocks,
        ([floats(3, 3, 64 + 32 * number, 32) for number in range(8)], floats(32, 64, 64, 64)),
    ),
    "adversaries": Program(
        adversaries, (_UNET, _UNET, floats(8, 128, 128, 32), floats(8, 128, 128, 32))
    ),
    "pairs_train": Program(pairs_train, (_PAIRS, floats(64, 128, 128, 3), numbers(64, 64))),
    "mlp_adam_donate": Program(
        partial(train_with_adam, mlp),
        (thrice(dense(1024, 8192, 8192, 8192, 1000)), floats(4096, 1024), numbers(4096)),
        (0,),
    ),
    "learn_to_learn": Program(
        learn_to_learn, (dense(512, 2048, 2048, 512), floats(4096, 512), floats(4096, 512))
    ),
    "lstm_train": Program(descend(square(lstm)), (floats(2048, 4096), floats(256, 256, 1024))),
    "experts_train": Program(experts_train, (_EXPERTS, floats(8192, 512))),
    "slope": Program(slope, (floats(1024, 1024), floats(4096, 1024))),
}


def program(
    name: str, target: str = "", effort: str = "default", log: str = "", fit: int | None = None
) -> Any:
    """The factory: a program by name; for a `target`, with the pass on, which reports to `log`.

    `fit` is the memory it may take.
    """
    found = LARGE_PROGRAMS[name]
    if target:
        logger = logging.getLogger("hlomem.jax")
        logger.setLevel(logging.INFO)
        logger.addHandler(_Recorder(Path(log)))
        hlomem_jax: Any = import_module("hlomem.jax")
        hlomem_jax.optimize(target=target, effort=effort, fit=fit)
    return jax.jit(found.function, donate_argnums=found.donated), found.arguments


class _Recorder(logging.Handler):
    """Writes what the pass did to a file, a line each; the process may be stopped at any time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, if the pass reports of a program."""
        outcome = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if isinstance(outcome, Outcome):
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(outcome._asdict()) + b"\n")
