"""Programs with more than 100 MB of temporaries, to be compiled for accelerators.

Steps of training and inference as they are written for one TPU or GPU: transformers one layer after
another, in a loop, recomputed; convolutions; adversaries; steps through steps. They are the models
of `tools.order_programs` at another size, and others. `program` is a factory for `hlomem compile`.
"""

from __future__ import annotations

import logging
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from hlomem.jax.pass_.log import Outcome
from tools.order_programs import (
    Program,
    adam,
    gpt,
    gpt_remat,
    gpt_scan,
    integrate,
    lstm,
    mlp,
    moe,
    resnet,
    train,
    unet,
    vit,
)

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")


def _floats(*dimensions: int) -> Any:
    return jax.ShapeDtypeStruct(dimensions, "float32")


def _numbers(*dimensions: int) -> Any:
    return jax.ShapeDtypeStruct(dimensions, "int32")


def _layer(width: int, *layers: int) -> dict[str, Any]:
    return {
        "qkv": _floats(*layers, width, 3 * width),
        "out": _floats(*layers, width, width),
        "up": _floats(*layers, width, 4 * width),
        "down": _floats(*layers, 4 * width, width),
    }


def _language(width: int, layers: int, words: int = 8192) -> dict[str, Any]:
    return {"embed": _floats(words, width), "layers": [_layer(width) for _ in range(layers)]}


def _looped(width: int, layers: int, words: int = 8192) -> dict[str, Any]:
    return {"embed": _floats(words, width), "layers": _layer(width, layers)}


def _down(gradients: Any, parameters: Any) -> Any:
    return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)


# Steps that the smaller programs do not have.


def accumulate(ps: Any, xs: Any, ys: Any) -> Any:
    """A step whose gradients are summed over parts of the batch."""

    def loss(ps: Any, x: Any, y: Any) -> Any:
        chosen = jnp.take_along_axis(jax.nn.log_softmax(gpt(ps, x)), y[..., None], -1)
        return -chosen.mean()

    parts = [jax.grad(loss)(ps, x, y) for x, y in zip(xs, ys, strict=True)]
    return _down(jax.tree.map(lambda *gs: sum(gs) / len(gs), *parts), ps)


def adversaries(maker: Any, judge: Any, noise: Any, real: Any) -> Any:
    """A step of a network that makes images and of one that tells them from real ones."""

    def judged(judge: Any) -> Any:
        return (unet(judge, real) ** 2).mean() - (unet(judge, unet(maker, noise)) ** 2).mean()

    def made(maker: Any) -> Any:
        return (unet(judge, unet(maker, noise)) ** 2).mean()

    return _down(jax.grad(made)(maker), maker), _down(jax.grad(judged)(judge), judge)


def learn_to_learn(ws: Any, x: Any, y: Any) -> Any:
    """A gradient through two steps of training."""

    def step(ws: Any) -> Any:
        return _down(jax.grad(lambda ws: (mlp(ws, x) ** 2).mean())(ws), ws)

    return jax.grad(lambda ws: (mlp(step(step(ws)), y) ** 2).mean())(ws)


def experts_train(ps: Any, x: Any) -> Any:
    """A step of a layer of experts."""
    return _down(jax.grad(lambda ps: (moe(x, ps["gate"], ps["experts"]) ** 2).mean())(ps), ps)


def unet_train(ws: Any, x: Any) -> Any:
    """A step of a U-net."""
    return _down(jax.grad(lambda ws: (unet(ws, x) ** 2).mean())(ws), ws)


def dense_blocks(ws: Any, x: Any) -> Any:
    """A step of convolutions that see all that came before them."""

    def loss(ws: Any) -> Any:
        seen = x
        for w in ws:
            numbers = ("NHWC", "HWIO", "NHWC")
            new = lax.conv_general_dilated(seen, w, (1, 1), "SAME", dimension_numbers=numbers)
            seen = jnp.concatenate([seen, jax.nn.relu(new)], -1)
        return (seen.mean((1, 2)) ** 2).mean()

    return _down(jax.grad(loss)(ws), ws)


def pairs_train(ps: Any, images: Any, words: Any) -> Any:
    """A step that brings images and texts together."""

    def loss(ps: Any) -> Any:
        pictures = vit(ps["images"], images)
        texts = gpt(ps["texts"], words).mean(1) @ ps["join"]
        return (jax.nn.logsumexp(pictures @ texts.T, -1) - (pictures * texts).sum(-1)).mean()

    return _down(jax.grad(loss)(ps), ps)


