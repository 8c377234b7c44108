"""The figure of an availability: every second that a device is present, every loss, and little of a million events."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import array, trace

from dtfm_lab import figures
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.availability_files import load_availability
from dtfm_lab.files import load_topology

HOUR = 3600.0


def test_bars_are_the_time_present_and_every_loss_has_a_mark() -> None:
    home = load_availability("volunteers-at-home")
    figure = figures.availability(home)
    bars = next(each for each in figure.data if each.type == "bar")
    present_h = np.bincount(array(bars.y), weights=array(bars.x))
    assert present_h * HOUR == pytest.approx(home.present_s())
    assert len(array(trace(figure, "lost").x)) == (~home.comes).sum()
    assert list(figure.layout.yaxis2.ticktext) == list(home.devices)


def test_of_more_devices_than_rows_the_losses_are_counted() -> None:
    spot = load_availability("gcp-v100")
    figure = figures.availability(spot)
    assert array(trace(figure, "lost").y).sum() == 579
    assert array(trace(figure, "online").y).max() == 80
    assert figure.layout.xaxis2.title.text == "time (h)"


def test_who_never_comes_has_no_row() -> None:
    figure = figures.availability(load_availability("bamboo-p3").on(load_topology("worldwide")))
    assert len(figure.layout.yaxis2.ticktext) == 32
    assert "each device (32 never arrive)" in [note.text for note in figure.layout.annotations]


def test_of_very_many_events_the_fewest_and_the_most_stay() -> None:
    names = [f"n{i}" for i in range(100)]
    many = Availability.sampled(names, 50 * HOUR, mean_life_s=300, mean_absence_s=300, seed=1)
    present = trace(figures.availability(many), "online")
    at_s, there = array(present.x) * HOUR, array(present.y)
    assert len(at_s) < 3100 < len(many.changes)
    assert (there.min(), there.max()) == (many.counts().min(), many.counts().max())
    assert all(n == len(many.present_at(s + 1e-6)) for s, n in zip(at_s[:-1:50], there[:-1:50], strict=True))


def test_a_short_one_is_in_minutes_or_seconds_and_an_empty_one_is_drawn() -> None:
    spot = load_availability("oobleck-every-10m")
    assert figures.availability(spot.faster(60)).layout.xaxis2.title.text == "time (min)"
    assert figures.availability(spot.faster(6000)).layout.xaxis2.title.text == "time (s)"
    nobody = figures.availability(Availability.from_intervals({"a": []}, 60))
    assert "no device is lost" in figures.alt_text(nobody)
