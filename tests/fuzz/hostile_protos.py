"""Protos, containers and archives that are made to cost: each function gives the bytes of a file.

Sizes grow with `many`. Nothing in them is a program that XLA could have, except where the name of
the function says so.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from hlomem.proto.programs import RIEGELI_MAGIC
from hlomem.proto.schema import message_types
from tests.fuzz.proto_mutants import varint

if TYPE_CHECKING:
    from collections.abc import Callable

_SHAPE = {"element_type": 11, "dimensions": [2], "layout": {"minor_to_major": [0]}}


def _field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def _instruction(number: int, opcode: str, **fields: object) -> dict[str, object]:
    made: dict[str, object] = {"name": f"x{number}", "opcode": opcode, "shape": _SHAPE}
    return {**made, "id": number, **fields}


def _module(computations: list[dict[str, object]], **fields: object) -> bytes:
    last = computations[-1]["id"]
    schedule = {
        "sequences": [
            {
                "key": computation["id"],
                "value": {"instruction_ids": [each["id"] for each in computation["instructions"]]},  # type: ignore[attr-defined]
            }
            for computation in computations
        ]
    }
    made = message_types()["Module"](
        **{
            "name": "hostile",
            "entry_computation_name": computations[-1]["name"],
            "entry_computation_id": last,
            "computations": computations,
            "schedule": schedule,
            **fields,
        }
    )
    encoded: bytes = made.SerializeToString()
    return encoded


def _computation(number: int, instructions: list[dict[str, object]]) -> dict[str, object]:
    root = instructions[-1]["id"]
    return {"name": f"c{number}", "id": number, "root_id": root, "instructions": instructions}


def deep_messages(many: int) -> bytes:
    """A message in a message in a message."""
    data = b"\x08\x01"
    for _ in range(many):
        data = _field(1, data)
        if len(data) > 1 << 20:
            break
    return data


def deep_tuple_in_a_shape(many: int) -> bytes:
    """A tuple of a tuple of a tuple, as deep as the runtime decodes."""
    shape: dict[str, object] = dict(_SHAPE)
    for _ in range(min(many, 90)):
        shape = {"element_type": 13, "tuple_shapes": [shape]}
    return _module([_computation(1, [_instruction(1, "parameter", shape=shape)])])


def deep_tuple_beyond_the_runtime(many: int) -> bytes:
    """The same, deeper than any runtime decodes."""
    shape = b"\x10\x0b"
    for _ in range(min(many, 5000)):
        shape = b"\x10\x0d" + _field(4, shape)
    instruction = _field(1, b"x") + _field(2, b"parameter") + _field(3, shape)
    computation = _field(1, b"main") + _field(2, instruction)
    return _field(1, b"deep") + _field(2, b"main") + _field(3, computation)


def huge_length(many: int) -> bytes:
    """Fields that claim to go on for exabytes."""
    return b"".join(
        varint(number << 3 | 2) + varint(1 << shift) for number, shift in ((1, 62), (3, 63))
    ) + b"\0" * min(many, 100)


def many_empty_fields(many: int) -> bytes:
    """Fields with nothing in them."""
    return _field(1, b"jit_x") + _field(2, b"main") + b"\x1a\x00" * (many * 10)


def many_small_messages(many: int) -> bytes:
    """Messages of messages that may all be modules, by their first bytes."""
    return _field(1, _field(1, _field(1, b"a") + _field(2, b"b") + _field(3, b"cccccccccccc"))) * (
        many // 2
    )


def zlib_bomb(many: int) -> bytes:
    """Nothing but zeros, a thousand times smaller."""
    packer = zlib.compressobj(9)
    pieces = [packer.compress(bytes(1 << 20)) for _ in range(min(many, 1000))]
    return b"".join([*pieces, packer.flush()])


def zlib_in_zlib(many: int) -> bytes:
    """Zeros, packed and packed again."""
    return zlib.compress(zlib.compress(bytes(min(many, 200) << 20), 9), 9)


def snappy_bomb(many: int) -> bytes:
    """A record file whose chunk copies one byte again and again, and claims to be larger."""
    literal = b"\x00A"
    copies = b"\xfe\x01\x00" * (many * 10)
    packed = varint(1 << 40) + literal + copies
    return record_file(b"s", packed)


def record_file_with_a_huge_chunk(many: int) -> bytes:
    """A record file whose chunk claims exabytes."""
    return record_file(b"\0", b"A" * min(many, 1000), size=1 << 62)


def record_file(compression: bytes, data: bytes, size: int | None = None) -> bytes:
    """A Riegeli file of one chunk; hashes are wrong, as nobody checks them."""
    block = RIEGELI_MAGIC + bytes(8) + (64).to_bytes(8, "little")
    signature = bytes(8) + bytes(8) + bytes(8) + b"s" + bytes(7) + bytes(8)
    length = len(compression + data) if size is None else size
    head = bytes(8) + length.to_bytes(8, "little") + bytes(8)
    head += b"r" + (1).to_bytes(7, "little") + length.to_bytes(8, "little")
    return block + signature + head + compression + data


def zstd_bomb(many: int) -> bytes:
    """A frame that claims a terabyte and repeats one byte for as long as it lasts."""
    head = bytes.fromhex("28b52ffd") + b"\xe0" + (1 << 40).to_bytes(8, "little")
    block = ((131072 << 3) | 2).to_bytes(3, "little") + b"\0"
    return head + block * min(many, 5000)


def computations_that_call_themselves(many: int) -> bytes:
    """Every computation calls the next, and the last the first."""
    count = min(many, 2000)
    return _module(
        [
            _computation(
                number,
                [_instruction(number, "call", called_computation_ids=[(number + 1) % count])],
            )
            for number in range(count)
        ]
    )


def computations_in_a_long_chain(many: int) -> bytes:
    """Every computation calls the one above it: deeper than any recursion may go."""
    first = _computation(1, [_instruction(1, "parameter")])
    rest = [
        _computation(
            number,
            [
                _instruction(number * 2, "parameter"),
                _instruction(
                    number * 2 + 1,
                    "call",
                    operand_ids=[number * 2],
                    called_computation_ids=[number - 1],
                ),
            ],
        )
        for number in range(2, min(many, 2000) + 2)
    ]
    return _module([first, *rest])


def calls_that_fan_out(many: int) -> bytes:
    """Every computation calls the one above it twice: two to the power of many paths."""
    first = _computation(1, [_instruction(1, "parameter")])
    rest = []
    for number in range(2, min(many, 60) + 2):
        base = number * 4
        calls = [
            _instruction(
                base + offset,
                "call",
                operand_ids=[base],
                called_computation_ids=[number - 1],
            )
            for offset in (1, 2)
        ]
        total = _instruction(base + 3, "add", operand_ids=[base + 1, base + 2])
        rest.append(_computation(number, [_instruction(base, "parameter"), *calls, total]))
    return _module([first, *rest])


def schedule_of_another_program(many: int) -> bytes:
    """A schedule that lists instructions which are not there."""
    sequence = {"key": 1, "value": {"instruction_ids": list(range(many * 10))}}
    parameter = _computation(1, [_instruction(1, "parameter")])
    return _module([parameter], schedule={"sequences": [sequence]})


def one_instruction_with_many_operands(many: int) -> bytes:
    """A tuple of the same element again and again."""
    shape = {"element_type": 13, "tuple_shapes": [_SHAPE] * many}
    made = _instruction(2, "tuple", operand_ids=[1] * many, shape=shape)
    return _module([_computation(1, [_instruction(1, "parameter"), made])])


def names_that_control_terminals(many: int) -> bytes:
    """Names with escape sequences in them."""
    name = "\x1b[2J\x1b]0;x\x07" * min(many, 50)
    return _module([_computation(1, [_instruction(1, "parameter", name=name)])])


def a_large_literal(many: int) -> bytes:
    """A constant whose literal is larger than its shape says."""
    literal = _field(8, bytes(4 * many * 10))
    return _module([_computation(1, [_instruction(1, "constant", literal=literal)])])


def _plan(ids: list[int], allocations: int = 1) -> dict[str, object]:
    """A plan of buffers, each in an allocation of its own as far as there are so many."""
    buffers = [
        {"id": number, "size": 8, "defined_at": {"instruction_id": each, "shape_index": []}}
        for number, each in enumerate(ids)
    ]
    made = [
        {"index": number, "size": 8, "assigned": [{"logical_buffer_id": number, "size": 8}]}
        for number in range(allocations)
    ]
    return {"logical_buffers": buffers, "buffer_allocations": made}


def _with_plan(module: bytes, plan: dict[str, object]) -> bytes:
    encoded = message_types()["BufferAssignment"](**plan).SerializeToString()
    return _field(1, module) + _field(3, encoded)


def programs_with_plans_of_others(many: int) -> bytes:
    """Programs beside plans, each of which names one instruction that no program has."""
    parts = []
    for number in range(min(many, 1200)):
        instructions = [_instruction(each, "parameter") for each in range(1, 9)]
        module = _module([_computation(number, instructions)])
        parts.append(_field(1, _with_plan(module, _plan([*range(1, 9), 999_999_999]))))
    return b"".join(parts)


def plain_numbers(many: int) -> bytes:
    """Fields that are numbers and nothing else, millions of them."""
    return b"\x08\x01" * (many * 4000)


def a_plan_of_many_allocations(many: int) -> bytes:
    """A program with as many arguments as its plan has allocations."""
    count = many * 10
    layout = {"element_type": 11, "dimensions": [2], "layout": {"minor_to_major": [0]}}
    instructions = [
        _instruction(number, "parameter", parameter_number=number - 1, shape=layout)
        for number in range(1, count + 1)
    ]
    module = _module([_computation(1, instructions)])
    return _with_plan(module, _plan(list(range(1, count + 1)), count))


PROTOS: list[Callable[[int], bytes]] = [
    a_plan_of_many_allocations,
    plain_numbers,
    programs_with_plans_of_others,
    deep_messages,
    deep_tuple_in_a_shape,
    deep_tuple_beyond_the_runtime,
    huge_length,
    many_empty_fields,
    many_small_messages,
    zlib_bomb,
    zlib_in_zlib,
    snappy_bomb,
    record_file_with_a_huge_chunk,
    zstd_bomb,
    computations_that_call_themselves,
    computations_in_a_long_chain,
    calls_that_fan_out,
    schedule_of_another_program,
    one_instruction_with_many_operands,
    names_that_control_terminals,
    a_large_literal,
]
