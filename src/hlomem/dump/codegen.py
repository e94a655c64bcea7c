"""The texts compilers write once they have generated code; `hlomem.view.scoped` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hlomem.base.source import Source


class CodegenTexts(NamedTuple):
    program: Source
    """TPU: `*.after_codegen.txt`, the module, with what each instruction uses of scoped memory.
    GPU: `*.thunk_sequence.txt`, a kernel a line."""
    flags: str = ""
    """`*.tpu_comp_env.txt`, a flag a line; empty if it is missing."""
    target: str = ""
    """`*.target_arguments.txt`, or `*.gpu_target_config.pbtxt`; empty if it is missing."""
