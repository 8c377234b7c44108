"""The mystery of the day: everybody has the same one, each day has another, and its culprit can be found."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from datetime import date, timedelta

import pytest

import dtfm_lab as lab
from dtfm_lab.extensions.course.daily import SCHEDULE, daily_links, daily_plan, daily_secret
from dtfm_lab.runtime.client.launch import with_slow_link

DAY = date(2026, 11, 30)
DAYS = [DAY + timedelta(n) for n in range(30)]


@pytest.fixture(scope="module")
def plan() -> lab.Plan:
    return daily_plan()


def test_another_process_has_the_same_link_on_the_same_day() -> None:
    code = "from datetime import date; from dtfm_lab.extensions.course.daily import daily_secret as d; "
    done = subprocess.run(
        [sys.executable, "-c", code + f"print(d(date.fromisoformat('{DAY}')).name)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == daily_secret(DAY).name


def test_no_two_days_running_have_the_same_link_and_all_links_take_their_turn() -> None:
    names = [daily_secret(DAY + timedelta(n)).name for n in range(3000)]
    assert all(one != other for one, other in itertools.pairwise(names))
    assert set(names) == set(daily_links())


def test_the_links_are_those_that_carry_messages(plan: lab.Plan) -> None:
    assert set(daily_links()) == set(lab.simulate(plan, SCHEDULE).to_frame()["link"].unique()) - {""}


def test_the_first_suspect_is_the_culprit_on_thirty_days(plan: lab.Plan) -> None:
    predicted = lab.simulate(plan, SCHEDULE)
    for day in DAYS:
        secret = daily_secret(day)
        slow = replace(plan, topology=with_slow_link(plan.topology, secret, plan.topology.names))
        found = lab.compare(predicted, lab.simulate(slow, SCHEDULE)).suspects.iloc[0]
        assert (found["of"], found["name"]) == ("link", secret.name), day
