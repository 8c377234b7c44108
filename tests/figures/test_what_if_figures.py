"""Sweeps as curves and bars, sensitivity as a tornado."""

import numpy as np
import pandas as pd
import pytest

from dtfm_lab import figures
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.theme import time_unit
from dtfm_lab.lab import compare, explain, simulate, sweep


@pytest.fixture(scope="module")
def swept(small_plan):
    settings = {"schedule": ["gpipe", "1f1b"], "bandwidth": [2, 0.5, 8]}
    return sweep(small_plan, **settings)


@pytest.fixture(scope="module")
def tried(small_plan):
    return explain(small_plan).sensitivity("1f1b")


def lines(figure):
    return [trace for trace in figure.data if trace.mode == "lines"]


def markers(figure):
    return [trace for trace in figure.data if trace.mode == "markers" and trace.x[0] is not None]


def test_numbers_go_along_the_axis_and_names_to_colours(swept):
    figure = figures.sweep(swept)
    assert {line.name for line in lines(figure)} == {"gpipe", "1f1b"}
    assert figure.layout.xaxis.title.text == "bandwidth of all links (factor)"
    assert figure.layout.xaxis.type == "log"


def test_every_combination_is_one_point_and_curves_go_from_left_to_right(swept):
    figure = figures.sweep(swept)
    drawn = np.array([(x, y) for trace in markers(figure) for x, y in zip(trace.x, trace.y, strict=True)])
    given = np.column_stack([swept["bandwidth"], swept["iteration_s"] * 1e3])
    assert drawn[np.lexsort(drawn.T)] == pytest.approx(given[np.lexsort(given.T)])
    assert all(list(line.x) == [0.5, 2, 8] for line in lines(figure))


def test_names_alone_are_bars(swept):
    figure = figures.sweep(swept[swept["bandwidth"] == 2], "mfu")
    assert {trace.type for trace in figure.data} == {"bar"}
    assert len(figure.data) == 1
    assert figure.layout.yaxis.title.text == "model FLOP utilisation (%)"


def test_the_title_names_the_best_combination(swept):
    best = swept.loc[swept["iteration_s"].idxmin()]
    title = figures.sweep(swept).layout.title.text
    assert f"schedule {best['schedule']}, bandwidth × {best['bandwidth']:g}" in title
    fastest = swept.loc[swept["tokens_per_s"].idxmax()]
    assert f"schedule {fastest['schedule']}, " in figures.sweep(swept, "tokens_per_s").layout.title.text


def test_another_setting_may_go_along_the_axis(swept):
    figure = figures.sweep(swept, x="schedule")
    assert {trace.type for trace in figure.data} == {"bar"}
    assert list(figure.layout.xaxis.categoryarray) == ["gpipe", "1f1b"]


def test_what_does_not_fit_is_hollow_and_the_legend_says_so(swept):
    tight = swept.assign(fits=swept["schedule"] == "1f1b")
    figure = figures.sweep(tight)
    for trace in markers(figure):
        hollow = {symbol.endswith("-open") for symbol in trace.marker.symbol}
        assert hollow == {trace.name == "gpipe"}
    assert [t.name for t in figure.data if t.showlegend][-1] == "hollow: does not fit in memory"
    assert "schedule 1f1b" in figure.layout.title.text
    assert "3 do not fit in memory" in figures.alt_text(figure)
    assert "hollow" not in {t.name for t in figures.sweep(swept).data}


def test_where_nothing_fits_the_title_says_so(swept):
    assert figures.sweep(swept.assign(fits=False)).layout.title.text.endswith("none fits in memory")


def test_combinations_that_cannot_be_are_counted_with_a_reason(small_plan):
    table = sweep(small_plan, microbatch=[1, 3], schedule=["gpipe", "1f1b"])
    figure = figures.sweep(table)
    assert "4 combinations · 2 are impossible, such as: job tiny" in figure.layout.title.subtitle.text
    nothing = figures.sweep(table[table["microbatch"] == 3])
    assert nothing.layout.title.text == "iteration: unknown for all of these combinations"
    assert not nothing.data


