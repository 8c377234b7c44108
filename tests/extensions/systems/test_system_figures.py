"""The figures of systems: bars add up, a reason is in place of a bar; lines with the stretches of the fastest."""

from __future__ import annotations

import pytest
from drawn import array
from own_strategy import Nowhere, OnePipeline

import dtfm_lab as lab
from dtfm_lab import figures
from dtfm_lab.extensions.systems.api import variant

SYSTEMS = ["dtfm-lab", "megatron", variant("megatron", transport="overlapped"), OnePipeline(share=1e-5), Nowhere()]


@pytest.fixture(scope="module")
def found():
    return lab.strategies("lecture-hall", "tiny", systems=SYSTEMS, steps=1)


@pytest.fixture(scope="module")
def figure(found):
    return figures.strategies(found)


def test_the_parts_of_a_bar_add_up(found, figure):
    for row, one in enumerate(found):
        parts = [
            (x, base) for bar in figure.data for x, base, y in zip(bar.x, bar.base, bar.y, strict=True) if y == row
        ]
        if one.iteration_s is None:
            assert parts == []
        elif "share" not in one.name:
            assert sum(x for x, _ in parts) == pytest.approx(one.iteration_s)
            assert max(x + base for x, base in parts) == pytest.approx(one.iteration_s)


def test_the_seconds_and_the_reason_are_written(figure):
    notes = [note.text for note in figure.layout.annotations]
    assert notes[0].endswith(("s", "ms"))
    assert all("×" in text for text in notes[1:4])
    assert notes[-1] == "no plan: it wants &#36;1 and &lt;b&gt;more&lt;/b&gt; than there is"


def test_ours_is_shaded_and_what_is_cut_is_broken(found, figure):
    ours = [one.name for one in found].index("dtfm-lab")
    (shade,) = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert (shade.y0 + shade.y1) / 2 == ours
    assert len([shape for shape in figure.layout.shapes if shape.type == "line"]) == 2
    assert figure.layout.yaxis.ticktext[ours] == "<b>dtfm_lab</b>"


def test_a_variant_says_what_was_changed_and_changed_training_is_marked(figure):
    names = figure.layout.yaxis.ticktext
    assert "Megatron-LM<br>transport overlapped" in names
    assert "One &lt;pipeline&gt; †<br>share 1e-05" in names
    assert "changes the training itself" in figure.layout.title.subtitle.text.replace("<br>", " ")


def test_where_nobody_has_a_plan_the_reasons_are_left():
    none = figures.strategies(lab.strategies("lecture-hall", "tiny", systems=Nowhere()))
    assert none.data == ()
    assert "no system has a plan" in none.layout.title.text


CROSSED = ["megatron", lab.systems.variant("megatron", transport="overlapped")]


@pytest.fixture(scope="module")
def crossed():
    return lab.strategies("lecture-hall", "tiny", over="bandwidth", systems=CROSSED, values=(0.01, 10.0, 3))


def test_every_system_is_a_line_through_its_seconds(crossed):
    figure = figures.crossings(crossed)
    assert [trace.name for trace in figure.data] == [one.heading for one in crossed.systems]
    for trace, one in zip(figure.data, crossed.systems, strict=True):
        assert array(trace.x) == pytest.approx([point.value for point in crossed.points])
        assert array(trace.y) == pytest.approx([point.seconds[one.label] for point in crossed.points])
        assert [size > 0 for size in trace.marker.size] == [not point.refined for point in crossed.points]
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert "Gbit/s" in figure.layout.xaxis.title.text
    assert crossed.sentence in figures.alt_text(figure)


def test_the_stretch_of_each_fastest_ends_at_the_crossing(crossed):
    shaded = [shape for shape in figures.crossings(crossed).layout.shapes if shape.type == "rect"]
    assert [shape.x1 for shape in shaded] == [*(one.value for one in crossed.crossings), crossed.points[-1].value]
    assert len(shaded) == len(crossed.crossings) + 1
