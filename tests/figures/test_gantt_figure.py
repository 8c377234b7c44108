import numpy as np
import pytest
from drawn import array, said

from dtfm_lab import figures
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import LANE, RECEIVES, SENDS, Kind, Lane
from dtfm_lab.figures.palette import KIND_COLORS, KIND_NAMES
from dtfm_lab.simulation import simulate


def bars_of(figure):
    """(start, end, row) of every bar, in the chart's units."""
    columns = [np.column_stack([array(b.base), array(b.base) + b.x, b.y]) for b in figure.data]
    return np.concatenate(columns)


def test_every_action_is_one_bar(predicted):
    assert len(bars_of(figures.gantt(predicted))) == len(predicted)


def test_bars_stand_where_the_trace_says_in_milliseconds_below_a_second(predicted):
    figure = figures.gantt(predicted)
    bars = bars_of(figure)
    assert "(ms)" in figure.layout.xaxis.title.text
    assert np.sort(bars[:, 0]) == pytest.approx(np.sort(predicted.start_s * 1e3))
    assert np.sort(bars[:, 1]) == pytest.approx(np.sort(predicted.end_s * 1e3))


def test_the_typical_iteration_is_drawn_unless_one_is_asked_for(measured):
    ends = measured.iteration_ends_s * 1e3
    assert bars_of(figures.gantt(measured))[:, 1].max() == pytest.approx(ends[1])
    figure = figures.gantt(measured, iteration=2)
    assert bars_of(figure)[:, 1].max() == pytest.approx(ends[2])
    assert "iteration 2 (3 in all)" in figure.layout.title.subtitle.text


def test_hover_says_who_what_and_when(predicted, small_plan):
    figure = figures.gantt(predicted)
    bars = next(b for b in figure.data if b.name == "forward")
    axis = figure.layout.yaxis
    row = next(y for y, label in zip(axis.tickvals, axis.ticktext, strict=True) if label.startswith("0 · "))
    [at] = np.flatnonzero((array(bars.base) == 0) & np.isclose(bars.y, row))
    text = said(bars, at, x=float(bars.x[at]), y=f"0 · {small_plan.stages[0][0]}")
    assert text.startswith(f"stage 0 · {small_plan.stages[0][0]} · forward 0 · 0.0 to ")
    assert text.endswith(" ms)")


def test_a_row_that_names_no_device_leaves_that_to_the_bar(predicted, measured, small_plan):
    names = {name for group in small_plan.stages for name in group}
    sends = next(b for b in figures.gantt(predicted).data if b.name == "activation")
    here, way, there = sends.hovertext[0].split(" ")
    assert {here, there} < names
    assert way in ("to", "from")
    both = figures.gantt(predicted, against=measured, lanes=["compute"])
    words = [said(b, 0, x=1.0).split(" · ") for b in both.data if b.name == "forward"]
    assert [source for source, *_ in words] == ["simulated", "measured"]
    assert all(device in names for _, device, *_ in words)


def test_durations_are_told_bar_by_bar_where_they_differ(predicted):
    figure = figures.gantt(predicted)
    for bar in figure.data:
        told = said(bar, 0, x=1.0, y="ada").rpartition("(")[2].removesuffix(")")
        number, unit = told.split(" ")
        assert float(number) * {"ms": 1.0, "µs": 1e-3, "s": 1e3}[unit] == pytest.approx(float(bar.x[0]), rel=1e-2)


def test_rows_go_by_stage_then_replica(predicted, small_plan):
    labels = figures.gantt(predicted, lanes=["compute"]).layout.yaxis.ticktext
    names = [f"{stage} · {name}" for stage, group in enumerate(small_plan.stages) for name in group]
    assert list(labels) == names


def test_the_second_trace_is_hatched_and_below_the_first_within_each_row(predicted, measured):
    figure = figures.gantt(predicted, against=measured, lanes=["compute"])
    first = [b for b in figure.data if b.marker.pattern.shape is None]
    second = [b for b in figure.data if b.marker.pattern.shape == "/"]
    assert len(first) == len(second) == len(figure.data) / 2
    rows_of_first, rows_of_second = (np.unique(np.concatenate([b.y for b in some])) for some in (first, second))
    height = first[0].width
    assert rows_of_second - rows_of_first == pytest.approx(np.full(8, height))
    assert "simulated above, measured below" in figure.layout.title.subtitle.text
    assert "model and virtual clock" in figure.layout.title.text


def test_a_prediction_of_one_iteration_serves_any_measured_one(predicted, measured):
    figure = figures.gantt(predicted, against=measured, iteration=2)
    assert len(bars_of(figure)) == 2 * len(predicted)


def test_one_legend_entry_for_a_message_sent_or_received_predicted_or_measured(predicted, measured):
    figure = figures.gantt(predicted, against=measured)
    shown = [b.name for b in figure.data if b.showlegend]
    assert len(shown) == len(set(shown)) == 8


