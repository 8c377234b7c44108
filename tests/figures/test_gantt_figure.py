import numpy as np
import pytest

from dtfm_lab import figures
from dtfm_lab.domain.errors import TraceError, UnknownName
from dtfm_lab.domain.schedule import LANE, RECEIVES, SENDS, Kind, Lane
from dtfm_lab.figures.palette import KIND_COLORS, KIND_NAMES
from dtfm_lab.simulation import simulate


def bars_of(figure):
    """(start, end, row) of every bar, in the chart's units."""
    columns = [np.column_stack([b.base, np.add(b.base, b.x), b.y]) for b in figure.data]
    return np.concatenate(columns)


def test_every_action_is_one_bar(predicted):
    assert len(bars_of(figures.gantt(predicted))) == len(predicted)


def test_a_trace_a_kind_and_not_a_bar(predicted):
    figure = figures.gantt(predicted)
    assert len(figure.data) == len({action.kind for action in predicted.actions})
    assert all(len(bar.hovertext) == len(bar.x) for bar in figure.data)


def test_bars_stand_where_the_trace_says_in_milliseconds_below_a_second(predicted):
    figure = figures.gantt(predicted)
    bars = bars_of(figure)
    assert "(ms)" in figure.layout.xaxis.title.text
    assert np.sort(bars[:, 0]) == pytest.approx(np.sort(predicted.start_s * 1e3))
    assert np.sort(bars[:, 1]) == pytest.approx(np.sort(predicted.end_s * 1e3))


def test_the_title_says_schedule_clock_and_time(predicted):
    title = figures.gantt(predicted).layout.title.text
    assert title.startswith("1f1b · model clock · ")
    assert "ms an iteration" in title


def test_the_typical_iteration_is_drawn_unless_one_is_asked_for(measured):
    ends = measured.iteration_ends_s * 1e3
    assert bars_of(figures.gantt(measured))[:, 1].max() == pytest.approx(ends[1])
    figure = figures.gantt(measured, iteration=2)
    assert bars_of(figure)[:, 1].max() == pytest.approx(ends[2])
    assert "iteration 2 (3 in all)" in figure.layout.title.subtitle.text


def test_hover_says_who_what_and_when(predicted, small_plan):
    bars = next(b for b in figures.gantt(predicted).data if b.name == "forward")
    device = small_plan.stages[0][0]
    [text] = [t for t, start in zip(bars.hovertext, bars.base, strict=True) if t.startswith(device) and start == 0]
    assert text.startswith(f"{device} · forward 0 · 0.0 to ")
    assert text.endswith(" ms)")


def test_lanes_are_left_out(predicted):
    figure = figures.gantt(predicted, lanes=["compute"])
    assert len(bars_of(figure)) == sum(predicted.actions[a].lane is Lane.COMPUTE for a in predicted.action)
    assert len(figure.layout.yaxis.ticktext) == 8


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
    height = first[0].width[0]
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
    for y, width in zip(np.unique(ahead.y), ahead.width, strict=False):
        assert np.all(np.abs(back.y - y) >= width - 1e-9)


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


@pytest.mark.parametrize("iteration", [3, -1])
def test_an_iteration_that_was_not_traced_is_refused(predicted, measured, iteration):
    with pytest.raises(TraceError, match=f"iteration is {iteration}; wanted one that was traced, 0 to 2"):
        figures.gantt(measured, iteration=iteration)
    with pytest.raises(TraceError, match="0 to 2"):
        figures.gantt(predicted, against=measured, iteration=iteration)


def test_lanes_that_do_not_exist_are_refused(predicted):
    with pytest.raises(UnknownName, match="did you mean 'receive'"):
        figures.gantt(predicted, lanes=["recieve"])
    with pytest.raises(TraceError, match="no lanes"):
        figures.gantt(predicted, lanes=[])


def test_traces_of_two_placements_are_refused(predicted, large_plan):
    with pytest.raises(TraceError, match="different placements"):
        figures.gantt(predicted, against=simulate(large_plan))
