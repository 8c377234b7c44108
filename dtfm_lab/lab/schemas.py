"""The file formats as JSON Schema, so that editors complete and check what people write. Derived from the readers.

A schema refuses unknown keys, wrong types and numbers out of bounds. What depends on several values (names that must
exist, a batch that divides) is checked when the file is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from dtfm_lab.domain.extension import extensions, load
from dtfm_lab.domain.job import Job, JobChanges
from dtfm_lab.domain.options import Option, field_docstrings, options_of
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files.jobs import JobFile
from dtfm_lab.files.models import FAMILIES, WholeSection, section_of
from dtfm_lab.files.plans import NetworkSection, PlanFile
from dtfm_lab.files.reading import Section
from dtfm_lab.files.schedules import HEADER
from dtfm_lab.files.topology_yaml import UNITS, TopologyFile
from dtfm_lab.files.traces import TraceFile
from dtfm_lab.files.workspaces import PackedTrace, WorkspaceState
from dtfm_lab.runtime.protocol.checkpoint_folders import CheckpointFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Format(NamedTuple):
    """A kind of file that the lab reads."""

    title: str
    """One sentence on what it holds."""
    endings: tuple[str, ...]
    written_by: str
    """Who writes it: a person, or the function or command that does."""
    build: Callable[[], JsonSchemaValue]
    """Builds the schema, without its title."""


def schema(name: str) -> JsonSchemaValue:
    """Return the JSON Schema (draft 2020-12) of a file format, one of ``formats``. Raises UnknownName."""
    known = formats()
    if name not in known:
        raise unknown("file format", name, known)
    chosen = known[name]
    made = chosen.build()
    version = f"dtfm_{name}"
    if version in made.get("properties", {}):
        # A file of a later version must be refused, not half understood.
        made["properties"][version] = {"const": 1, "description": "Version of the format."}
        made["required"] = sorted({version, *made.get("required", ())})
    made.pop("title", None)
    # Keys keep their order in JSON, and editors expect these first.
    return {"$schema": DIALECT, "title": f"dtfm_lab {name}", "description": chosen.title} | {
        key: value for key, value in made.items() if key != "description"
    }


class _Generator(GenerateJsonSchema):
    """Pydantic's schemas, with the docstrings of fields as descriptions and without titles that repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _described(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _described(super().dataclass_schema(schema), schema["cls"])


def _described(made: JsonSchemaValue, kind: type) -> JsonSchemaValue:
    texts = dict(field_docstrings(kind))
    if is_dataclass(kind):
        texts |= {option.field: option.help for option in options_of(kind)}
    if issubclass(kind, BaseModel):
        alias = {name: field.alias for name, field in kind.model_fields.items() if field.alias}
        texts |= {alias[name]: text for name, text in texts.items() if name in alias}
    for name, value in made.get("properties", {}).items():
        default = value.get("default")
        if default is None or (isinstance(default, float) and not math.isfinite(default)):
            value.pop("default", None)  # JSON has no infinity, and null says nothing
        if name in texts:
            value["description"] = " ".join(texts[name].split())
    made.pop("title", None)
    if made.get("description", "").startswith(f"{kind.__name__}("):  # what dataclasses say where there is no docstring
        del made["description"]
    return made


def schema_of(kind: Any) -> JsonSchemaValue:
    """Return the schema of a pydantic model or a dataclass, described by its docstrings."""
    return TypeAdapter(kind).json_schema(schema_generator=_Generator)


def written_by_people(made: JsonSchemaValue) -> JsonSchemaValue:
    """Allow numbers where the schema expects text, because the readers of hand-written files accept them too."""
    for section in (made, *made.get("$defs", {}).values()):
        for value in section.get("properties", {}).values():
            for each in (value, *value.get("anyOf", ())):
                if each.get("type") == "string" and "enum" not in each:
                    each["type"] = ["string", "number"]
    return made


def _topology() -> JsonSchemaValue:
    made = written_by_people(schema_of(TopologyFile))
    for section in made["$defs"].values():
        _take_either_unit(section)
    return made


def _take_either_unit(section: JsonSchemaValue) -> None:
    """Allow each number in SI too, under another name: ``latency_s`` instead of ``latency_ms``."""
    keys, required = section["properties"], section.get("required", [])
    either: list[JsonSchemaValue] = []
    for in_si, written in UNITS.items():
        if written not in keys:
            continue
        keys[in_si] = {key: value for key, value in keys[written].items() if key != "description"}
        keys[in_si]["description"] = f"{written} in SI; only one of the two may be given."
        if written in required:
            required.remove(written)
            # JSON Schema has no "one of these two keys", so the section says it.
            either.append({"oneOf": [{"required": [written]}, {"required": [in_si]}]})
        else:
            either.append({"not": {"required": [written, in_si]}})
    if either:
        section["allOf"] = either


def _job() -> JsonSchemaValue:
    made = written_by_people(schema_of(JobFile))
    keys = made["properties"]
    for option in options_of(JobChanges):
        # The model has no option's simple form; its kinds are listed below.
        if option.name in keys and option.name != "model":
            keys[option.name] = _of_option(option, keys[option.name])
    made["$defs"] = made.get("$defs", {})
    kinds = [{"type": "string", "description": "A preset's name, or a path to a config.json."}, {"type": "null"}]
    for title, section in _models().items():
        made["$defs"] |= section.pop("$defs", {})
        made["$defs"][title] = section
        kinds.append({"$ref": f"#/$defs/{title}"})
    keys["model"] = {"anyOf": kinds, "description": keys["model"]["description"]}
    return made


