"""PJRT's C interface as far as phases need it, by ctypes (`xla/pjrt/c/pjrt_c_api.h`).

Positions in the table of functions are those of the releases in `versions`. They do not move:
PJRT only adds functions at the end.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, addressof, c_char_p, c_int, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any

from hlomem.libtpu.partial_program import PhaseError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_CALL = ctypes.CFUNCTYPE(c_void_p, c_void_p)
_EXTENSIONS, _FUNCTIONS, _POINTER = 8, 40, 8
"""Bytes before the first extension and the first function of `PJRT_Api`, bytes of a pointer."""
_ERROR_DESTROY, _ERROR_MESSAGE, _INITIALIZE, _TOPOLOGY = 0, 1, 3, 82
_PHASE_COMPILE = 9
"""`PJRT_Extension_Type_PhaseCompile`."""
_MAX_EXTENSIONS = 100
_TYPES = {
    "i": c_int,
    "n": c_size_t,
    "p": c_void_p,
    "s": c_char_p,
    "N": POINTER(c_size_t),
    "P": POINTER(c_void_p),
    "S": POINTER(c_char_p),
}


def _struct(fields: str, head: str = "size:n extension:p") -> Any:
    """A type of C by its fields, `name:type`; arguments of calls begin with the same two."""
    words = [field.split(":") for field in f"{head} {fields}".split()]
    kinds = [(name, _TYPES[kind]) for name, kind in words]
    return type("Arguments", (Structure,), {"_fields_": kinds})


_Initialize = _struct("")
_Error = _struct("error:p text:p bytes:n")
_DestroyedError = _struct("error:p")
_Topology = _struct("name:s name_size:n options:p option_count:n topology:p")
_Compiler = _struct("compiler:p")
_Run = _struct(
    "compiler:p inputs:S input_sizes:N input_count:n phases:S phase_sizes:N phase_count:n"
    " options:s options_size:n topology:p outputs:P output_sizes:N output_count:n"
)
_Buffers = _struct("buffers:P sizes:N count:n")
_Extension = _struct(
    "get_compiler:p destroy_compiler:p run_phases:p get_phase_names:p destroy_buffers:p",
    head="size:n type:i next:p",
)


class PhaseCompiler:
    """The compiler of a library for one topology (`v5e:2x2`), one phase after another."""

    def __init__(self, library: Path, topology: str, *, is_loaded: bool) -> None:
        """`is_loaded`: whether this process has initialized the library already, as JAX does."""
        try:
            loaded = ctypes.CDLL(str(library))
            get_api = loaded.GetPjrtApi
        except (OSError, AttributeError) as error:
            raise PhaseError(f"libtpu cannot be loaded: {error}") from error
        get_api.restype = c_void_p
        self._api: int = get_api()
        if not is_loaded:
            self._call(self._function(_INITIALIZE), _Initialize(), "initialize")
        name = topology.encode()
        made = _Topology(name=name, name_size=len(name))
        self._call(self._function(_TOPOLOGY), made, f"topology {topology}")
        self._topology = made.topology
        self._extension = self._find_extension()
        compiler = _Compiler()
        self._call(self._extension.get_compiler, compiler, "its phases")
        self._compiler = compiler.compiler

    def run(self, phase: str, inputs: Sequence[bytes], options: bytes) -> list[bytes]:
        """The results of a phase; options are a CompileOptionsProto."""
        name = phase.encode()
        arguments = _Run(
            compiler=self._compiler,
            inputs=(c_char_p * len(inputs))(*inputs),
            input_sizes=(c_size_t * len(inputs))(*map(len, inputs)),
            input_count=len(inputs),
            phases=(c_char_p * 1)(name),
            phase_sizes=(c_size_t * 1)(len(name)),
            phase_count=1,
            options=options,
            options_size=len(options),
            topology=self._topology,
        )
        self._call(self._extension.run_phases, arguments, phase)
        count = arguments.output_count
        results = [
            ctypes.string_at(arguments.outputs[at], arguments.output_sizes[at])
            for at in range(count)
        ]
        done = _Buffers(buffers=arguments.outputs, sizes=arguments.output_sizes, count=count)
        self._call(self._extension.destroy_buffers, done)
        return results

    def _function(self, position: int) -> int:
        return c_void_p.from_address(self._api + _FUNCTIONS + _POINTER * position).value or 0

    def _find_extension(self) -> Any:
        at = c_void_p.from_address(self._api + _EXTENSIONS).value
        for _ in range(_MAX_EXTENSIONS):
            if not at:
                break
            found = _Extension.from_address(at)
            if found.type == _PHASE_COMPILE and found.size >= ctypes.sizeof(_Extension):
                return found
            at = found.next
        raise PhaseError("this libtpu does not offer its phases (PJRT's PhaseCompile extension)")

    def _call(self, function: int, arguments: Any, what: str = "") -> None:
        """Call a function; its error is raised if it can have one and says what was tried."""
        arguments.size = ctypes.sizeof(arguments)
        error = _CALL(function)(addressof(arguments))
        if not error or not what:
            return
        asked = _Error(error=error)
        self._call(self._function(_ERROR_MESSAGE), asked)
        message = ctypes.string_at(asked.text, asked.bytes).decode(errors="replace")
        self._call(self._function(_ERROR_DESTROY), _DestroyedError(error=error))
        raise PhaseError(f"{what}: {message}")
