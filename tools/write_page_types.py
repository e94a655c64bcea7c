"""Writes what the report's scripts know of their data: TypeScript's types of the page's records.

    python -m tools.write_page_types [--check]

In: the schema msgspec makes of `Page`, `Waterfall`, `PageFront` and `FleetPage`. Out:
`templates/data.d.ts`, which the scripts' comments refer to. With `--check` nothing is written; the
exit says whether it is current.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path
from typing import Any

import msgspec

from hlomem.report.page.fleet import FleetPage
from hlomem.report.page.front import PageFront
from hlomem.report.page.html import TEMPLATES
from hlomem.report.page.page import Page
from hlomem.report.page.waterfall import Waterfall

TARGET = TEMPLATES / "data.d.ts"
_HEAD = """\
// The data of the page. Made by tools/write_page_types.py; change the records in Python instead.

/** What html.py puts into the page. */
export interface PageData {
  schema: string;
  /** One compile, or two to compare. */
  reports: Page[];
  difference: Waterfall | null;
  front: PageFront | null;
}
"""
_PRIMITIVES = {
    "boolean": "boolean",
    "integer": "number",
    "null": "null",
    "number": "number",
    "string": "string",
}


def page_types() -> str:
    """The text of the file."""
    _import_for_types()
    _, found = msgspec.json.schema_components(
        (Page, Waterfall, PageFront, FleetPage), ref_template="{name}"
    )
    return "\n".join([_HEAD, *(_interface(name, found[name]) for name in sorted(found))])


def _import_for_types() -> None:
    """Imports what our modules import for their annotations only, which the schema is made of."""
    done: set[str] = set()
    while todo := {name for name in sys.modules if name.startswith("hlomem.")} - done:
        for name in todo:
            _run_type_imports(sys.modules[name])
        done |= todo


def _run_type_imports(module: Any) -> None:
    if not module.__file__.endswith(".py"):  # a native kernel
        return
    for statement in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            imports = ast.Module(statement.body, type_ignores=[])
            exec(compile(imports, module.__file__, "exec"), vars(module))  # noqa: S102 - our own


def _interface(name: str, schema: dict[str, Any]) -> str:
    if schema.get("type") != "object":
        return f"{_comment(schema)}export type {name} = {_type(schema)};\n"
    # The schema calls a field optional that has a default, but records are written whole.
    fields = [f"  {field}: {_type(its)};\n" for field, its in schema["properties"].items()]
    return f"{_comment(schema)}export interface {name} {{\n{''.join(fields)}}}\n"


def _comment(schema: dict[str, Any]) -> str:
    words = schema.get("description", "").partition("\n")[0]
    return f"/** {words} */\n" if words else ""


def _type(schema: dict[str, Any]) -> str:
    """A schema as TypeScript writes it."""
    if "$ref" in schema:
        return str(schema["$ref"])
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(msgspec.json.encode(value).decode() for value in schema["enum"])
    kind = schema["type"]
    if kind == "array" and schema.get("prefixItems"):
        return f"[{', '.join(map(_type, schema['prefixItems']))}]"
    if kind == "array":
        item = _type(schema["items"])
        return f"({item})[]" if "|" in item else f"{item}[]"
    if kind == "object":
        return f"Record<string, {_type(schema['additionalProperties'])}>"
    return _PRIMITIVES[kind]


def main() -> int:
    """Writes the file, or says whether it is current."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true")
    text = page_types()
    if not arguments.parse_args().check:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        print(f"{TARGET.name} is not what the records say; `python -m {__spec__.name}` writes it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
