"""The mystery of the day: one link of a given plan is secretly slow. Everyone has the same one on a date."""

from __future__ import annotations

import itertools
from datetime import date

import numpy as np

from dtfm_lab import lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import LINK_SEPARATOR
from dtfm_lab.files.workspaces import WorkspaceState
from dtfm_lab.runtime.client.launch import FACTOR, Secret

NETWORK = "lecture-hall"
JOB = "small"
SCHEDULE = "gpipe"
STAGES = (("ada", "claude"), ("alan", "barbara"), ("john", "grace"), ("katherine", "edsger"))
"""Devices of each stage, one per replica. The plan is fixed, so that the same links carry messages on every machine."""
ITERATIONS = 5


def daily_plan() -> Plan:
    """Return the plan of every mystery of the day."""
    return lab.evaluate(NETWORK, lab.load_job(JOB, n_stages=len(STAGES), n_replicas=len(STAGES[0])), stages=STAGES)


def daily_secret(day: date) -> Secret:
    """Return the link that is slow on a day. All links of the plan take turns in a random order, which differs in each
    round."""
    links = daily_links()
    turn, at = divmod(day.toordinal(), len(links))
    order, before = (np.random.default_rng(number).permutation(len(links)) for number in (turn, turn - 1))
    if at < 2 and order[0] == before[-1]:  # else a link would be slow on two days running
        order[:2] = order[1::-1]
    return Secret("link", links[order[at]], FACTOR)


def daily_links() -> list[str]:
    """Return the names of all links that carry messages, sorted: hops in both directions, and links between
    replicas."""
    hops = [(a, b) for here, there in itertools.pairwise(STAGES) for a, b in zip(here, there, strict=True)]
    replicas = [(a, b) for stage in STAGES for a in stage for b in stage if a < b]
    return sorted(LINK_SEPARATOR.join(ends) for one in (*hops, *replicas) for ends in (one, one[::-1]))


def daily_state() -> WorkspaceState:
    """Return the state of the lab in which the mystery is played."""
    plan = daily_plan()
    return WorkspaceState(topology=plan.topology, job=plan.job, plan=plan, schedule=SCHEDULE, pane="run")


def title_of(day: date) -> str:
    return f"dtfm_lab mystery {day.isoformat()}"
