"""MaxText's adaptor: recipes, names of slices, and its own main function up to the compile.

A package of the same name and shape stands in for MaxText, which tests do not install.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hlomem.base.errors import CommandError
from hlomem.stacks import maxtext
from hlomem.stacks.lowering import import_stack, lowered_by

RECIPE = r"""# A model.
export EXECUTABLE="train" # or train_compile
export LIBTPU_INIT_ARGS="--xla_a=true --xla_b=false"

python3 -m maxtext.trainers.pre_train.$EXECUTABLE "${CONFIGS:-$PWD}"//base.yml\
  model_name=llama2-7b\
  base_output_directory=$OUTPUT_PATH dataset_type=synthetic\
  per_device_batch_size=4 remat_policy=save_qkv_proj attention='flash' quantization=""
"""


def test_a_recipe_is_read_without_its_shell_variables(tmp_path: Path) -> None:
    file = tmp_path / "7b.sh"
    file.write_text(RECIPE)
    found = maxtext.read_recipe(str(file))
    assert found.config == "base.yml"
    assert found.flags == "--xla_a=true --xla_b=false"
    assert found.settings == {
        "model_name": "llama2-7b",
        "dataset_type": "synthetic",
        "per_device_batch_size": "4",
        "remat_policy": "save_qkv_proj",
        "attention": "flash",
        "quantization": "",
    }
    line = maxtext.read_recipe("python3 -m maxtext.train own.yml steps=3")
    assert line == maxtext.Recipe("own.yml", {"steps": "3"})


@pytest.mark.parametrize(
    ("words", "said"),
    [("python3 -m maxtext.train own.yml", "no settings"), ("a='b", "no command line")],
)
def test_what_is_no_recipe_is_refused(words: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        maxtext.read_recipe(words)


MAIN = """
import jax
GIVEN = []
def main(argv):
    GIVEN[:] = argv
    lowered = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((4,), "float32"))
    lowered.compile(compiler_options={"xla_flag": True})
    raise AssertionError("it is not compiled")
"""
NAMES = """
from collections import namedtuple
Known = namedtuple("Known", "platform topology_name devices_per_slice")
UserFacingNameToSystemCharacteristics = {
    "v4-8": Known("tpu", "v4:2x2x1", 4),
    "v5e-16": Known("tpu", "v5e:4x4", 16),
    "v5p-8": Known("tpu", "v5:2x2x1", 4),
    "a3": Known("gpu", None, 8),
}
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package named maxtext."""
    home = tmp_path / "maxtext"
    for folder in ("trainers/pre_train", "utils", "configs/tpu"):
        (home / folder).mkdir(parents=True)
        for part in (home / folder, *(home / folder).parents):
            if part.is_relative_to(home):
                (part / "__init__.py").touch()
    (home / "trainers/pre_train/train_compile.py").write_text(MAIN)
    (home / "utils/accelerator_to_spec_map.py").write_text(NAMES)
    (home / "configs/base.yml").touch()
    (home / "configs/tpu/7b.sh").write_text(RECIPE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for name in [name for name in sys.modules if name.partition(".")[0] == "maxtext"]:
        monkeypatch.delitem(sys.modules, name)


def _run(target: str, **settings: Any) -> tuple[Any, list[str]]:
    os.environ["HLOMEM_TARGET"] = target
    program = maxtext.train_step(**settings)
    return program, sys.modules["maxtext.trainers.pre_train.train_compile"].GIVEN


@pytest.mark.usefixtures("stand_in")
def test_its_own_main_function_is_run_up_to_the_compile() -> None:
    pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
    mesh = {"tensor": 4, "fsdp": 4}
    program, argv = _run("tpu-v5e:16", recipe="tpu/7b.sh", per_device_batch_size=9, mesh=mesh)
    assert program.lowered.as_text()
    assert program.compiler_options == {"xla_flag": True}
    assert argv[1].endswith("maxtext/configs/base.yml")
    assert {"compile_topology=v5e-16", "compile_topology_num_slices=1"} <= set(argv)
    assert {"ici_tensor_parallelism=4", "ici_fsdp_parallelism=4"} <= set(argv)
    assert "per_device_batch_size=9" in argv
    assert "--xla_b=false" in os.environ["LIBTPU_INIT_ARGS"]
    assert "per_device_batch_size=9" in program.command
    assert "compile_topology" not in program.command
    assert "compile_topology=v5p-8" in _run("tpu-v5p:4", model_name="x")[1]
    _, argv = _run("tpu-v4:2x2x1@2", model_name="x", scan_layers=True)
    assert {"compile_topology=v4-8", "compile_topology_num_slices=2", "scan_layers=true"} <= set(
        argv
    )


@pytest.mark.usefixtures("stand_in")
def test_what_maxtext_does_not_have_is_said() -> None:
    pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
    for target in ("cuda-h100:8", "tpu-v4-core:2x2x1", "tpu-v5e:2x2"):
        with pytest.raises(CommandError, match=f"no name for {target}"):
            _run(target, model_name="x")
    with pytest.raises(CommandError, match="divides a mesh among slices itself"):
        _run("tpu-v4:2x2x1@2", mesh={"fsdp": 8})
    with pytest.raises(CommandError, match=r"own\.yml: no such file, nor one of MaxText"):
        _run("tpu-v4", config="own.yml")


def test_a_missing_part_of_a_stack_is_named() -> None:
    with pytest.raises(
        CommandError, match=r"Some cannot be imported: there is no module `no_such`"
    ):
        import_stack("no_such", "Some", "pip install some")


def test_a_stack_that_compiles_nothing_is_said() -> None:
    pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
    with pytest.raises(CommandError, match="ended without a program"):
        lowered_by(lambda: None)
