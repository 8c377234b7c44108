"""Training over process groups of torch.distributed equals training in memory, and no program hangs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from run_helpers import small_plan, spec_of
from test_recovery import after_iteration, assert_as_undisturbed, run_with
from workers_as_threads import over_groups, train

from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.group_pairs import GlooBackend, GroupCarrier
from dtfm_lab.runtime.worker.processors import CpuProcessor
from dtfm_lab.runtime.worker.transport import PeerListener, Transport

MODEL = gpt(name="smallest", n_layers=4, d_model=16, n_heads=2, seq_len=8, vocab_size=256, tied=False)


def plan_of(n_stages: int = 2, n_replicas: int = 3, **fields: object) -> Plan:
    return small_plan(n_stages, n_replicas, **({"model": MODEL, "global_batch": 6} | fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"dtype": "fp32", "compression": "int8", "gradient_compression": "int8"},
        {"synchronise_every": 2, "fragments": 2},
        {"synchronise_every": 2, "fragments": 2, "fragment_delay": 1},
    ],
    ids=["compressed", "fragments", "late fragments"],
)
def test_what_rounds_or_comes_late_trains_bit_for_bit_what_it_trains_in_memory(fields: dict[str, object]) -> None:
    plan = plan_of(**fields)
    wanted, found = train(plan, "1f1b", 4), train(plan, "1f1b", 4, connect=over_groups)
    assert found.losses == wanted.losses
    for name, parameter in wanted.parameters().items():
        assert np.array_equal(found.parameters()[name], parameter), name


N_WORKERS = 3
PATIENCE_S = 120.0
"""Far more than any program needs; one that hangs fails."""


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[list[tuple[str, int, int]]], list[int]]:
    """By worker, (send or receive, message, other end) in an order that some order of all events allows; sizes.

    Messages of one pair may be waited for in another order than they are sent in, and sizes exceed what sockets buffer.
    """
    ends = st.permutations(range(N_WORKERS)).map(lambda ranks: (ranks[0], ranks[1]))
    messages = draw(st.lists(ends, min_size=1, max_size=12))
    sizes = [draw(st.sampled_from([0, 1, 1_000, 300_000, 3_000_000])) for _ in messages]
    events = draw(st.permutations([number for number in range(len(messages)) for _ in range(2)]))
    of_worker: list[list[tuple[str, int, int]]] = [[] for _ in range(N_WORKERS)]
    sent = set()
    for number in events:
        source, target = messages[number]
        if number in sent:
            of_worker[target].append(("receive", number, source))
        else:
            sent.add(number)
            of_worker[source].append(("send", number, target))
    return of_worker, sizes


@settings(max_examples=25)
@given(programs())
def test_no_program_that_an_order_of_events_allows_deadlocks_groups(
    drawn: tuple[list[list[tuple[str, int, int]]], list[int]],
) -> None:
    of_worker, sizes = drawn
    listeners = [PeerListener("127.0.0.1", "0" * 64) for _ in range(N_WORKERS)]
    transports = []
    for rank in range(N_WORKERS):
        targets = {other: listeners[other].address for other in range(N_WORKERS) if other != rank}
        carrier = GroupCarrier(GlooBackend("127.0.0.1", CpuProcessor()))
        transports.append(Transport(listeners[rank], "0" * 64, 1, rank, [*targets], targets, None, carrier))

    def play(rank: int) -> None:
        transport = transports[rank]
        transport.wait_connected()
        for what, number, other in of_worker[rank]:
            key = number, Action(0, Kind.RECV_P)
            if what == "send":
                transport.send(other, *key, torch.full((sizes[number],), number, dtype=torch.uint8))
            else:
                content = transport.receive(*key).content
                assert content.numel() == sizes[number]
                assert bool((content == number).all())
        transport.flush()

    with ThreadPoolExecutor(N_WORKERS) as pool:
        playing = [pool.submit(play, rank) for rank in range(N_WORKERS)]
        try:
            for each in playing:
                each.result(PATIENCE_S)
        finally:
            for transport in transports:
                transport.abort()


PLAN = small_plan(model=MODEL, global_batch=4, dtype="fp32")


def test_a_worker_that_is_killed_is_replaced_and_no_loss_differs_from_threads() -> None:
    run = run_with(PLAN, after_iteration(1, lambda run: run.kill("device-2")), schedule="1f1b", carrier="groups")
    (fault,) = run.faults
    assert fault.state_from == "device-3"
    assert_as_undisturbed(run)


def test_sockets_are_used_but_between_gpus_where_nothing_is_asked_for() -> None:
    spec = partial(spec_of, PLAN)
    assert not spec().uses_groups
    assert spec(carrier="groups").uses_groups
    assert not spec(carrier="groups").uses_nccl
    assert spec(runs_on="cuda", clock="real").uses_nccl
    assert not spec(runs_on="cuda", clock="real", carrier="sockets").uses_groups
    assert not spec(runs_on="cuda").uses_groups
    assert RunSpec.from_line(spec(carrier="groups").to_line()).carrier == "groups"
