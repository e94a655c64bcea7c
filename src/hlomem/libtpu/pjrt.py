"""PJRT's C interface as far as phases need it, by ctypes (`xla/pjrt/c/pjrt_c_api.h`).

Positions in the table of functions are those of the releases in `versions`. They do not move:
PJRT only adds functions at the end.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, addressof, c_char_p, c_int, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, ClassVar

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
_HEAD = [("size", c_size_t), ("extension", c_void_p)]


class _Arguments(Structure):
    """The arguments of a call, which begin with their own size."""

    _fields_: ClassVar[Any] = []

    def __init__(self, **values: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **values)


class _Initialize(_Arguments):
    _fields_: ClassVar[Any] = [*_HEAD]


class _Error(_Arguments):
    _fields_: ClassVar[Any] = [*_HEAD, ("error", c_void_p), ("text", c_void_p), ("bytes", c_size_t)]


class _DestroyedError(_Arguments):
    _fields_: ClassVar[Any] = [*_HEAD, ("error", c_void_p)]


class _Topology(_Arguments):
    _fields_: ClassVar[Any] = [
        *_HEAD,
        ("name", c_char_p),
        ("name_size", c_size_t),
        ("options", c_void_p),
        ("option_count", c_size_t),
        ("topology", c_void_p),
    ]


class _Extension(Structure):
    _fields_: ClassVar[Any] = [
        ("size", c_size_t),
        ("type", c_int),
        ("next", c_void_p),
        ("get_compiler", c_void_p),
        ("destroy_compiler", c_void_p),
        ("run_phases", c_void_p),
        ("get_phase_names", c_void_p),
        ("destroy_buffers", c_void_p),
    ]


class _Compiler(_Arguments):
    _fields_: ClassVar[Any] = [*_HEAD, ("compiler", c_void_p)]


class _Run(_Arguments):
    _fields_: ClassVar[Any] = [
        *_HEAD,
        ("compiler", c_void_p),
        ("inputs", POINTER(c_char_p)),
        ("input_sizes", POINTER(c_size_t)),
        ("input_count", c_size_t),
        ("phases", POINTER(c_char_p)),
        ("phase_sizes", POINTER(c_size_t)),
        ("phase_count", c_size_t),
        ("options", c_char_p),
        ("options_size", c_size_t),
        ("topology", c_void_p),
        ("outputs", POINTER(c_void_p)),
        ("output_sizes", POINTER(c_size_t)),
        ("output_count", c_size_t),
    ]


class _Buffers(_Arguments):
    _fields_: ClassVar[Any] = [
        *_HEAD,
        ("buffers", POINTER(c_void_p)),
        ("sizes", POINTER(c_size_t)),
        ("count", c_size_t),
    ]


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
        _CALL(self._extension.destroy_buffers)(addressof(done))
        return results

    def _function(self, position: int) -> int:
        return c_void_p.from_address(self._api + _FUNCTIONS + _POINTER * position).value or 0

    def _find_extension(self) -> _Extension:
        at = c_void_p.from_address(self._api + _EXTENSIONS).value
        for _ in range(_MAX_EXTENSIONS):
            if not at:
                break
            found = _Extension.from_address(at)
            if found.type == _PHASE_COMPILE and found.size >= ctypes.sizeof(_Extension):
                return found
            at = found.next
        raise PhaseError("this libtpu does not offer its phases (PJRT's PhaseCompile extension)")

    def _call(self, function: int, arguments: _Arguments, what: str) -> None:
        """Call a function; its error, if any, is raised."""
        error = _CALL(function)(addressof(arguments))
        if not error:
            return
        asked = _Error(error=error)
        _CALL(self._function(_ERROR_MESSAGE))(addressof(asked))
        message = ctypes.string_at(asked.text, asked.bytes).decode(errors="replace")
        _CALL(self._function(_ERROR_DESTROY))(addressof(_DestroyedError(error=error)))
        raise PhaseError(f"{what}: {message}")
