"""From metadata to the line somebody wrote."""

from __future__ import annotations

from hlomem import hlo
from hlomem.report.data.lines import Frame, Lines, bare_op_name, users_frame

MODULE = """HloModule m

FileNames
1 "/home/me/train.py"
2 "/venv/lib/python3.12/site-packages/flax/linen/linear.py"

FunctionNames
1 "train_step"
2 "__call__"

FileLocations
1 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=2 end_column=9}
2 {file_name_id=2 function_name_id=2 line=271 end_line=271 column=2 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

ENTRY %e (p: f32[]) -> f32[] {
  ROOT %p = f32[] parameter(0)
}
"""


def test_frames_of_libraries_are_skipped_for_the_users_own() -> None:
    lines = Lines(hlo.parse(MODULE))
    text = '%d = f32[] dot(%a), metadata={op_name="jit(f)/dot" stack_frame_id=2}'
    assert [frame.line for frame in lines.origin(text).frames] == [271, 5]
    assert lines.origin(text).line == "/home/me/train.py:5"
    assert lines.origin(text).frames[0].function == "__call__"


def test_without_tables_a_number_says_nothing() -> None:
    text = '%d = f32[] dot(%a), metadata={op_name="dot" stack_frame_id=2}'
    assert Lines(None).origin(text).frames == ()
    assert Lines(None).origin(text).line is None
    assert Lines(hlo.parse(MODULE)).origin(text.replace("=2}", "=9}")).line is None


def test_older_text_names_file_and_line() -> None:
    text = '%d = f32[] dot(%a), metadata={op_name="dot" source_file="a \\"b\\".py" source_line=7}'
    assert Lines(None).origin(text).line == 'a "b".py:7'
    assert Lines(None).origin(text.replace(" source_line=7", "")).line == 'a "b".py'
    assert Lines(None).origin("%d = f32[] dot(%a)").line is None


def test_a_program_of_libraries_alone_shows_the_one_nearest_to_a_user() -> None:
    jax = Frame("/venv/lib/python3.12/site-packages/jax/_src/pjit.py", 1)
    model = Frame("/venv/lib/python3.12/site-packages/mymodel/layers.py", 2)
    system = Frame("/usr/lib/python3.12/runpy.py", 3)
    assert users_frame((jax, model, system)) == model
    checkout = Frame("/opt/flax/flax/core/axes_scan.py", 4)
    mine = Frame("/opt/maxtext/train.py", 5)
    assert users_frame((jax, checkout, mine)) == mine
    assert users_frame((jax, checkout)) == checkout
    assert users_frame((jax, system)) == jax
    assert users_frame(()) is None


def test_names_of_operations() -> None:
    text = '%d = f32[] dot(%a), metadata={op_type="dot" op_name="jit(f)/ps[\\\'w\\\']"}'
    assert Lines(None).origin(text).op_name == "jit(f)/ps['w']"
    nameless = '%d = f32[] dot(%a), metadata={op_name=""}'
    assert Lines(None).origin(nameless).op_name is None
    configured = '%d = f32[] custom-call(%a), backend_config="op_name=\\"x\\""'
    assert Lines(None).origin(configured).op_name is None
    assert bare_op_name("jit(f)/conv[window_strides=(1,) padding=((3, 3),)]") == "jit(f)/conv"
    assert bare_op_name("args[0]") == "args[0]"


def test_the_line_of_a_kernel_is_not_lost_to_its_kernel_metadata() -> None:
    lines = Lines(hlo.parse(MODULE))
    text = "%k = f32[] custom-call(%a), frontend_attributes={kernel_metadata={}}, metadata={"
    assert lines.origin(f'{text}op_name="k" stack_frame_id=1}}').line == "/home/me/train.py:5"


def test_a_program_of_an_installed_package_has_its_lines_not_its_launchers() -> None:
    jax = Frame("/usr/lib/python3.12/site-packages/jax/_src/lax.py", 9)
    layer = Frame("/usr/lib/python3.12/site-packages/maxtext/layers/linears.py", 120)
    launcher = Frame("<string>", 1)
    assert users_frame((jax, layer, launcher)) == layer
    assert users_frame((jax, launcher)) == launcher


def test_a_stacks_factory_of_ours_is_a_launcher_too_wherever_it_is_installed() -> None:
    layer = Frame("/venv/lib/python3.12/site-packages/maxtext/layers/linears.py", 120)
    ours = Frame("/home/me/hlomem/src/hlomem/stacks/maxtext.py", 77)
    mine = Frame("/home/me/hlomem/train.py", 3)
    assert users_frame((layer, ours)) == layer
    assert users_frame((layer, mine, ours)) == mine
    assert users_frame((ours,)) == ours