def test_yes_no_and_default_are_words(small_plan):
    table = sweep(small_plan, recompute=[False, True], gradient_compression=[None, "int8"])
    figure = figures.sweep(table)
    shown = {*figure.data[0].x, *(trace.name for trace in figure.data)}
    assert shown == {"no", "yes", "default", "int8"}


def test_a_sweep_that_plans_is_drawn_by_its_settings():
    limits = {"steps": 1, "objective": "communication"}
    table = sweep("lecture-hall", "tiny", planner=["random", "dtfm"], n_stages=[2, 4], n_replicas=2, **limits)
    figure = figures.sweep(table, "communication_cost_s")
    assert {trace.name for trace in figure.data} == {"random", "dtfm"}


def test_every_improvement_with_an_effect_is_one_bar_the_greatest_on_top(tried, small_plan):
    figure = figures.sensitivity(tried)
    before = format_s(simulate(small_plan, "1f1b").iteration_s)
    assert f"of an iteration of {before} " in figure.layout.title.subtitle.text
    assert sum(len(bar.x) for bar in figure.data) == (tried["change"] != 0).sum()
    links = tried[(tried["of"] == "link") & (tried["change"] < 0)]
    assert figure.layout.yaxis.categoryarray[0].startswith(links.iloc[0]["name"])
    assert figure.layout.title.text == tried.iloc[0]["sentence"].replace("&", "&amp;")


def test_of_many_improvements_the_first_ten_of_each_kind_are_drawn(tried):
    one = tried.iloc[[0]].assign(of="device", what="compute")
    many = pd.concat([one.assign(name=f"d{i}", change=-0.01 * (i + 1)) for i in range(25)], ignore_index=True)
    figure = figures.sensitivity(many)
    assert list(figure.layout.yaxis.categoryarray) == [f"d{i} · computing" for i in range(24, 14, -1)]
    assert "devices, first 10 of 25" in [note.text for note in figure.layout.annotations]


def test_improvements_without_effect_are_an_empty_figure_that_says_so(tried):
    nothing = tried.assign(change=0.0)
    figure = figures.sensitivity(nothing)
    assert not figure.data
    assert "none of them alone" in figure.layout.annotations[0].text
    assert "nothing was tried" in figures.sensitivity(tried.head(0)).layout.annotations[0].text


def test_plans_on_draws_are_rows_of_their_quantiles_the_least_expected_seconds_on_top(small_plan):
    slower = small_plan.changed(job=small_plan.job.with_fields(schedule="gpipe"))
    found = compare(small_plan, slower, spread=0.3, draws=40)
    figure = figures.sensitivity(found)
    rows = np.argsort(found.mean_s, kind="stable")
    wide, thick, expected, nominal = figure.data
    _, per_s = time_unit(found.quantile_s(0.95).max())
    assert np.array(wide.x).reshape(2, 3)[:, :2] / per_s == pytest.approx(
        np.stack([found.quantile_s(0.05)[rows], found.quantile_s(0.95)[rows]], axis=1)
    )
    assert thick.line.width > wide.line.width
    assert np.array(expected.x) / per_s == pytest.approx(found.mean_s[rows])
    assert np.array(nominal.x) / per_s == pytest.approx(found.nominal_s[rows])
    assert f"plan {rows[0]}, " in figure.layout.yaxis.ticktext[0]
    assert "spread of bandwidth 0.3, compute 0.3, latency 0.3" in figure.layout.title.subtitle.text.replace("<br>", " ")


def test_what_a_job_counts_is_what_every_word_says(swept, small_plan):
    assert swept.attrs["counted"] == small_plan.job.counted == "tokens"
    samples = swept.copy()
    samples.attrs["counted"] = "samples"
    figure = figures.sweep(samples, "tokens_per_s")
    assert figure.layout.yaxis.title.text == "samples per second"
    assert "token" not in figure.to_json()
