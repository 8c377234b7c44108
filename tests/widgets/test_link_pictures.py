"""What a link holds for people without the lab: the page's script reads from it what the lab's own views show."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.files.workspaces import MARK, WorkspaceState, link_of, state_from_link, workspace_to_mapping
from dtfm_lab.widgets.shell.still_page import views_of
from dtfm_lab.widgets.shell.still_page.linked import default_views, opening_page, picture_of
from dtfm_lab.widgets.views.view import STATIC

NODE = shutil.which("node") or shutil.which("node", path=".venv/bin")
READ = """
import { readFileSync } from "node:fs";
const { links, script, models } = JSON.parse(readFileSync(0, "utf8"));
const { readLink } = await import(`data:text/javascript;base64,${script}`);
const text = (view) => Buffer.from(view.buffer, view.byteOffset, view.byteLength).toString("base64");
const bytes = (_, value) => (value instanceof DataView ? { bytes: text(value) } : value);
const refused = (error) => ({ refused: error.name, line: error.message });
const read = await Promise.all(links.map((link) => readLink(link, models).catch(refused)));
process.stdout.write(JSON.stringify(read, bytes));
"""


def read_by_page(*links: str) -> list[dict[str, Any]]:
    """What the page's own script makes of each link."""
    if NODE is None:
        pytest.skip("no Node on this machine")
    gantt = default_views()["gantt"]
    models = {"gantt": {"kinds": gantt.kinds, "rows": [], "devices": []}, "map": {"cities": [["London", -0.1, 51.5]]}}
    script = base64.b64encode((STATIC / "link_reader.js").read_bytes()).decode()
    given = json.dumps({"links": links, "script": script, "models": models})
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", READ], input=given, capture_output=True, text=True, check=True, timeout=600
    )
    return json.loads(done.stdout)


def array(trait: dict[str, str], dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(trait["bytes"]), dtype)


def state_of(plan: lab.Plan) -> WorkspaceState:
    return WorkspaceState(topology=plan.topology, job=plan.job, plan=plan, pane="schedule")


@pytest.fixture(scope="module")
def plan() -> lab.Plan:
    return lab.plan(lab.load_topology("lecture-hall"), lab.load_job("tiny"), steps=3)


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved-1f1b"])
def test_the_page_shows_of_a_link_what_the_labs_views_show(plan: lab.Plan, schedule: str) -> None:
    if schedule.startswith("interleaved"):
        plan = plan.changed(job=plan.job.with_fields(blocks_per_stage=None, stages_per_device=2))
    predicted = lab.simulate(plan, schedule)
    [read] = read_by_page(link_of(state_of(plan), picture_of(plan, predicted)))
    assert "refused" not in read, read
    wanted, found = views_of(plan, predicted), read["views"]
    for name, traits in found.items():
        for trait in traits.keys() & {
            "document",
            "highlight",
            "numbers",
            "headline",
            "rows",
            "units",
            "caption",
            "kinds",
        }:
            assert traits[trait] == json.loads(json.dumps(getattr(wanted[name], trait))), (name, trait)
    iteration_s, gantt = predicted.iteration_s, wanted["gantt"]
    for trait, dtype in {"row": "<u2", "kind": "<u1", "microbatch": "<i4", "stage": "<u2"}.items():
        np.testing.assert_array_equal(array(found["gantt"][trait], dtype), np.frombuffer(getattr(gantt, trait), dtype))
    for trait in ("start", "end"):
        seconds = np.frombuffer(getattr(gantt, trait), "<f4")
        np.testing.assert_allclose(array(found["gantt"][trait], "<f4"), seconds, atol=1e-6 * iteration_s)
    theirs = {name: base64.b64decode(column["bytes"]) for name, column in found["gantt"]["messages"].items()}
    here, there = messages(theirs, iteration_s), messages(gantt.messages, iteration_s)
    assert sorted(here) == sorted(there)
    waited, wanted_waits = array(found["gantt"]["after"], "<i4"), np.frombuffer(gantt.after, "<i4")
    assert [one if one > -2 else here[-2 - one] for one in waited] == [
        one if one > -2 else there[-2 - one] for one in wanted_waits
    ]
    for column, packed in gantt.path.items():
        dtype = {"row": "<u2", "bar": "<i4"}.get(column, "<f4")
        path = array(found["gantt"]["path"][column], dtype)
        np.testing.assert_allclose(path, np.frombuffer(packed, dtype), atol=1e-6 * iteration_s, err_msg=column)
    rows = np.frombuffer(wanted["map"].playback, "<f4").reshape(-1, 5)
    played = array(found["map"]["playback"], "<f4").reshape(-1, 5)
    assert as_set(played, iteration_s) == as_set(rows, iteration_s)
    assert found["player"]["length_s"] == pytest.approx(wanted["player"].length_s, rel=1e-6)


def messages(columns: dict[str, bytes], iteration_s: float) -> list[tuple[float, ...]]:
    """Each message; those that leave together have no order."""
    dtypes = {"source": "<u2", "target": "<u2", "kind": "<u1", "microbatch": "<i4", "leaves": "<f4", "arrives": "<f4"}
    read = {name: np.frombuffer(columns[name], dtype).astype(float) for name, dtype in dtypes.items()}
    for name in ("leaves", "arrives"):
        read[name] = np.round(read[name] / iteration_s, 4)
    return list(zip(*read.values(), strict=True))


def as_set(rows: np.ndarray, iteration_s: float) -> list[tuple[float, ...]]:
    """The rows in an order of their own: actions that start together have none."""
    return sorted((*np.round(row[:2] / iteration_s, 4), *row[2:]) for row in rows.astype(float))


