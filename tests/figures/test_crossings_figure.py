"""The figure of crossings: lines with the stretches of the fastest."""

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
        assert array(trace.x) == pytest.approx([point.value for point in found.points])
        assert array(trace.y) == pytest.approx([point.seconds[one.label] for point in found.points])
        assert [size > 0 for size in trace.marker.size] == [not point.refined for point in found.points]
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert "Gbit/s" in figure.layout.xaxis.title.text
    assert found.sentence in figures.alt_text(figure)


def test_the_stretch_of_each_fastest_ends_at_the_crossing(found) -> None:
    shaded = [shape for shape in figures.crossings(found).layout.shapes if shape.type == "rect"]
    assert [shape.x1 for shape in shaded] == [*(one.value for one in found.crossings), found.points[-1].value]
    assert len(shaded) == len(found.crossings) + 1


def test_it_is_written_as_a_picture(found, tmp_path) -> None:
    assert "Plotly.newPlot" in figures.save(figures.crossings(found), tmp_path / "crossings.html").read_text()


def test_nothing_compared_is_refused(found) -> None:
    nothing = Crossings(topology=found.topology, job=found.job, axis=found.axis, systems=found.systems)
    with pytest.raises(lab.LabError, match="crossings of no values"):
        figures.crossings(nothing)
