"""Files of an exported run: those of version 0.1.0 are read as they were, and all have the schema."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from dtfm_lab import files
from dtfm_lab.extensions.hosts.hosts import load_hosts, load_run_folder
from dtfm_lab.lab.schemas import schema

SAVED = Path(__file__).parents[2] / "data" / "saved"
RUN = Path(__file__).with_name("saved") / "run"


def mistakes(name: str, data: Any) -> list[str]:
    Draft202012Validator.check_schema(schema(name))
    return [error.message for error in Draft202012Validator(schema(name)).iter_errors(data)]


def test_an_exported_run(tmp_path: Path) -> None:
    folder = shutil.copytree(RUN, tmp_path / "run")
    (folder / "spec.json").chmod(0o600)  # as export writes it; git keeps no such modes
    run = load_run_folder(folder)
    assert run.spec.plan.cost.total_s == files.load_plan(SAVED / "plan.json").cost.total_s
    assert (run.spec.iterations, run.spec.clock, run.spec.seed) == (3, "real", 4)
    assert run.spec.orders == files.load_schedule(SAVED / "schedule.txt").orders
    assert run.hosts == {"ada": (0, 1, 4, 5), "edsger": (2, 3, 6, 7)}
    assert [host.name for host in load_hosts(folder / "hosts.yaml", run.spec)] == ["ada", "edsger"]


def test_its_files_have_the_schema() -> None:
    assert mistakes("hosts", yaml.safe_load((RUN / "hosts.yaml").read_text())) == []
    assert mistakes("run", json.loads((RUN / "run.json").read_text())) == []
    assert mistakes("hosts", {"dtfm_hosts": 1, "hosts": []}) != []


@pytest.mark.parametrize("name", ["hosts", "run"])
def test_the_command_prints_them(tells, name) -> None:
    assert name in [row["format"] for row in tells("show", "--schema")["formats"]]
