"""Schemas of file formats accept every file that the lab reads, bundled or written now, and refuse plain mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import dtfm_lab as lab
from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.job import JOBS, MODELS
from dtfm_lab.files.models import model_to_section
from dtfm_lab.files.workspaces import WorkspaceState, save_workspace
from dtfm_lab.lab.schemas import FORMATS, formats, schema

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "tests" / "data" / "saved"
OF_AN_EARLIER_VERSION = {
    "topology.yaml": "topology",
    "two-towns.yaml": "topology",
    "two-towns.json": "topology",
    "job.yaml": "job",
    "plan.json": "plan",
    "simulated.json": "trace",
    "uneven-plan.json": "plan",
    "part.json": "trace",
    "measured.json": "trace",
    "workspace.json": "workspace",
    "checkpoint/iteration-000002/checkpoint.json": "checkpoint",
    "schedule.txt": "schedule",
}


def content(path: Path) -> Any:
    text = path.read_text()
    return text if path.suffix == ".txt" else json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)


def mistakes(name: str, data: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(schema(name)).iter_errors(data)]


@pytest.mark.parametrize("name", FORMATS)
def test_every_schema_is_one(name: str) -> None:
    made = schema(name)
    Draft202012Validator.check_schema(made)
    json.dumps(made, allow_nan=False)


@pytest.mark.parametrize("path", sorted((ROOT / "topologies").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_network_that_comes_with_the_lab_has_the_schema(path: Path) -> None:
    assert mistakes("topology", content(path)) == []


@pytest.mark.parametrize("name", OF_AN_EARLIER_VERSION)
def test_every_file_that_an_earlier_version_saved_has_the_schema(name: str) -> None:
    assert mistakes(OF_AN_EARLIER_VERSION[name], content(SAVED / name)) == []


def test_no_saved_kind_of_file_is_without_a_schema() -> None:
    kinds = {key for path in SAVED.rglob("*.json") for key in content(path) if key.startswith("dtfm_")}
    kinds |= {key for path in SAVED.rglob("*.yaml") for key in content(path) if key.startswith("dtfm_")}
    assert {kind.removeprefix("dtfm_") for kind in kinds} - set(formats()) == set()


@pytest.mark.parametrize("name", JOBS)
def test_every_job_that_is_saved_has_the_schema(name: str, tmp_path: Path) -> None:
    assert mistakes("job", content(lab.save(lab.load_job(name), tmp_path / "job.yaml"))) == []


@pytest.mark.parametrize("name", MODELS)
def test_every_model_layer_by_layer_has_the_schema(name: str) -> None:
    section = model_to_section(replace(MODELS[name], name="own"))
    assert isinstance(section, dict)
    assert mistakes("model", section) == []


def test_what_is_written_now_has_the_schema(tmp_path: Path) -> None:
    plan = lab.plan("lecture-hall", "tiny", steps=2)
    trace = lab.simulate(plan, "1f1b")
    schedule = lab.schedules["zb-h1"](4, 8)
    state = WorkspaceState(topology=plan.topology, job=plan.job, plan=plan, predicted=trace)
    written = {
        "plan": lab.save(plan, tmp_path / "plan.json"),
        "trace": lab.save(trace, tmp_path / "trace.json"),
        "topology": lab.save(plan.topology, tmp_path / "network.yaml"),
        "schedule": lab.save(schedule, tmp_path / "own.txt"),
        "workspace": save_workspace(state, tmp_path / "workspace.json"),
    }
    assert {name: mistakes(name, content(path)) for name, path in written.items()} == {name: [] for name in written}
    no_plan = save_workspace(WorkspaceState(topology=plan.topology), tmp_path / "workspace.json")
    assert mistakes("workspace", content(no_plan)) == []


def test_numbers_may_be_in_either_unit_and_not_in_both() -> None:
    file = {"dtfm_topology": 1, "default": {"latency_s": 0.001, "bandwidth_gbps": 1}, "devices": [{"name": "a"}]}
    assert mistakes("topology", file) == []
    file["default"] = {"latency_s": 0.001, "latency_ms": 1, "bandwidth_gbps": 1}
    assert mistakes("topology", file) != []


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("topology", {"dtfm_topology": 2}),
        ("topology", {"devices": []}),
        ("topology", {"dtfm_topology": 1, "devces": []}),
        ("topology", {"dtfm_topology": 1, "regions": [{"name": "Oslo", "count": 0}]}),
        ("topology", {"dtfm_topology": 1, "default": {"latency_ms": -1, "bandwidth_gbps": 1}}),
        ("topology", {"dtfm_topology": 1, "default": {"latency_ms": 1}}),
        ("job", {"dtfm_job": 1, "base": "tiny", "dtype": "fp8"}),
        ("job", {"dtfm_job": 1, "base": "tiny", "global_batch": "many"}),
        ("job", {"dtfm_job": 1, "model": {"n_layers": 3}}),
        ("schedule", "dtfm_schedule 1 mine\n0F0 0X1\n"),
    ],
)
def test_plain_mistakes_are_refused(name: str, wrong: Any) -> None:
    assert mistakes(name, wrong) != []


def test_fields_that_people_write_are_described() -> None:
    """An editor shows it where the key is completed."""
    keys = schema("job")["properties"]
    assert [key for key in keys if not keys[key].get("description")] == []
    topology = schema("topology")
    sections = [topology, *topology["$defs"].values()]
    assert [key for each in sections for key, value in each["properties"].items() if "description" not in value] == []


def test_a_format_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'topology'"):
        schema("topolgy")


def test_the_command_prints_writes_and_lists(shell, prints, tells) -> None:
    assert json.loads(prints("show", "--schema", "job")) == schema("job")
    status, printed, said = shell("show", "--schema", "topology", "-o", "topology.schema.json")
    assert (status, printed, said) == (0, "", "wrote topology.schema.json\n")
    assert content(Path("topology.schema.json")) == schema("topology")
    assert [row["format"] for row in tells("show", "--schema")["formats"]] == list(formats())
    assert shell("show", "--schema", "topolgy")[0] == 2
