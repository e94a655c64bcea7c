"""Whatever users have becomes memory to look at."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

import hlomem
from hlomem.api.opening import machine_of, open_subject
from hlomem.base.errors import CommandError
from tests.places import GOLDENS

GPT = GOLDENS / "trials/cpu/gpt"
DONATED = GOLDENS / "trials/cpu/gpt_donate"


class Compiled:
    """What JAX returns from `compile()`, as far as anybody asks."""

    def __init__(self, text: str | None, platform: str = "", kind: str = "") -> None:
        self._text = text
        device = SimpleNamespace(platform=platform, device_kind=kind)
        sharding = SimpleNamespace(device_set=[device])
        self.input_shardings: object = ((sharding,), {}) if platform else ()

    def as_text(self) -> str | None:
        return self._text


@pytest.mark.parametrize(
    ("variant", "kind"),
    [("cpu/gpt", "cpu"), ("tpu/gpt", "TPU v5 lite"), ("tpu/lost", "TPU v5 lite")],
)
def test_a_compiled_program_has_the_total_of_its_dump(variant: str, kind: str) -> None:
    dump = hlomem.load(GOLDENS / "trials" / variant)
    assert dump.module is not None
    of_dump = hlomem.explain(dump)
    platform = variant.partition("/")[0]
    compiled = hlomem.explain(Compiled(dump.module.source.text, platform, kind))
    assert compiled.space.size == of_dump.space.size
    assert compiled.memory.machine.platform == of_dump.memory.machine.platform
    assert compiled.by("line")[0].source == of_dump.by("line")[0].source


def test_a_loaded_dump_keeps_its_lines() -> None:
    by_path = hlomem.explain(GPT).by("line")
    assert hlomem.explain(hlomem.load(GPT, module="train_step")).by("line") == by_path
    assert "/home/user/project/train_gpt.py:32" in {row.key for row in by_path}
    rows = hlomem.diff(hlomem.load(GPT), hlomem.load(DONATED)).rows
    assert "/home/user/project/train_gpt.py:32" in {row.key for row in rows}
    assert rows == hlomem.diff(GPT, str(DONATED)).rows


def test_advice_is_the_same_by_path_by_dump_and_by_name() -> None:
    folder = GOLDENS / "trials/cpu/decode"
    by_path = hlomem.advise(folder)
    assert hlomem.advise(hlomem.load(folder)) == by_path
    assert hlomem.advise(str(folder), module="decode") == by_path


def test_plans_modules_and_texts_are_planned_alike() -> None:
    dump = hlomem.load(GPT)
    assert dump.module is not None
    text = dump.module.source.text
    sizes = {hlomem.explain(each).space.size for each in (text, dump.module, hlomem.plan(text))}
    assert sizes == {hlomem.explain(dump).space.size}


@pytest.mark.parametrize(
    ("subject", "says"),
    [
        (5, "a `int` is not supported: give a path"),
        (SimpleNamespace(stages=1), "a `SimpleNamespace` is not supported"),
        (Compiled(None), "gives no HLO"),
        (Compiled("module @jit_f {\n}\n"), "is not HLO: compile it first"),
    ],
)
def test_what_has_no_memory_is_refused_with_what_has(subject: object, says: str) -> None:
    with pytest.raises(CommandError, match=says):
        open_subject(subject)  # type: ignore[arg-type]


def test_a_module_is_chosen_only_from_a_folder() -> None:
    with pytest.raises(CommandError, match="no folder was given"):
        hlomem.explain(hlomem.load(GPT), module="train_step")


def test_packages_need_no_import_of_their_own() -> None:
    code = (
        "import hlomem; hlomem.hlo.parse; hlomem.machines.registry.MACHINES['tpu-v5e'];"
        "hlomem.dump.records; hlomem.assign.packing; hlomem.base.errors.EditError;"
        "hlomem.dump.compare.find_differences; hlomem.pipeline.start_stages"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_program_whose_shardings_name_no_device_has_no_machine() -> None:
    assert machine_of(Compiled("HloModule m")) is None
    assert machine_of(object()) is None
