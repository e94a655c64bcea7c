"""One GPT-2 training step at six memory budgets, by hlomem and by PyTorch: bytes and seconds.

    python -m tools.gpt2_budgets [--layers 12] [--batch 8] [--budgets 1.0 …] [jax|torch]

Both have the same model (GPT-2 of 124 million parameters, attention written out, float32 with TF32
products, Adam) and print a line of JSON each. hlomem gets `optimize(fit=…)` for shares of XLA's
temporaries, PyTorch `torch._functorch.config.activation_memory_budget` with `torch.compile`. Bytes
are those of the plan in all for JAX, `torch.cuda.max_memory_allocated` for PyTorch.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH, HEADS, WORDS, LENGTH = 768, 12, 50304, 1024
SHARES = (0.85, 0.7, 0.55, 0.45, 0.35, 0.25)
BUDGETS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
RUNS = 8
_MARK = "@@"
Row = dict[str, Any]


def say(row: Row) -> None:
    """One line for whoever reads them."""
    print(f"{_MARK}{json.dumps(row)}", flush=True)


def seconds_of(step: Callable[[], Any]) -> float:
    """The median time of a step that waits for its end, after two."""
    found: list[float] = []
    for number in range(RUNS + 2):
        start = time.perf_counter()
        step()
        if number > 1:
            found.append(time.perf_counter() - start)
    return statistics.median(found)


# JAX.


def _jax_step(layers: int) -> tuple[Any, Any]:
    jax: Any = import_module("jax")
    jnp: Any = import_module("jax.numpy")

    def shape(*sides: int) -> Any:
        return jax.ShapeDtypeStruct(sides, "float32")

    layer = {
        "qkv": shape(WIDTH, 3 * WIDTH),
        "out": shape(WIDTH, WIDTH),
        "up": shape(WIDTH, 4 * WIDTH),
        "down": shape(4 * WIDTH, WIDTH),
        "n1": shape(WIDTH),
        "n2": shape(WIDTH),
    }
    params = {
        "words": shape(WORDS, WIDTH),
        "places": shape(LENGTH, WIDTH),
        "layers": [layer for _ in range(layers)],
        "n": shape(WIDTH),
    }

    def norm(x: Any, g: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g

    def block(x: Any, p: Any) -> Any:
        batch, length, _ = x.shape
        q, k, v = jnp.split(norm(x, p["n1"]) @ p["qkv"], 3, -1)
        q, k, v = (y.reshape(batch, length, HEADS, -1).swapaxes(1, 2) for y in (q, k, v))
        scores = (q @ k.swapaxes(-1, -2)) / math.sqrt(WIDTH // HEADS)
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        y = (jax.nn.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(x.shape)
        x = x + y @ p["out"]
        return x + jax.nn.gelu(norm(x, p["n2"]) @ p["up"]) @ p["down"]

    def loss(params: Any, words: Any) -> Any:
        x = params["words"][words[:, :-1]] + params["places"]
        for p in params["layers"]:
            x = block(x, p)
        logits = norm(x, params["n"]) @ params["words"].T
        picked = jnp.take_along_axis(logits, words[:, 1:, None], -1)[..., 0]
        return (jax.nn.logsumexp(logits, -1) - picked).mean()

    def step(state: Any, words: Any) -> Any:
        params, m, v = state
        value, grads = jax.value_and_grad(loss)(params, words)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        params = jax.tree.map(lambda p, m, v: p - 1e-4 * m / (jnp.sqrt(v) + 1e-8), params, m, v)
        return (params, m, v), value

    return jax.jit(step, donate_argnums=0), (params, params, params)


def measure_jax(layers: int, batch: int) -> Row:
    """The step as XLA has it, with `optimize()`, and for every share."""
    jax: Any = import_module("jax")
    hlomem_jax: Any = import_module("hlomem.jax")
    step, state = _jax_step(layers)
    words = jax.ShapeDtypeStruct((batch, LENGTH + 1), "int32")
    plain = step.lower(state, words).compile()
    rows = [_run_jax(plain, state, words, {"budget": None, "way": "plain"})]
    for share in (None, *SHARES):
        jax.clear_caches()
        limit = None if share is None else _in_all(plain, share)
        start = time.perf_counter()
        with hlomem_jax.optimize(fit=limit, max_slowdown=None if share is None else 3.0) as found:
            compiled = step.lower(state, words).compile()
        outcome = max(found.report().outcomes, key=lambda one: one.before)
        said = {
            "budget": share,
            "way": "optimize" if share is None else "fit",
            "fits": not outcome.missing,
            "modelled_ratio": outcome.time_ratio,
            "compile": time.perf_counter() - start,
            "says": str(outcome),
        }
        rows.append(_run_jax(compiled, state, words, said))
        say({"name": "jax", "part": rows[-1]})
    return {"name": "jax", "points": rows}


def _in_all(compiled: Any, share: float = 1.0) -> int:
    sizes = compiled.memory_analysis()
    rest = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return int(rest + share * sizes.temp_size_in_bytes)


def _run_jax(compiled: Any, state: Any, words: Any, said: Row) -> Row:
    jax: Any = import_module("jax")

    def made(leaf: Any) -> Any:
        return 0.02 * jax.random.normal(jax.random.key(0), leaf.shape)

    params, m, v = jax.tree.map(made, state)
    held = [(params, m, jax.tree.map(abs, v))]
    text = jax.random.randint(jax.random.key(1), words.shape, 0, WORDS)

    def once() -> None:
        held[0], value = compiled(held[0], text)
        jax.block_until_ready(value)

    sizes = {"temporaries": compiled.memory_analysis().temp_size_in_bytes}
    return {**said, **sizes, "in_all": _in_all(compiled), "seconds": seconds_of(once)}


# PyTorch.


def _torch_model(torch: Any, layers: int) -> Any:
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.n1 = nn.LayerNorm(WIDTH, bias=False)
            self.n2 = nn.LayerNorm(WIDTH, bias=False)
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
            self.out = nn.Linear(WIDTH, WIDTH, bias=False)
            self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
            self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

        def forward(self, x: Any, mask: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.qkv(self.n1(x)).chunk(3, -1)
            q, k, v = (y.view(batch, length, HEADS, -1).transpose(1, 2) for y in parts)
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS)
            y = scores.masked_fill(mask, -1e9).softmax(-1) @ v
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(functional.gelu(self.up(self.n2(x)), approximate="tanh"))

    class Gpt(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, WIDTH)
            self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.n = nn.LayerNorm(WIDTH, bias=False)

        def forward(self, text: Any, mask: Any) -> Any:
            x = self.words(text[:, :-1]) + self.places
            for block in self.blocks:
                x = block(x, mask)
            logits = self.n(x) @ self.words.weight.T
            return functional.cross_entropy(logits.view(-1, WORDS), text[:, 1:].reshape(-1))

    return Gpt()


def measure_torch(layers: int, batch: int, budgets: Sequence[float] = BUDGETS) -> Row:
    """The step for every budget; what fails says so."""
    torch: Any = import_module("torch")
    config: Any = import_module("torch._functorch.config")
    torch.set_float32_matmul_precision("high")
    rows: list[Row] = []
    for budget in budgets:
        config.activation_memory_budget = budget
        try:
            rows.append({"budget": budget, **_run_torch(torch, layers, batch)})
        except Exception as error:  # noqa: BLE001 - others may work
            rows.append({"budget": budget, "error": f"{type(error).__name__}: {error}"[:500]})
        say({"name": "torch", "part": rows[-1]})
    return {"name": "torch", "version": torch.__version__, "points": rows}


def _run_torch(torch: Any, layers: int, batch: int) -> Row:
    start = time.perf_counter()
    torch.compiler.reset()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    model = _torch_model(torch, layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    text = torch.randint(WORDS, (batch, LENGTH + 1), device="cuda")
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device="cuda").triu(1)
    compiled = torch.compile(model)

    def once() -> None:
        optimizer.zero_grad(set_to_none=True)
        compiled(text, mask).backward()
        optimizer.step()
        torch.cuda.synchronize()

    for _ in range(2):
        once()
    took = time.perf_counter() - start
    torch.cuda.reset_peak_memory_stats()
    found = seconds_of(once)
    return {"in_all": torch.cuda.max_memory_allocated(), "seconds": found, "compile": took}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is named, or both, each in a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--budgets", type=float, nargs="*", default=BUDGETS, help="PyTorch's")
    parser.add_argument("names", nargs="*", default=[])
    given = parser.parse_args(arguments)
    measures: dict[str, Callable[[int, int], Row]] = {
        "jax": measure_jax,
        "torch": partial(measure_torch, budgets=given.budgets),
    }
    for name in given.names or measures:
        say({"begun": name})
        try:
            say(measures[name](given.layers, given.batch))
        except Exception as error:  # noqa: BLE001 - the other may work
            say({"name": name, "error": f"{type(error).__name__}: {error}"[:2000]})
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
