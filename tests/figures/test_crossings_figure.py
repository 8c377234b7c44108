"""The figure of crossings: lines with the stretches of the fastest, or a map of two axes."""

import numpy as np
import pytest
from drawn import array

import dtfm_lab as lab
from dtfm_lab import figures
from dtfm_lab.systems import Crossings

SYSTEMS = ["megatron", lab.systems.variant("megatron", transport="overlapped")]


@pytest.fixture(scope="module")
def found() -> Crossings:
    return lab.crossings("lecture-hall", "tiny", systems=SYSTEMS, values=(0.01, 10.0, 3))


def test_every_system_is_a_line_through_its_seconds(found) -> None:
    figure = figures.crossings(found)
    assert [trace.name for trace in figure.data] == [one.heading for one in found.systems]
    for trace, one in zip(figure.data, found.systems, strict=True):
        assert array(trace.x) == pytest.approx([point.values[0] for point in found.points])
        assert array(trace.y) == pytest.approx([point.seconds[one.label] for point in found.points])
        assert [size > 0 for size in trace.marker.size] == [not point.refined for point in found.points]
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert "Gbit/s" in figure.layout.xaxis.title.text
    assert found.sentence in figures.alt_text(figure)


def test_the_stretch_of_each_fastest_ends_at_the_crossing(found) -> None:
    shaded = [shape for shape in figures.crossings(found).layout.shapes if shape.type == "rect"]
    assert [(shape.x0, shape.x1) for shape in shaded] == [(low, high) for low, high, _ in found.stretches]
    assert len(shaded) == len(found.crossings) + 1


def test_two_axes_are_a_map_of_margins() -> None:
    values = {"bandwidth": [0.01, 1.0], "latency": [0.1, 10.0, 100.0]}
    found = lab.crossings("lecture-hall", "tiny", systems=SYSTEMS, over=["bandwidth", "latency"], values=values)
    figure = figures.crossings(found)
    [heat] = [trace for trace in figure.data if trace.type == "heatmap"]
    assert np.array(heat.z, dtype=float).shape == (3, 2)
    assert list(heat.x) == ["0.01", "1"]
    for point in found.points:
        row, column = values["latency"].index(point.values[1]), values["bandwidth"].index(point.values[0])
        assert heat.text[row][column] == f"+{point.margin(found.compared):.0%}"


def test_it_is_written_as_a_picture(found, tmp_path) -> None:
    assert "<svg" in figures.save(figures.crossings(found), tmp_path / "crossings.svg").read_text()


def test_nothing_compared_is_refused(found) -> None:
    nothing = Crossings(topology=found.topology, job=found.job, axes=found.axes, systems=found.systems, points=())
    with pytest.raises(lab.LabError, match="crossings of no values"):
        figures.crossings(nothing)
