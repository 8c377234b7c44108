"""How a file of missions is tested: the worked answer wins for two readers, and wrong answers do not."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import dtfm_lab as lab
from dtfm_lab.course import missions

READERS = ("ada", "barbara")


@cache
def worked_answer(name: str, reader: str = READERS[0]) -> Any:
    """What the worked answer of a mission comes to, for a reader; computed once."""
    before = os.environ.get("DTFM_LAB_READER")
    os.environ["DTFM_LAB_READER"] = reader
    try:
        names: dict[str, Any] = {"lab": lab, "given": lab.missions.given(name)}
        exec(missions[name].answer, names)
        return names["answer"]
    finally:
        os.environ.pop("DTFM_LAB_READER")
        if before is not None:
            os.environ["DTFM_LAB_READER"] = before


def assert_won_by_its_answer(name: str) -> Any:
    """The worked answer wins; where readers are given different things, only that of the reader's own does.

    Returns the first reader's, so that what took a run is not run again.
    """
    mission = missions[name]
    own = {reader: worked_answer(name, reader) for reader in (READERS if mission.give else READERS[:1])}
    for reader, answer in own.items():
        assert (verdict := mission.verdict(answer, reader)), verdict
    if mission.give:
        ada, barbara = READERS
        assert not mission.verdict(own[ada], barbara), "a copied answer won"
    for nothing in (None, "", [], {}, True):
        assert not mission.verdict(nothing, READERS[0]), f"{nothing!r} won"
    return own[READERS[0]]


def assert_not_won(name: str, *wrong: Any, reader: str = READERS[0], because: str = "") -> None:
    """None of these answers wins, and the reason given holds the words."""
    for answer in wrong:
        verdict = missions[name].verdict(answer, reader)
        assert not verdict.passed, f"{answer!r} won: {verdict.reason}"
        assert because in verdict.reason, verdict.reason
