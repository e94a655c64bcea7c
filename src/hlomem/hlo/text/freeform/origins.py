"""Metadata, origins, statistics and debug tables of instructions and modules.

In: tokens, at a value. Out: a `Value`. Mirrors `ParseMetadata`, `ParseFrontendAttributes`,
`ParseStatisticsViz`, `ParseOriginalValue`, `ParseOriginalValueRecoveryTable` and
`ParseDebugAttributesTable` of `hlo/parser/hlo_parser.cc`, `OpMetadataToString` of
`hlo/ir/hlo_op_metadata.cc` and `ToString` of `hlo_original_value.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.text.freeform.values import (
    Value,
    braced,
    one_of,
    read_boolean,
    read_config,
    read_double,
    read_integer,
    read_integers,
    read_short_integer,
    read_string,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.text.freeform.tokens import Tokens

_METADATA: dict[str, Callable[[Tokens], Value]] = {
    "op_type": read_string,
    "op_name": read_string,
    "source_file": read_string,
    "source_line": read_short_integer,
    "source_end_line": read_short_integer,
    "source_column": read_short_integer,
    "source_end_column": read_short_integer,
    "profile_type": read_integers,
    "deduplicated_name": read_string,
    "scheduling_name": read_string,
    "stack_frame_id": read_short_integer,
    "metadata_payload": read_string,
}
"""In the order they are printed."""
_SHOWING = ("op_type", "op_name", "source_file", "scheduling_name", "stack_frame_id")
"""Without one of these, metadata is not printed (`HloInstruction::Print`)."""


def _read_metadata_text(tokens: Tokens) -> tuple[str, bool]:
    """The fields of `{op_name="..." source_line=3}` as printed, and whether they are."""
    found = tokens.fields(_METADATA, "metadata")
    said = {name: value.text for name, value in found.items() if value.data not in ("", 0, ())}
    text = " ".join([f"{name}={said[name]}" for name in _METADATA if name in said])
    return text, "metadata_payload" in found or any(name in said for name in _SHOWING)


def read_metadata(tokens: Tokens) -> Value:
    """`{op_name="..." source_line=3}`; empty where nothing is printed."""
    text, is_shown = _read_metadata_text(tokens)
    return Value(f"{{{text}}}" if is_shown else "")


def read_metadata_list(tokens: Tokens) -> list[str]:
    """One or several in braces, of a sharding (`ParseSingleOrListMetadata`); without braces."""
    if tokens.kind == "{" and tokens.peek() == "{":
        return [text for text, _ in tokens.listed(_read_metadata_text)]
    return [_read_metadata_text(tokens)[0]]


def read_frontend_attributes(tokens: Tokens) -> Value:
    """`{name="value",other={json}}`, by name."""
    texts = dict(tokens.listed(lambda at: (at.expect("attribute"), read_config(at).text)))
    return Value(braced([f"{name}={texts[name]}" for name in sorted(texts)]))


def read_statistics(tokens: Tokens) -> Value:
    """`{visualizing_index=0,name=0.5}`."""
    items = tokens.listed(lambda at: (at.expect("attribute"), read_double(at)))
    return Value(braced([f"{name}={value:g}" for name, value in items]) if items[1:] else "")


def read_origin(tokens: Tokens) -> Value:
    """`{({"a" {0}}, {"b"})}`: for each array the value of the program it was first."""
    tokens.expect("{")
    pieces: list[str] = []
    depth = 0
    if tokens.eat("["):
        pieces.append(f"[{one_of('synthetic_call')(tokens).text}]")
        tokens.expect("]")
    while tokens.kind != "}":
        if tokens.kind == "{":
            pieces.append(_read_original_array(tokens))
            continue
        if tokens.kind not in ("(", ")", ","):
            tokens.fail('expected arrays in parentheses, such as `({"a"}, {"b"})`')
        depth += (tokens.kind == "(") - (tokens.kind == ")")
        if depth < 0 or (depth == 0 and tokens.kind == ","):
            tokens.fail(f"unbalanced `{tokens.kind}`")
        pieces.append(", " if tokens.kind == "," else tokens.kind)
        tokens.advance()
    tokens.advance()
    return Value(braced(pieces, ""))


def _read_original_array(tokens: Tokens) -> str:
    """`{"name" {0}}` (`ParseOriginalArray`)."""
    tokens.expect("{")
    name = f'"{tokens.take()}"' if tokens.kind == "string" else ""
    index = tokens.form("x")[0] if tokens.kind == "{" else "{}"
    tokens.expect("}")
    return f"{{{name}{f' {index}' if index != '{}' else ''}}}"


def read_recovery_table(tokens: Tokens) -> Value:
    """Arrays that were replaced, by what, and the module that makes them again; by name."""
    tokens.expect("{")
    rows: dict[str, str] = {}
    while tokens.kind != "}":
        replaced = _read_original_array(tokens)
        tokens.expect(":")
        row = f"  {replaced} : {_read_original_array(tokens)}"
        if tokens.eat(","):
            row += f',\n  "\n{_read_recovery_module(tokens)}\n  "'
        rows.setdefault(replaced, row)
    tokens.advance()
    return Value("{\n" + "".join(f"{rows[key]}\n" for key in sorted(rows)) + "}" if rows else "")


def _read_recovery_module(tokens: Tokens) -> str:
    """The text of a module in a string, as it is printed there."""
    from hlomem.hlo.text.parser import canonicalize  # noqa: PLC0415 - it reads headers

    text = (
        canonicalize(tokens.expect("string"), tokens.source.name)
        .replace("\\", "\\\\")
        .replace('"', '\\"')
    )
    return "\n".join([f"    {line}" if line else "" for line in text.split("\n")])


_DEBUG = {
    "log_mode": one_of("default", "fusion_debugger"),
    "callback_id": read_integer,
    "partitioned": read_boolean,
    "op_id": read_integer,
}


def read_debug_table(tokens: Tokens) -> Value:
    """`{"name"}:({log_mode=default,callback_id=1})`, by name."""
    rows = dict(tokens.listed(_read_debug_row))
    texts = [f"  {array}:({','.join(rows[array])})" for array in sorted(rows) if rows[array]]
    return Value("{\n" + ",\n".join(texts) + "\n}" if texts else "")


def _read_debug_row(tokens: Tokens) -> tuple[str, list[str]]:
    array = _read_original_array(tokens)
    tokens.expect(":")
    if tokens.kind == "(":
        return array, tokens.listed(_read_debug_item, "()")
    return array, [_read_debug_item(tokens)]


def _read_debug_item(tokens: Tokens) -> str:
    fields = tokens.fields(_DEBUG, "a debug attribute")
    return braced([f"{name}={fields[name].text}" for name in _DEBUG if _is_said(fields.get(name))])


def _is_said(value: Value | None) -> bool:
    return value is not None and bool(value.data)
