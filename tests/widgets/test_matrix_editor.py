"""The matrix of links without a browser: cells picked in Python, fields typed into, and the drawing after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.widgets.network.document_conversion import document_of, topology_of
from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.network.links import Origin, drawn_links, set_links
from dtfm_lab.widgets.network.matrix_editor import MatrixEditor
from dtfm_lab.widgets.views.matrix import BANDWIDTH, CAPPED, LATENCY

NAMES = ["a0", "a1", "b0", "b1", "loose"]
speeds = st.tuples(st.sampled_from([1.0, 7.0, 40.0]), st.sampled_from([0.1, 1.0, 10.0]))
pairs = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda pair: pair[0] != pair[1])


def line(speed: tuple[float, float]) -> dict[str, float]:
    return {"latency_ms": speed[0], "bandwidth_gbps": speed[1]}


def document(
    links: dict[tuple[str, str], tuple[float, float]] | None = None, between: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Two devices in each of Tokyo and Lisbon, and a loose one."""
    regions = ["Tokyo", "Tokyo", "Lisbon", "Lisbon", ""]
    where = enumerate(zip(NAMES, regions, strict=True))
    drawn = [{"name": n, "region": r, "gpu": "T4", "x": 9.0 * i, "y": 0.0} for i, (n, r) in where]
    return {
        "name": "five",
        "devices": drawn,
        "regions": [{"name": "Tokyo", **line((2, 10))}, {"name": "Lisbon", **line((3, 5))}],
        "between": between or [],
        "links": [{"source": a, "target": b, **line(s), "one_way": True} for (a, b), s in (links or {}).items()],
        "default": line((50, 0.5)),
    }


def meant(drawn: dict[str, Any]) -> dict[tuple[str, str], tuple[float, float]]:
    """{(source, target): (ms, Gbit/s)} of the topology that a document draws."""
    latency, bandwidth = topology_of(drawn).to_matrices()
    return {
        (a, b): (round(latency.loc[a, b], 9), round(bandwidth.loc[a, b], 9)) for a in NAMES for b in NAMES if a != b
    }


def editor_of(drawn: dict[str, Any]) -> MatrixEditor:
    """An editor whose drawing is understood at once, as the network's panel does it."""
    editor = MatrixEditor(Drawing(drawn))
    editor.show(topology_of(drawn))
    editor.canvas.drawing.observe(lambda change: editor.show(topology_of(change["new"])), "document")
    return editor


documents = st.builds(
    document,
    st.dictionaries(pairs, speeds, max_size=6),
    st.lists(
        st.one_of(
            st.builds(lambda s: {"regions": ["Tokyo", "Lisbon"], **line(s)}, speeds),
            st.builds(lambda s: {"from": "Lisbon", "to": "Tokyo", **line(s)}, speeds),
        ),
        max_size=2,
        unique_by=lambda one: "regions" in one,
    ),
)


@settings(max_examples=40)
@given(documents, st.booleans())
def test_what_is_said_of_each_link_is_what_the_topology_has(drawn: dict[str, Any], by_distance: bool) -> None:
    drawn = {**drawn, "fill": "distance" if by_distance else "default"}
    topology, said = topology_of(drawn), drawn_links(drawn, NAMES)
    off = ~np.eye(len(NAMES), dtype=bool)
    np.testing.assert_allclose(said.latency_ms[off], topology.latency_s[off] * 1e3)
    np.testing.assert_allclose(said.bandwidth_gbps[off], topology.bandwidth_bytes_per_s[off] * 8e-9)
    assert (said.origin[off] > Origin.NOWHERE).all()
    assert (said.origin[~off] == Origin.NOWHERE).all()


nics = st.dictionaries(st.sampled_from(["uplink_gbps", "downlink_gbps"]), st.sampled_from([0.05, 0.4, 20.0]))


@settings(max_examples=40)
@given(
    documents,
    st.lists(nics, min_size=5, max_size=5),
    st.sets(st.integers(0, 4), min_size=4, max_size=4),
    st.booleans(),
)
def test_a_latency_for_picked_links_leaves_every_bandwidth_and_other_link_and_is_undone_at_once(
    drawn: dict[str, Any], own: list[dict[str, float]], corners: set[int], both_ways: bool
) -> None:
    drawn["devices"] = [{**device, **nic} for device, nic in zip(drawn["devices"], own, strict=True)]
    before, editor = meant(drawn), editor_of(drawn)
    top, bottom, left, right = sorted(corners)
    editor.canvas.picked = [top, left, bottom, right]
    editor.both_ways.value = both_ways
    picked = set(editor.canvas.picked_links())
    picked |= {(b, a) for a, b in picked if both_ways}
    editor.fields[LATENCY].value = "123"
    after = meant(editor.canvas.drawing.document)
    assert after == {pair: (123.0, was[1]) if pair in picked else was for pair, was in before.items()}
    editor.canvas.drawing.undo()
    assert meant(editor.canvas.drawing.document) == before
    assert not editor.canvas.drawing.can_undo