def _model() -> JsonSchemaValue:
    sections = _models()
    shared: JsonSchemaValue = {}
    for section in sections.values():
        shared |= section.pop("$defs", {})
    return {"anyOf": [{"$ref": f"#/$defs/{title}"} for title in sections], "$defs": shared | sections}


def _models() -> dict[str, JsonSchemaValue]:
    """Return the schemas of the ways to write a model in a job file: one per family, and layer by layer."""
    sections = {}
    for family in FAMILIES:
        made = written_by_people(schema_of(section_of(FAMILIES[family])))
        made["properties"]["family"] = {"const": family, "description": "Family of models; gpt where not given."}
        # A file that names no family is gpt's, so only the others must say which they are.
        if family != "gpt":
            made["required"] = [*made.get("required", ()), "family"]
        sections[family] = made
    return sections | {"layer-by-layer": written_by_people(schema_of(WholeSection))}


def _of_option(option: Option, made: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema of a job file's field: its help, choices, bounds and default."""
    described: JsonSchemaValue = {"description": option.help}
    if option.default is not None:
        described["default"] = option.default
    if option.choices is not None:
        return {"enum": [*option.choices, None]} | described
    if option.type not in (int, float):
        return {key: value for key, value in made.items() if key != "default"} | described
    bounds = {"minimum": option.least, "exclusiveMinimum": option.above, "maximum": option.most}
    # A whole number without declared bounds counts something, so it cannot be negative.
    if option.type is int and option.least is None:
        bounds["minimum"] = 0
    said = {key: value for key, value in bounds.items() if value is not None}
    return {"type": ["integer" if option.type is int else "number", "null"]} | said | described


def _schedule() -> JsonSchemaValue:
    """Return the schema of a text file: a first line with the name, then one line per device."""
    passed = r"\d+[FBIW]\d+"
    return {
        "type": "string",
        "pattern": rf"^{HEADER} 1 [^\r\n]+(\r?\n[ \t]*({passed}([ \t]+{passed})*)?[ \t]*)*\s*$",
        "examples": [f"{HEADER} 1 mine\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"],
    }


class SamePlan(Section):
    """What a workspace holds instead of a network that equals the plan's: ``{"same": "plan"}``."""

    same: str


def _workspace() -> JsonSchemaValue:
    """Return the schema of a workspace file. Jobs and plans in it are written as in their own files, traces with packed
    columns. A network that equals the plan's is written as ``{"same": "plan"}``."""
    own: dict[str, Any] = {
        "topology": NetworkSection | SamePlan | None,
        "job": Job | None,
        "plan": PlanFile | None,
        "predicted": PackedTrace | None,
        "measured": PackedTrace | None,
    }
    keys: dict[str, Any] = {
        name: (own.get(name, field.annotation), None if name in own else field)
        for name, field in WorkspaceState.model_fields.items()
    }
    keys |= {"dtfm_workspace": (int, ...), "left_out": (list[str], [])}
    return schema_of(create_model("Workspace", __base__=Section, **keys))


WRITTEN = (".yaml", ".yml", ".json")
"""Endings of files that people write."""
JSON = (".json",)
SAVED = "people, and `lab.save`"
FORMATS: dict[str, Format] = {
    "topology": Format(
        "A network: devices, and the latency and bandwidth between each two.", WRITTEN, SAVED, _topology
    ),
    "job": Format("A job: what is trained, in which batches, and how it is cut.", WRITTEN, SAVED, _job),
    "model": Format("The model of a job, as the mapping under its key `model`.", ("part of a job",), SAVED, _model),
    "plan": Format(
        "A plan, with its network and its job.", JSON, "`lab.save`, `dtfm-lab plan -o`", lambda: schema_of(PlanFile)
    ),
    "schedule": Format(
        "A schedule as text: who computes what, in order.",
        (".txt",),
        "people, `lab.save`, `dtfm-lab show --schedule -o`",
        _schedule,
    ),
    "trace": Format(
        "A trace: when each action of each device began and ended.",
        JSON,
        "`lab.save`, `dtfm-lab simulate -o`, `dtfm-lab run -o`",
        lambda: schema_of(TraceFile),
    ),
    "workspace": Format(
        "Everything that the lab holds: network, job, plan, traces and settings.", JSON, "the lab", _workspace
    ),
    "checkpoint": Format(
        "What a checkpoint's folder holds, beside its tensors: `checkpoint.json`.",
        JSON,
        "a run with `checkpoint=`",
        lambda: schema_of(CheckpointFile),
    ),
}
"""The lab's own formats that have a schema. CSV and npz files of networks are tables, documented where they are
read."""


@cache
def formats() -> Mapping[str, Format]:
    """Return every file format that has a schema, by name: the lab's own, then those of extensions."""
    found = dict(FORMATS)
    for extension in extensions().values():
        for name, place in extension.formats.items():
            found.setdefault(name, load(place))
    return found
