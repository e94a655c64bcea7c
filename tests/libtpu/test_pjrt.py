"""The C interface against a table of functions that is made here, as a library would have it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import CFUNCTYPE, Structure, addressof, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import pytest

from hlomem.libtpu.partial_program import PhaseError
from hlomem.libtpu.pjrt import PhaseCompiler

FUNCTION = CFUNCTYPE(c_void_p, c_void_p)
ERROR = 77
RESULTS = (b"first", b"\0second\0")
HEAD: list[Any] = [("size", c_size_t), ("extension", c_void_p)]


class _Api(Structure):
    _fields_ = [
        *HEAD,
        ("version", c_void_p * 3),  # a struct of its own: its size, next extension, two numbers
        ("functions", c_void_p * 140),
    ]


class _Extension(Structure):
    _fields_ = [("size", c_size_t), ("type", c_int), ("next", c_void_p), ("calls", c_void_p * 5)]


class _Run(Structure):
    _fields_ = [
        *HEAD,
        *(("compiler", c_void_p), ("inputs", ctypes.POINTER(c_char_p))),
        *(("input_sizes", ctypes.POINTER(c_size_t)), ("input_count", c_size_t)),
        *(("phases", ctypes.POINTER(c_char_p)), ("phase_sizes", c_void_p), ("count", c_size_t)),
        *(("options", c_char_p), ("options_size", c_size_t), ("topology", c_void_p)),
        *(("outputs", c_void_p), ("output_sizes", c_void_p), ("output_count", c_size_t)),
    ]


class _Message(Structure):
    _fields_ = [*HEAD, ("error", c_void_p), ("text", c_void_p), ("bytes", c_size_t)]


class StandIn:
    """A library whose functions note what they were asked."""

    def __init__(self) -> None:
        self.failing = ""
        self.asked: list[object] = []
        self.api = _Api()
        self.others = _Extension(size=ctypes.sizeof(_Extension), type=3)
        self.phases = _Extension(size=ctypes.sizeof(_Extension), type=9)
        self._kept: list[object] = []
        self.others.next = addressof(self.phases)
        self.api.extension = addressof(self.others)
        for position, call in ((0, "destroy"), (1, ""), (3, "initialize"), (82, "topology")):
            made = self._message if position == 1 else self._noting(call)
            self.api.functions[position] = self._address(made)
        for position, call in ((0, "compiler"), (4, "buffers")):
            self.phases.calls[position] = self._address(self._noting(call))
        self.phases.calls[2] = self._address(self._run)
        self._text = ctypes.create_string_buffer(b"out of luck")

    def _address(self, function: Callable[[int], int | None]) -> int | None:
        made = FUNCTION(function)
        self._kept.append(made)
        return ctypes.cast(made, c_void_p).value

    def _noting(self, call: str) -> Callable[[int], int | None]:
        def function(_: int) -> int | None:
            self.asked.append(call)
            return ERROR if call == self.failing else None

        return function

    def _message(self, arguments: int) -> int | None:
        asked = _Message.from_address(arguments)
        assert asked.error == ERROR
        asked.text, asked.bytes = addressof(self._text), len(b"out of luck")
        return None

    def _run(self, arguments: int) -> int | None:
        asked = _Run.from_address(arguments)
        given = [asked.inputs[at][: asked.input_sizes[at]] for at in range(asked.input_count)]
        self.asked.append((asked.phases[0], given, asked.options))
        made = [ctypes.create_string_buffer(data, len(data)) for data in RESULTS]
        outputs = (c_void_p * len(made))(*map(addressof, made))
        sizes = (c_size_t * len(made))(*map(len, RESULTS))
        self._kept += [made, outputs, sizes]
        asked.outputs, asked.output_sizes = addressof(outputs), addressof(sizes)
        asked.output_count = len(made)
        return ERROR if self.failing == "run" else None


class Library:
    """What loading a library gives."""

    def __init__(self, stand_in: StandIn) -> None:
        class GetApi:
            restype: Any = None

            def __call__(self) -> int:
                return addressof(stand_in.api)

        self.GetPjrtApi = GetApi()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library(made))
    return made


def _open(*, is_loaded: bool = False) -> PhaseCompiler:
    return PhaseCompiler(Path("libtpu.so"), "v5e:2x2", is_loaded=is_loaded)


def test_a_phase_is_given_bytes_and_gives_bytes(stand_in: StandIn) -> None:
    compiler = _open()
    assert compiler.run("compile", [b"one", b"other"], b"options") == list(RESULTS)
    run = (b"compile", [b"one", b"other"], b"options")
    assert stand_in.asked == ["initialize", "topology", "compiler", run, "buffers"]


def test_a_library_that_jax_has_loaded_is_not_initialized_again(stand_in: StandIn) -> None:
    _open(is_loaded=True)
    assert stand_in.asked == ["topology", "compiler"]


@pytest.mark.parametrize(
    ("failing", "tried"),
    [
        ("initialize", "initialize"),
        ("topology", "topology v5e:2x2"),
        ("compiler", "its phases"),
        ("run", "compile"),
    ],
)
def test_an_error_says_what_was_tried_and_goes_back(
    stand_in: StandIn, failing: str, tried: str
) -> None:
    stand_in.failing = failing
    with pytest.raises(PhaseError, match=f"^{tried}: out of luck$"):
        _open().run("compile", [], b"")
    assert stand_in.asked[-1] == "destroy"


@pytest.mark.parametrize("extension", [0, 3])
def test_a_library_without_phases_is_refused(stand_in: StandIn, extension: int) -> None:
    stand_in.phases.type = extension
    with pytest.raises(PhaseError, match="does not offer its phases"):
        _open()


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.so", tmp_path):
        with pytest.raises(PhaseError, match="libtpu cannot be loaded"):
            PhaseCompiler(path, "v5e:2x2", is_loaded=False)