def lstm_train(ws: Any, xs: Any) -> Any:
    """A step of a recurrent network."""
    return _down(jax.grad(lambda ws: (lstm(ws, xs) ** 2).mean())(ws), ws)


def slope(w: Any, y: Any) -> Any:
    """A gradient through an integration."""
    return jax.grad(lambda w: integrate(y, w).sum())(w)


_BATCH = (_numbers(32, 512), _numbers(32, 512))
_HALF = (_numbers(16, 512), _numbers(16, 512))
_PART = (_numbers(8, 512), _numbers(8, 512))
_UNET = {
    "down": [_floats(3, 3, 32, 64), _floats(3, 3, 64, 128), _floats(3, 3, 128, 256)],
    "up": [_floats(3, 3, 512, 128), _floats(3, 3, 256, 64), _floats(3, 3, 128, 32)],
}
_RESNET = {
    "stem": _floats(3, 3, 3, 64),
    "blocks": [(_floats(3, 3, 64, 64), _floats(3, 3, 64, 64)) for _ in range(8)],
    "head": _floats(64, 1000),
}


def _seeing(width: int, layers: int) -> dict[str, Any]:
    return {
        "embed": _floats(192, width),
        "layers": [_layer(width) for _ in range(layers)],
        "head": _floats(width, 1000),
    }


def _dense(*widths: int) -> list[Any]:
    return [(_floats(one, other), _floats(other)) for one, other in pairwise(widths)]


def _thrice(shapes: Any) -> Any:
    return shapes, shapes, shapes


_EXPERTS = {
    "gate": _floats(512, 8),
    "experts": [(_floats(512, 2048), _floats(2048, 512)) for _ in range(8)],
}
_PAIRS = {
    "images": _seeing(384, 4),
    "texts": _language(256, 4, 4096),
    "join": _floats(4096, 1000),
}

LARGE_PROGRAMS: dict[str, Program] = {
    "gpt_train": Program(partial(train, gpt), (_language(512, 4), *_BATCH)),
    "gpt_adam_donate": Program(partial(adam, gpt), (_thrice(_language(512, 4)), *_BATCH), (0,)),
    "gpt_remat": Program(partial(train, gpt_remat), (_language(512, 8), *_HALF)),
    "gpt_remat_adam_donate": Program(
        partial(adam, gpt_remat), (_thrice(_language(512, 8)), *_HALF), (0,)
    ),
    "gpt_scan": Program(partial(train, gpt_scan), (_looped(512, 8), *_PART)),
    "gpt_scan_adam_donate": Program(
        partial(adam, gpt_scan), (_thrice(_looped(512, 8)), *_PART), (0,)
    ),
    "gpt_scan_remat": Program(
        partial(train, partial(gpt_scan, remat=True)), (_looped(512, 8), *_HALF)
    ),
    "gpt_accumulate": Program(
        accumulate, (_language(512, 2), _numbers(4, 8, 512), _numbers(4, 8, 512))
    ),
    "resnet_train": Program(
        partial(train, resnet), (_RESNET, _floats(64, 64, 64, 3), _numbers(64))
    ),
    "vit_train": Program(
        partial(train, vit), (_seeing(384, 6), _floats(64, 128, 128, 3), _numbers(64))
    ),
    "unet_train": Program(unet_train, (_UNET, _floats(16, 128, 128, 32))),
    "dense_blocks": Program(
        dense_blocks,
        ([_floats(3, 3, 64 + 32 * number, 32) for number in range(8)], _floats(32, 64, 64, 64)),
    ),
    "adversaries": Program(
        adversaries, (_UNET, _UNET, _floats(8, 128, 128, 32), _floats(8, 128, 128, 32))
    ),
    "pairs_train": Program(pairs_train, (_PAIRS, _floats(64, 128, 128, 3), _numbers(64, 64))),
    "mlp_adam_donate": Program(
        partial(adam, mlp),
        (_thrice(_dense(1024, 8192, 8192, 8192, 1000)), _floats(4096, 1024), _numbers(4096)),
        (0,),
    ),
    "learn_to_learn": Program(
        learn_to_learn, (_dense(512, 2048, 2048, 512), _floats(4096, 512), _floats(4096, 512))
    ),
    "lstm_train": Program(lstm_train, (_floats(2048, 4096), _floats(256, 256, 1024))),
    "experts_train": Program(experts_train, (_EXPERTS, _floats(8192, 512))),
    "slope": Program(slope, (_floats(1024, 1024), _floats(4096, 1024))),
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
