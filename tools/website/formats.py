"""A page for each file format: its keys, an example, and its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dtfm_lab.lab.schemas import formats, schema
from tools.website.notebooks import fenced

ROOT = Path(__file__).parents[2]
EXAMPLES = {"topology": ROOT / "topologies" / "campus.yaml"}
INTRODUCTION = """# File formats

Files are versioned, and later versions read what earlier ones wrote. Their schemas are made from what reads them;
`dtfm-lab show --schema topology` prints one. An editor with a YAML language server completes and checks a file that
begins with `# yaml-language-server: $schema=topology.schema.json`, once
`dtfm-lab show --schema topology -o topology.schema.json` has written that file beside it.
Networks may also be CSV and npz ([Describe a network](../docs/describe-a-network.md)).
"""


def pages() -> dict[str, str]:
    """Path -> Markdown of the page of each format, and of their list."""
    rows = [
        f"| [{name}]({name}.md) | {each.title} | {', '.join(each.endings)} | {each.written_by} |"
        for name, each in formats().items()
    ]
    table = "\n".join(["| format | what it holds | endings | written by |", "| --- | --- | --- | --- |", *rows])
    names = "\n".join(formats())
    index = f"{INTRODUCTION}\n{table}\n\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    return {"formats/index.md": index} | {f"formats/{name}.md": page(name) for name in formats()}


def summary() -> str:
    """Return a table of all formats for the page of commands and files: what each holds, and its keys."""
    rows = ["| format | what it holds | endings | written by | keys |", "| --- | --- | --- | --- | --- |"]
    for name, each in formats().items():
        made = schema(name)
        required = made.get("required", ())
        keys = [f"**`{key}`**" if key in required else f"`{key}`" for key in made.get("properties", ())]
        rows.append(f"| `{name}` | {each.title} | {', '.join(each.endings)} | {each.written_by} | {', '.join(keys)} |")
    return "\n".join(rows)


def page(name: str) -> str:
    """The page of a format: a table of keys for each of its mappings."""
    made = schema(name)
    parts = [f"# Format: {name}", f"{formats()[name].title} Written by {formats()[name].written_by}."]
    if name in EXAMPLES:
        parts.append(fenced(EXAMPLES[name].read_text(encoding="utf-8"), "yaml"))
    for example in made.get("examples", ()):
        parts.append(fenced(example, "text"))
    if "properties" in made:
        parts += ["## Keys", _keys(made)]
    for title, section in sorted(made.get("$defs", {}).items()):
        said = section.get("description", "")
        parts += [f"## {title}", said, _keys(section) if "properties" in section else _type(section)]
    parts += ["## The schema", "<details><summary>JSON Schema, draft 2020-12</summary>"]
    parts += [fenced(json.dumps(made, indent=1), "json"), "</details>"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _keys(section: dict[str, Any]) -> str:
    required = section.get("required", ())
    rows = ["| key | type | what it is |", "| --- | --- | --- |"]
    for key, value in section["properties"].items():
        said = value.get("description", "")
        if value.get("default") not in (None, "", [], {}):
            said += f" Default: `{json.dumps(value['default'])}`."
        star = " (required)" if key in required else ""
        cells = (f"`{key}`{star}", _type(value), said.strip())
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        title = value["$ref"].rpartition("/")[2]
        return f"[{title}](#{title.lower()})"
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return ", ".join(f"`{json.dumps(each)}`" for each in value["enum"])
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(_type(each) for each in value["anyOf"]))
    kinds = value.get("type", "anything")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    said = " or ".join(kinds)
    if "items" in value and "array" in kinds:
        said = f"list of {_type(value['items'])}"
    bounds = [f"{word} {value[key]:g}" for key, word in BOUNDS.items() if key in value]
    return f"{said}, {', '.join(bounds)}" if bounds else said


BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
