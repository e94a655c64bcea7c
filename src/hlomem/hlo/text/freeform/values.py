"""The values of attributes that do not name computations: one reader for each kind of value.

In: tokens, at a value. Out: a `Value`, the text XLA prints for it and what the rules of shape
inference ask of it; or the `ParseError` at the token that is wrong. Mirrors the `Parse...`
functions of `hlo/parser/hlo_parser.cc` that `ParseAttributeHelper` calls, and the printers of
`hlo/ir/hlo_instruction.cc` and `hlo_instructions.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.hlo.text.literals import FLOATS, nearest
from hlomem.hlo.text.strings import json_or_string, quote
from hlomem.hlo.window import ConvolutionLabels, WindowDimension, format_labels, format_window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hlomem.hlo.text.freeform.tokens import Tokens

_INT32 = 2**31


class Value(NamedTuple):
    """A value as XLA prints it, and as the rules of shape inference read it."""

    text: str
    data: Any = None


def braced(texts: Iterable[str], comma: str = ",") -> str:
    """Texts in braces."""
    return f"{{{comma.join(texts)}}}"


def read_boolean(tokens: Tokens) -> Value:
    """`true` or `false`."""
    if tokens.kind not in ("true", "false"):
        tokens.fail("expected `true` or `false`")
    text = tokens.take()
    return Value(text, text == "true")


def read_integer(tokens: Tokens) -> Value:
    """An integer of 64 bits."""
    number = tokens.expect_integer()
    return Value(str(number), number)


def read_short_integer(tokens: Tokens) -> Value:
    """An integer of 32 bits."""
    if not -_INT32 <= tokens.integer() < _INT32:
        tokens.fail("number does not fit into 32 bits")
    return read_integer(tokens)


def read_double(tokens: Tokens) -> float:
    """A number of any form (`ParseDouble`)."""
    if tokens.kind in ("inf", "minus_inf") or (
        tokens.kind == "decimal" and "n" not in tokens.value
    ):
        number = float(tokens.value)
        if tokens.kind == "decimal" and abs(number) == float("inf"):
            tokens.fail("number is too large for 64 bits")
    else:
        number = float(tokens.integer("a number"))
    tokens.advance()
    return number


def read_float(tokens: Tokens) -> Value:
    """A number of 32 bits, printed with six digits."""
    start, number = tokens.start, read_double(tokens)
    if FLOATS["f32"].largest < abs(number) != float("inf"):
        tokens.fail("number does not fit into 32 bits", start=start)
    return Value(f"{nearest(number, 'f32'):g}")


def read_string(tokens: Tokens) -> Value:
    """A string in quotes."""
    text = tokens.expect("string")
    return Value(quote(text), text)


def read_config(tokens: Tokens) -> Value:
    """A string, or JSON in braces (`kStringOrJsonDict`)."""
    text = tokens.read_braced() if tokens.kind == "{" else tokens.expect("string")
    return Value(json_or_string(text), text)


def list_of(read: Callable[[Tokens], Value], comma: str = ",") -> Callable[[Tokens], Value]:
    """A reader of any number of values in braces."""

    def read_list(tokens: Tokens) -> Value:
        values = tokens.listed(read)
        text = braced([value.text for value in values], comma)
        return Value(text, tuple([value.data for value in values]))

    return read_list


def read_shape(tokens: Tokens) -> Value:
    """A shape."""
    shape = tokens.read_shape()
    return Value(shape.text, shape)


def one_of(*choices: str, any_case: bool = False) -> Callable[[Tokens], Value]:
    """A reader of one of some words, maybe in letters of any case (`StringToEnum`)."""
    by_key = {choice.lower() if any_case else choice: choice for choice in choices}

    def read_word(tokens: Tokens) -> Value:
        word = by_key.get(tokens.value.lower() if any_case else tokens.value)
        if word is None or tokens.kind not in ("word", "type", tokens.value):
            shown = ", ".join([f"`{choice}`" for choice in choices][:8])
            tokens.fail(f"expected one of {shown}{', …' if len(choices) > 8 else ''}")
        tokens.advance()
        return Value(word, word)

    return read_word


read_integers = list_of(read_integer)
"""`{0,1}`."""
read_integer_lists = list_of(read_integers)
"""`{{0,1},{2,3}}`."""
read_shapes = list_of(read_shape, ", ")
"""`{f32[4]{0}, s32[]}`."""
read_flags = list_of(read_boolean)
"""`{true,false}`."""
_read_precisions = list_of(one_of("default", "high", "highest", any_case=True))


def read_one_integer(tokens: Tokens) -> Value:
    """`{0}`."""
    start, value = tokens.start, read_integers(tokens)
    if len(value.data) != 1:
        tokens.fail("expected one number, such as `{0}`", start=start)
    return value


def read_hidden_integer(tokens: Tokens) -> Value:
    """`{0}`, which is not printed."""
    return Value("", read_one_integer(tokens).data)


def read_pairs(tokens: Tokens) -> Value:
    """`{{0,1},{1,0}}`, each of two numbers."""
    start, value = tokens.start, read_integer_lists(tokens)
    if any(len(pair) != 2 for pair in value.data):
        tokens.fail("expected pairs, such as `{{0,1},{1,0}}`", start=start)
    return value


def read_precisions(tokens: Tokens) -> Value:
    """`{highest,default}`; not printed if all are the default."""
    value = _read_precisions(tokens)
    return value if set(value.data) - {"default"} else Value("")


def read_flag_or_flags(tokens: Tokens) -> Value:
    """`{true,false}`, or one of them alone."""
    return read_flags(tokens) if tokens.kind == "{" else Value(braced([read_boolean(tokens).text]))


def read_operand_aliases(tokens: Tokens) -> Value:
    """`{{0}: (1, {})}` (`ParseInstructionOutputOperandAliasing`)."""
    items = tokens.listed(lambda at: at.form("x:(i,x)"), may_trail=True)
    return Value(braced(["{}: ({}, {})".format(*item) for item in items], ", "))


def read_slices(tokens: Tokens) -> Value:
    """`{[0:4:2], [1:4]}`; strides are printed where one is not 1."""
    ranges = tokens.listed(_read_range)
    count = 3 if any(numbers[2] != "1" for numbers in ranges) else 2
    return Value(braced([f"[{':'.join(numbers[:count])}]" for numbers in ranges], ", "))


def _read_range(tokens: Tokens) -> list[str]:
    start, numbers = tokens.start, tokens.listed(read_integer, "[]", ":")
    if len(numbers) not in (2, 3):
        tokens.fail("expected `[start:limit]` or `[start:limit:stride]`", start=start)
    return [*[number.text for number in numbers], "1"][:3]


def read_padding(tokens: Tokens) -> Value:
    """`1_1_0x0_2_1`: low, high and interior padding of each dimension."""
    pads = _read_pads(tokens)
    count = 3 if any(pad[2] for pad in pads) else 2
    return Value("x".join(["_".join(map(str, pad[:count])) for pad in pads]), pads)


def _read_pads(tokens: Tokens, *, has_interior: bool = True) -> tuple[list[int], ...]:
    parts = [part.split("_") for part in tokens.value.split("x")]
    if tokens.kind != "pad" or not (has_interior or all(len(part) == 2 for part in parts)):
        tokens.fail("expected padding such as `0_0x1_1`")
    pads = tuple([[_small(tokens, number) for number in (*part, "0")[:3]] for part in parts])
    tokens.advance()
    return pads


def _small(tokens: Tokens, digits: str) -> int:
    """A number of 64 bits within a token."""
    if len(digits) > 19:
        tokens.fail("number does not fit into 64 bits")
    return int(digits)


def _read_sizes(tokens: Tokens) -> list[Any]:
    """`2` or `2x3` (`ParseDxD`)."""
    if tokens.kind not in ("integer", "sizes"):
        tokens.fail("expected numbers such as `2x3`")
    numbers = [_small(tokens, digits) for digits in tokens.value.split("x")]
    tokens.advance()
    return numbers


_WINDOW = {
    "size": _read_sizes,
    "stride": _read_sizes,
    "pad": lambda tokens: list(_read_pads(tokens, has_interior=False)),
    "lhs_dilate": _read_sizes,
    "rhs_dilate": _read_sizes,
    "rhs_reversal": _read_sizes,
}
_USUAL: dict[str, Any] = {
    "stride": 1,
    "pad": (0, 0),
    "lhs_dilate": 1,
    "rhs_dilate": 1,
    "rhs_reversal": 0,
}


def read_window(tokens: Tokens) -> Value:
    """`{size=2x2 stride=2x2 pad=0_1x0_1}`, in any order (`ParseWindow`)."""
    start = tokens.start
    fields = tokens.fields(_WINDOW, "a window")
    rank = len(fields.get("size", ()))
    if any(len(field) != rank for field in fields.values()):
        tokens.fail("a window has as many of each as of `size=`", start=start)
    dimensions: list[WindowDimension] = []
    for at, size in enumerate(fields.get("size", ())):
        said = {name: fields[name][at] if name in fields else _USUAL[name] for name in _USUAL}
        stride, (low, high, *_), base, dilation, reversal = said.values()
        dimension = WindowDimension(size, stride, low, high, base, dilation, reversal == 1)
        dimensions.append(dimension)
    window = tuple(dimensions)
    return Value(f"{{{format_window(window)}}}", window)


def read_labels(tokens: Tokens) -> Value:
    """`b01f_01io->b01f` (`ParseConvolutionDimensionNumbers`)."""
    if tokens.kind != "labels":
        tokens.fail("expected labels such as `b01f_01io->b01f`")
    lhs, _, rest = tokens.value.partition("_")
    rhs, _, out = rest.partition("->")
    parts = [_read_label(tokens, *part) for part in ((lhs, "bf"), (rhs, "io"), (out, "bf"))]
    if len({len(spatial) for _, _, spatial in parts}) > 1:
        tokens.fail("input, kernel and output have different numbers of spatial dimensions")
    tokens.advance()
    labels = ConvolutionLabels(*parts[0], *parts[1], *parts[2])
    return Value(format_labels(labels), labels)


def _read_label(tokens: Tokens, text: str, letters: str) -> tuple[int, int, tuple[int, ...]]:
    """The positions of the letters, and of the numbers from 0; a letter may be missing."""
    known = text.replace("?", "")
    numbers = sorted(mark for mark in known if mark not in letters)
    expected = [str(number) for number in range(len(numbers))]
    if len(set(known)) != len(known) or numbers != expected:
        tokens.fail(f"`{text}` does not name each of `{letters}` and 0, 1, … once")
    one, two = (max(text.find(letter), 0) for letter in letters)
    return one, two, tuple([text.index(number) for number in expected])


_TOLERANCES = ("atol", "rtol", "ulps")


def _read_tolerance(tokens: Tokens) -> Value:
    found = tokens.fields(dict.fromkeys(_TOLERANCES, read_double), "a tolerance")
    return Value(braced([f"{name}={found.get(name, 0):g}" for name in _TOLERANCES]))


_ACCURACY = {"mode": one_of("default", "highest", any_case=True), "tolerance": _read_tolerance}


def read_accuracy(tokens: Tokens) -> Value:
    """`{mode=highest}` or `{tolerance={atol=1,rtol=0.5,ulps=2}}` (`ParseResultAccuracy`)."""
    start, found = tokens.start, tokens.fields(_ACCURACY, "an accuracy")
    if len(found) != 1:
        tokens.fail("expected `mode=` or `tolerance=`", start=start)
    [(name, value)] = found.items()
    return Value("" if value.text == "default" else f"{{{name}={value.text}}}")


_SPARSITY = dict.fromkeys(("sparsity", "dimension", "stride", "idx"), _read_sizes)


def _read_tensor_sparsity(tokens: Tokens) -> Value:
    start, found = tokens.start, tokens.fields(_SPARSITY, "sparsity")
    numbers = {name: found.get(name, [0, 0] if name == "sparsity" else [0]) for name in _SPARSITY}
    if [len(sizes) for sizes in numbers.values()] != [2, 1, 1, 1]:
        tokens.fail("expected `sparsity=1x4 dimension=0 stride=1 idx=2`", start=start)
    texts = [f"{name}={'x'.join(map(str, sizes))}" for name, sizes in numbers.items()]
    return Value(braced(texts, " "), numbers["sparsity"][1])


def read_sparsity(tokens: Tokens) -> Value:
    """`{rhs={sparsity=1x4 dimension=0 stride=1 idx=2}}` (`ParseSparsityConfig`)."""
    sides = tokens.fields(dict.fromkeys(("lhs", "rhs"), _read_tensor_sparsity), "sparsity")
    texts = [f"{side}={sides[side].text}" for side in sorted(sides)]
    return Value(braced(texts, " "), sides["rhs"].data if "rhs" in sides else 1)