def test_fields_show_the_numbers_of_a_link_or_the_range_of_several_and_a_bandwidth_is_of_that_link() -> None:
    editor = editor_of(document({("a0", "b0"): (7.0, 1.0)}))
    editor.canvas.picked = [1, 3, 0, 2]
    assert (editor.fields[LATENCY].value, editor.fields[LATENCY].placeholder) == ("", "7 – 50")
    editor.canvas.picked = [0, 2, 0, 2]
    assert [field.value for field in editor.fields.values()] == ["7", "1"]
    before, editor.both_ways.value = meant(editor.canvas.document), False
    editor.fields[BANDWIDTH].value = "2"
    assert meant(editor.canvas.document) == {**before, ("a0", "b0"): (7.0, 2.0)}


@settings(max_examples=40)
@given(documents, st.dictionaries(pairs, speeds, max_size=5))
def test_setting_links_changes_these_and_no_others(drawn: dict[str, Any], new: dict[Any, Any]) -> None:
    assert meant(set_links(drawn, new)) == {**meant(drawn), **new}


def test_links_that_agree_both_ways_share_a_line() -> None:
    drawn = set_links(document(), {("a0", "b0"): (9.0, 1.0), ("b0", "a0"): (9.0, 1.0)})
    assert drawn["links"] == [{"source": "a0", "target": "b0", **line((9, 1)), "one_way": False}]
    (there, back) = set_links(drawn, {("b0", "a0"): (9.0, 2.0)})["links"]
    assert there["one_way"]
    assert back["one_way"]


def test_the_page_gets_numbers_region_by_region() -> None:
    topology = lab.Topology.from_matrices(
        np.arange(16).reshape(4, 4), np.full((4, 4), 0.5), names=list("wxyz"), regions=["Lima", "Oslo", "Lima", "Oslo"]
    )
    canvas = editor_of(document_of(topology)).canvas
    assert canvas.names == ["w", "y", "x", "z"]
    assert canvas.blocks == [["Lima", 2], ["Oslo", 2]]
    assert canvas.values().tolist() == [[0, 2, 1, 3], [8, 0, 9, 11], [4, 6, 0, 7], [12, 14, 13, 0]]
    assert "12 links: 1 to 14 ms" in canvas.alt_text()


def test_a_nic_that_caps_is_told() -> None:
    canvas = editor_of(document_of(lab.load_topology("volunteers"))).canvas
    assert (np.frombuffer(canvas.origin, "u1") >= CAPPED).any()
    assert not (np.frombuffer(editor_of(document()).canvas.origin, "u1") >= CAPPED).any()


def test_where_numbers_come_from_is_told_of_the_newest_drawing() -> None:
    drawing = Drawing(document())
    editors: list[MatrixEditor] = []
    drawing.observe(lambda change: editors[0].show(topology_of(change["new"])), "document")  # before any view hears
    editors.append(MatrixEditor(drawing))
    editors[0].show(topology_of(document()))
    drawing.document = set_links(document(), {("a0", "b0"): (50.0, 0.5)})
    origin = np.frombuffer(editors[0].canvas.origin, "u1").reshape(5, 5)
    assert origin[0, 2] == Origin.LINK
    assert origin[2, 0] == Origin.DEFAULT


def test_links_of_a_network_that_is_no_longer_drawn_are_not_edited() -> None:
    editor = MatrixEditor(Drawing(document()))
    editor.show(topology_of(document()))
    renamed = document()
    renamed["devices"][0]["name"] = "a1"
    editor.canvas.drawing.document = renamed
    editor.canvas.picked = [1, 2, 1, 2]
    editor.fields[LATENCY].value = "5"
    assert "device a1 is drawn 2 times; wanted once" in editor.result.value
    assert editor.canvas.drawing.document == renamed


@pytest.mark.parametrize(
    ("shows", "entry", "told"),
    [
        (LATENCY, "fast", "&#x27;fast&#x27; is not a number; wanted one such as 12.5"),
        (LATENCY, "-3", "latency is -3.0; wanted 0 or more ms"),
        (LATENCY, "1,000", "may be thousands or thousandths; wanted it without a comma"),
        (BANDWIDTH, "0", "bandwidth is 0.0; wanted more than 0 Gbit/s"),
        (BANDWIDTH, "nan", "bandwidth is nan; wanted more than 0 Gbit/s"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_in_place(shows: str, entry: str, told: str) -> None:
    editor = editor_of(document())
    editor.canvas.picked = [0, 2, 0, 2]
    editor.fields[shows].value = entry
    assert told in editor.result.value
    assert editor.canvas.document == document()


def test_a_link_selected_elsewhere_is_picked_unless_it_is_among_those_picked() -> None:
    canvas = editor_of(document()).canvas
    canvas.drawing.selected_link = ["b1", "a0"]
    assert canvas.picked_links() == [("b1", "a0")]
    canvas.picked = [2, 0, 3, 1]
    canvas.drawing.selected_link = ["b0", "a1"]
    assert canvas.picked == [2, 0, 3, 1]
    canvas.drawing.selected_link = ["gone", "a1"]
    assert canvas.picked == [2, 0, 3, 1]


def test_a_hidden_matrix_gets_its_numbers_when_it_is_shown() -> None:
    editor = MatrixEditor(Drawing(document()))
    editor.canvas.leave()
    editor.show(topology_of(document()))
    assert editor.canvas.latency_ms == b""
    assert editor.canvas.topology is not None
    editor.canvas.follow()
    assert len(editor.canvas.latency_ms) == 4 * 25
    editor.show(None)
    assert editor.canvas.names == []
    assert editor.canvas.alt_text() == "Matrix of links: no link yet"