def test_messages_of_the_two_directions_never_hide_each_other(predicted):
    by_name = {b.name: b for b in figures.gantt(predicted).data}
    ahead, back = by_name["activation"], by_name["activation gradient"]
    for y in np.unique(ahead.y):
        assert np.all(np.abs(back.y - y) >= ahead.width - 1e-3)


def test_a_crowded_chart_draws_computations_and_says_so(large_plan):
    trace = simulate(large_plan, "gpipe")
    assert len(trace) > 20_000
    figure = figures.gantt(trace)
    assert len(bars_of(figure)) == 64 * (2 * 64 + 2)
    assert "computations only" in figure.layout.title.subtitle.text
    assert "(s)" in figure.layout.xaxis.title.text


def test_every_kind_has_a_colour_and_a_name_and_a_receive_its_sends_colour():
    assert set(KIND_COLORS) == set(KIND_NAMES) == set(Kind) == set(LANE)
    assert all(KIND_COLORS[send] == KIND_COLORS[receive] for receive, send in RECEIVES.items())
    assert len({KIND_COLORS[kind] for kind in Kind if kind not in RECEIVES}) == len(Kind) - len(SENDS)


@pytest.mark.parametrize("lanes", [["compute"], ["compute", "send", "receive"]])
def test_the_critical_path_is_outlined_and_followed_from_the_beginning_to_the_end(predicted, lanes):
    figure = figures.gantt(predicted, lanes=lanes, critical=True)
    path = predicted.critical_path()
    [outlines] = [bar for bar in figure.data if bar.name == "on the critical path"]
    drawn = [predicted.actions[predicted.action[row]].lane.value in lanes for row in path["row"]]
    assert array(outlines.base) == pytest.approx(predicted.start_s[path["row"][drawn]] * 1e3)
    casing, line = (trace for trace in figure.data if trace.name == "critical path")
    np.testing.assert_array_equal(casing.x, line.x)
    assert casing.line.width > line.line.width
    times = line.x[~np.isnan(line.x)].tolist()
    assert times[0] == 0.0
    assert times[-1] == pytest.approx(predicted.iteration_s * 1e3)
    assert times == sorted(times)


def test_of_two_traces_the_one_that_knows_shows_its_critical_path(predicted, measured):
    figure = figures.gantt(measured, against=predicted, critical=True)
    assert "critical path" in {trace.name for trace in figure.data}
    with pytest.raises(TraceError, match="does not know what each action waited for"):
        figures.gantt(measured, critical=True)


def test_an_arrow_a_message_from_its_sending_to_its_arrival(predicted):
    figure = figures.gantt(predicted, lanes=["compute"], messages=True)
    ways = list(figure.select_traces({"type": "scatter", "mode": "lines+markers"}))
    kinds = np.array([action.kind for action in predicted.actions])[predicted.action]
    sends = np.isin(kinds, list(SENDS))
    begin = np.concatenate([trace.x[::3] for trace in ways]).astype(float)
    end = np.concatenate([trace.x[1::3] for trace in ways]).astype(float)
    assert np.sort(begin) == pytest.approx(np.sort(predicted.start_s[sends] * 1e3))
    arrivals = predicted.end_s[np.isin(kinds, list(RECEIVES))]
    assert np.sort(end) == pytest.approx(np.sort(arrivals * 1e3))
    words = [said(trace, at) for trace in ways for at in range(len(trace.x))]
    assert any(text.startswith("activation 0 · ") and " → " in text for text in words)


def test_too_many_arrows_are_left_out_and_said(large_plan):
    figure = figures.gantt(simulate(large_plan, "gpipe"), messages=True)
    assert not [trace for trace in figure.data if trace.type == "scatter"]
    assert "no arrows: " in figure.layout.title.subtitle.text


def test_interleaved_stages_share_a_row_and_differ_in_shade(small_plan):
    trace = simulate(small_plan, "interleaved-1f1b")
    figure = figures.gantt(trace, lanes=["compute"])
    assert len(bars_of(figure)) == sum(trace.actions[a].lane is Lane.COMPUTE for a in trace.action)
    assert [label.split(" · ")[0] for label in figure.layout.yaxis.ticktext[::2]] == ["0, 4", "1, 5", "2, 6", "3, 7"]
    forwards = [bar for bar in figure.data if bar.name == "forward"]
    assert len(forwards) == len({bar.marker.color for bar in forwards}) == 2
    assert sum(bool(bar.showlegend) for bar in forwards) == 1
    words = [said(bar, at, x=1.0, y="0, 4 · ada") for bar in forwards for at in range(len(bar.x))]
    assert any("forward 0 of stage 4" in text for text in words)
    assert "paler" in figure.layout.title.subtitle.text


def test_the_halves_of_a_split_backward_have_names_and_numbers(small_plan):
    named = {bar.name: bar for bar in figures.gantt(simulate(small_plan, "zb-h1")).data}
    assert "backward" not in named
    for half in ("inputs", "weights"):
        bar = named[f"backward of {half}"]
        assert bar.texttemplate == "%{customdata[0]}"
        assert set(bar.customdata[:, 0]) == {0, 1, 2, 3}
