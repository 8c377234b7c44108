"""A run emits events while it goes on."""

from __future__ import annotations

import asyncio

from run_helpers import small_plan

import dtfm_lab as lab

TOLD_OFTEN = ("spans", "parameters", "listening", "calibrating")


def test_events_come_as_an_async_stream_from_the_first_to_the_last() -> None:
    async def collect() -> tuple[list[dict], list[dict]]:
        run = lab.start(small_plan(2, 1), iterations=3)
        seen = []
        async for event in run.events():
            seen.append(event)
            if event["event"] == "iteration":  # losses and context are there while it runs
                assert len(run.losses) > event["iteration"]
                assert lab.simulate(small_plan(2, 1), like=run.context()).context.clock == "virtual"
        return seen, [event async for event in run.events()]  # a late listener gets all events

    seen, late = asyncio.run(collect())
    assert seen == late
    names = [event["event"] for event in seen if event["event"] not in TOLD_OFTEN]
    assert names == ["starting", "ready", "profile", "iteration", "iteration", "iteration", "held_out", "done"]
    assert [event["workers"] for event in seen if event["event"] == "listening"] == [1, 2]
    profiled = [(event["done"], event["total"]) for event in seen if event["event"] == "calibrating"]
    assert [done for done, _ in profiled] == list(range(len(profiled)))
    assert profiled[-1][0] < profiled[-1][1]
    rows = sum(len(event["rows"]) for event in seen if event["event"] == "spans")
    assert rows == 3 * len(lab.simulate(small_plan(2, 1)))