def test_a_link_with_a_picture_stays_short_and_opens_in_the_lab_as_before(plan: lab.Plan) -> None:
    state, picture = state_of(plan), picture_of(plan, lab.simulate(plan))
    link = link_of(state, picture)
    assert len(link) < 3 * len(link_of(state))
    assert workspace_to_mapping(state_from_link(link)) == workspace_to_mapping(state)


def test_a_picture_that_is_too_long_is_left_out_and_the_link_still_opens(plan: lab.Plan) -> None:
    huge = np.random.default_rng(0).bytes(90_000)
    assert link_of(state_of(plan), huge) == link_of(state_of(plan))


def test_the_page_shows_of_an_older_link_its_network_and_plan_and_says_what_it_lacks(plan: lab.Plan) -> None:
    links = f"https://example.org/{link_of(state_of(plan))}", link_of(WorkspaceState(topology=plan.topology))
    read, network = read_by_page(*links)
    views = read["views"]
    assert views["map"]["highlight"] == views_of(plan, None)["map"].highlight
    between = {(line["from"], line["to"]): line["bandwidth_gbps"] for line in views["map"]["document"]["between"]}
    assert between == {("front", "back"): pytest.approx(0.1), ("back", "front"): pytest.approx(0.1)}
    assert views["top_bar"]["headline"]["lead"] == "This link has no iteration to show."
    assert "gantt" not in views
    assert network["views"]["top_bar"]["headline"]["lead"] == "This link has no plan."


def test_a_damaged_link_is_one_line(plan: lab.Plan) -> None:
    link = link_of(state_of(plan), picture_of(plan, lab.simulate(plan)))
    cut, other = link[:-9], link[:90] + "!" + link[91:]
    damaged = ("", MARK, cut, other, MARK + "A" * 100_001, MARK + "eJw", f"{link}.{link[-9:]}", f"{MARK}eJw.eJw")
    assert_refused(read_by_page(*damaged))


def assert_refused(read: list[dict[str, Any]]) -> None:
    for one in read:
        assert one.get("refused") == "LinkError", one
        assert 0 < len(one["line"]) < 120
        assert "\n" not in one["line"]


def changed(picture: bytes, change: Callable[[dict[str, Any]], object], columns: bytes | None = None) -> str:
    """A link whose picture somebody has changed by hand."""
    whole = zlib.decompress(picture)
    end = 4 + int.from_bytes(whole[:4], "little")
    data = json.loads(whole[4:end])
    change(data)
    text = json.dumps(data).encode()
    packed = zlib.compress(len(text).to_bytes(4, "little") + text + (whole[end:] if columns is None else columns))
    return f"{MARK}eJw.{base64.urlsafe_b64encode(packed).decode().rstrip('=')}"


def test_what_a_hostile_link_says_of_the_views_is_refused_before_they_see_it(plan: lab.Plan) -> None:
    picture = picture_of(plan, lab.simulate(plan))

    def put(where: str, value: object) -> str:
        def change(data: dict[str, Any]) -> None:
            *path, last = where.split(".")
            for key in path:
                data = data[int(key) if isinstance(data, list) else key]
            data[int(last) if isinstance(data, list) else last] = value

        return changed(picture, change)

    counts: list[int] = []
    changed(picture, lambda data: counts.extend(data["counts"]))
    waits_for_itself = b"\0\0\0\0\2\0\0\0"  # one bar: what it waits for is a bar, no bar before it
    one_bar = {"counts": [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0], "ticks": [1], "tick_s": 1.0}
    assert_refused(
        read_by_page(
            put("format", 2),
            put("title", 7),
            put("views.editor", {}),
            put("views.map.own_id", "another"),
            put("views.map.document.devices.0.name", 7),
            put("views.map.document.devices", [{}] * 10),
            put("views.map.document.default.latency_ms", "<script>"),
            put("views.legend.n_stages", 10**9),
            put("views.gantt.n_stages", -1),
            put("views.gantt.units.0.rows", [10**9]),
            put("views.top_bar.headline.lead", "a" * 10_000),
            put("views.gantt.kinds", [{"name": "F", "color": "url(https://x.example)"}]),
            put("views.map.highlight.stages", {"ada": 1e300}),
            put("tick_s", 1e300),
            put("tick_s", None),
            put("ticks", [0]),
            put("counts", [2**31] * 12),
            put("counts", [counts[0] + 1, *counts[1:]]),
            changed(picture, lambda data: None, b""),
            changed(picture, lambda data: None, b"\xff" * 100),
            changed(picture, lambda data: data.update(one_bar), waits_for_itself),
            f"{MARK}eJw.{base64.urlsafe_b64encode(zlib.compress(bytes(8_000_000))).decode().rstrip('=')}",
        )
    )


def test_no_name_becomes_markup(plan: lab.Plan) -> None:
    hostile = "</script><script>alert(1)</script>"
    devices = tuple(replace(device, name=f"{device.name}{hostile}") for device in plan.topology.devices)
    named = plan.changed(topology=replace(plan.topology, devices=devices, name=hostile))
    [read] = read_by_page(link_of(state_of(named), picture_of(named, lab.simulate(named))))
    assert read["views"]["top_bar"]["network"][0] == hostile  # as text: the page has no way to read markup
    page = opening_page()
    assert page.count("<script") == page.count("</script>") == 2
    assert "'unsafe-inline'" not in page.partition("script-src")[2].partition(";")[0]
