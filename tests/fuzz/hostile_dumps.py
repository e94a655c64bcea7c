"""Dumps made to hurt a reader: long, deep, huge, forged."""

from __future__ import annotations


def _assignment(allocations: str) -> str:
    return f"BufferAssignment:\n{allocations}"


def _live_range(steps: str, ranges: str = "", peak: str = "", end: int = 1) -> str:
    title = "  Live ranges at 0 (peak):\n"
    return (
        f"HloLiveRange (max {end}):\n  InstructionSequence:\n{steps}"
        f"  BufferLiveRange:\n{ranges}{title}{peak}"
    )


def _tree(nodes: str, total: int = 4) -> str:
    title = f"  Stack trace breakdown for peak usage: {total} bytes\n"
    return _live_range("    0:a\n", "    a{}:0-1\n", "    a{}: 4 bytes (cumulative: 4 bytes)\n") + (
        title + nodes
    )


_SHARE = "(100.0%, total: 4 bytes, current: 4 bytes, remaining: 0 bytes)"


def many_allocations(many: int) -> str:
    """50,000 of them without values."""
    return _assignment(
        "".join(f"allocation {n}: size 4, maybe-live-out:\n" for n in range(many // 2))
    )


def many_overlapping_values(many: int) -> str:
    """20,000 values in the same bytes."""
    values = "".join(f" value: <{n} v{n} @0> (size=4,offset=0): f32[]\n" for n in range(many // 5))
    return _assignment(f"allocation 0: size 4, preallocated-temp:\n{values}")


def same_values(many: int) -> str:
    """One value 20,000 times."""
    values = " value: <1 v @0> (size=4,offset=0): f32[]\n" * (many // 5)
    return _assignment(f"allocation 0: size 4, preallocated-temp:\n{values}")


def endless_size(_many: int) -> str:
    """A size of 4,000 digits."""
    return _assignment(f"allocation 0: size 1{'0' * 4000}:\n")


def largest_sizes(_many: int) -> str:
    """Sizes whose sum does not fit 64 bits."""
    return _assignment("".join(f"allocation {n}: size {2**63 - 1}:\n" for n in range(100)))


def negative_sizes(_many: int) -> str:
    """Sizes and offsets below nothing."""
    value = " value: <1 v @0> (size=-4,offset=-9223372036854775807): f32[]\n"
    return _assignment(f"allocation 0: size -8, preallocated-temp:\n{value}")


def many_unknown_attributes(many: int) -> str:
    """100,000 attributes nobody knows."""
    return _assignment(f"allocation 0: size 4{', new' * many}:\n")


def open_bars(many: int) -> str:
    """Attributes with 100,000 bars."""
    return _assignment(f"allocation 0: size 4, {'|' * (many + 1)}:\n")


def many_commas(many: int) -> str:
    """A header of 100,000 commas and colons."""
    return _assignment(f"allocation 0: size 4, a{':,' * many}\n")


def long_index(many: int) -> str:
    """A shape index of 100,000 steps."""
    index = "{" + ",".join(["0"] * many) + "}"
    value = f" value: <1 v{index} @0> (size=4,offset=0): f32[]\n"
    return _assignment(f"allocation 0: size 4, preallocated-temp:\n{value}")


def deep_value_shape(many: int) -> str:
    """A value whose shape is nested 100,000 deep."""
    shape = "(" * many + "f32[]" + ")" * many
    value = f" value: <1 v @0> (size=4,offset=0): {shape}\n"
    return _assignment(f"allocation 0: size 4, preallocated-temp:\n{value}")


def blank_lines(many: int) -> str:
    """A million empty lines behind the title."""
    return _assignment("\n" * (10 * many))


def long_sequence(many: int) -> str:
    """100,000 steps, all values alive all the time."""
    count = many
    steps = "".join(f"    {n}:i{n}\n" for n in range(count))
    ranges = "".join(f"    i{n}{{}}:0-{count}\n" for n in range(count))
    peak = "".join(f"    i{n}{{}}: 4 bytes (cumulative: {4 * n + 4} bytes)\n" for n in range(count))
    return _live_range(steps, ranges, peak, count)


def endless_ranges(_many: int) -> str:
    """Live ranges that end before they begin, and at the end of time."""
    ranges = "    a{}:9223372036854775807-0\n    b{}:0-9223372036854775807\n    c{}:-9-9\n"
    return _live_range("    0:a\n", ranges, "", 2**63 - 1)


def late_peak(_many: int) -> str:
    """A peak at a time that never comes."""
    return _live_range("    0:a\n", "    a{}:0-1\n").replace(
        "at 0 (peak)", f"at {2**63 - 1} (peak)"
    )


def deep_tree(many: int) -> str:
    """A tree 2,000 deep."""
    rows = [
        f"    a {_SHARE}\n".replace("current: 4", "current: 0").replace(
            "remaining: 0", "remaining: 4"
        )
    ]
    rows += [
        f"  {'    ' * depth}└── a {_SHARE}\n".replace("current: 4", "current: 0")
        for depth in range(1, many // 50)
    ]
    return _tree("".join(rows) + f"  {'    ' * (many // 50)}└── a {_SHARE}\n")


def wide_tree(many: int) -> str:
    """A tree of 50,000 leaves."""
    share = _SHARE.replace("current: 4", "current: 0")
    return _tree(f"    a {_SHARE}\n" + f"    a {share}\n" * (many // 2))


def forged_tree(_many: int) -> str:
    """A scope whose name holds lines of the dump, control characters and markup."""
    name = "a\nallocation 9: size 1:\n\x1b[2J</script>\u202e\x9b"
    return _tree(f"    {name} {_SHARE}\n")


def half_nodes(many: int) -> str:
    """A name of 100,000 parentheses."""
    return _tree(f"    {'(' * many}\n")


def almost_nodes(many: int) -> str:
    """A name that nearly ends 50,000 times."""
    return _tree(f"    {' (1.0%, total: ' * (many // 2)}\n")


def name_of_lines(many: int) -> str:
    """A name of 300,000 lines."""
    return _tree(f"    a{chr(10) * 3 * many} {_SHARE}\n")


def log_lines(many: int) -> str:
    """100,000 lines of a log in a dump that is damaged besides."""
    return _assignment("I0101 00:00:00.000000 1 a.cc:1] x\n" * many + "allocation x\n")


def many_positions(many: int) -> str:
    """A value at 100,000 positions."""
    positions = "".join(f"  i{n}\n" for n in range(many))
    return (
        "\nTotal bytes used: 4 (4B)\n\nUsed values:\n<0 a @0>\n positions:\n"
        f"{positions} uses:\n from instruction: %a = f32[] parameter(0)\n"
    )
