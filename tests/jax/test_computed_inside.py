"""A one-hot scatter computed inside the loop that reads it, run by XLA:CPU: the same numbers.

That compiler optimizes both once more, and may contract one of them: the last bits are free here.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest

from hlomem.hlo.text.printer import format_module
from hlomem.opt.candidate import Program
from hlomem.opt.goal import Rules
from hlomem.opt.remat.fused import compute_inside
from hlomem.opt.search import write
from tests.opt.remat.cross_entropy import GRADIENT, ROWS, WORDS, stages_of_step

_FUSION = re.compile(r" fusion\((.*?)\), kind=\w+, calls=(%[\w.]+)")


def _run(text: str, arguments: list[Any]) -> Any:
    """A module of fusions, each run as a call of its body."""
    jax: Any = import_module("jax")
    extension: Any = import_module("jaxlib._jax")
    compiler: Any = import_module("jax._src.compiler")
    interpreters: Any = import_module("jax._src.interpreters.mlir")
    ir: Any = import_module("jaxlib.mlir.ir")
    text = _FUSION.sub(r" call(\1), to_apply=\2", text)
    text = text.replace(" bitcast(", " reshape(")  # rows lie one after another in all of them
    proto = import_module("jaxlib._hlo").hlo_module_from_text(text)
    program = extension.mlir.hlo_to_stablehlo(proto.as_serialized_hlo_module_proto())
    device = jax.devices("cpu")[0]
    options = compiler.get_compile_options(1, 1)
    with interpreters.make_ir_context():
        module = ir.Module.parse(program)
        devices = extension.DeviceList((device,))
        made = compiler.backend_compile_and_load(device.client, module, devices, options, ())
    [result] = made.execute_sharded(arguments).disassemble_into_single_device_arrays()
    return result[0]


@pytest.mark.parametrize("shift", [0, -3, WORDS])
def test_the_edited_program_computes_the_same(shift: int) -> None:
    numpy: Any = import_module("numpy")
    jax: Any = import_module("jax")
    start = Program(stages_of_step(GRADIENT), Rules(exact=True)).start()
    made = compute_inside(start)
    assert made is not None
    written, problems = write(made)
    assert problems == []
    random = numpy.random.default_rng(0)
    logits = random.standard_normal((ROWS[0] * ROWS[1], WORDS), dtype="float32")
    labels = random.integers(0, WORDS, ROWS).astype("int32") + shift  # some, or all, out of bounds
    weights = random.standard_normal(ROWS, dtype="float32")
    arguments = [jax.device_put(one) for one in (logits, labels, weights)]
    before = _run(GRADIENT, arguments)
    after = _run(format_module(written.read_back), arguments)
    numpy.testing.assert_allclose(numpy.asarray(before), numpy.asarray(after), rtol=1e-5, atol=1e-6)
