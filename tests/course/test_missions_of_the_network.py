"""Missions about latency and bandwidth: what wins them, and what does not."""

import numpy as np
from mission_cases import READERS, assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab


def test_half_and_half():
    assert_won_by_its_answer("half-and-half")
    right = worked_answer("half-and-half", READERS[0])
    assert_not_won("half-and-half", right * 8, because="bits")
    assert_not_won("half-and-half", right * 1000, because="milliseconds")
    assert_not_won("half-and-half", right / 1e6, because="megabytes")
    assert_not_won("half-and-half", right * 8 / 1e6, because="megabits")
    assert_not_won("half-and-half", right * 1.1, because="above")


def test_ring_by_hand():
    assert_won_by_its_answer("ring-by-hand")

    def half(n, n_bytes, latency_s, bandwidth):
        return (n - 1) * (latency_s + n_bytes / n / bandwidth)

    def one_latency(n, n_bytes, latency_s, bandwidth):
        return latency_s + 2 * (n - 1) * n_bytes / n / bandwidth

    def whole(n, n_bytes, latency_s, bandwidth):
        return 2 * (n - 1) * (latency_s + n_bytes / bandwidth)

    def in_bits(n, n_bytes, latency_s, bandwidth):
        return 2 * (n - 1) * (latency_s + 8 * n_bytes / n / bandwidth)

    assert_not_won("ring-by-hand", *[in_bits] * 5, because="no bits are left")
    assert_not_won("ring-by-hand", lambda *numbers: None, lambda *numbers: float("nan"), because="wanted a number")
    assert_not_won("ring-by-hand", half, because="come back")
    assert_not_won("ring-by-hand", whole, because="n-th part")
    assert_not_won("ring-by-hand", one_latency, lambda *numbers: 1.0, because="returned")
    assert_not_won("ring-by-hand", lambda n: n, because="raised TypeError")


def test_best_upgrade():
    assert_won_by_its_answer("best-upgrade")
    network = lab.missions.given("best-upgrade").plan.topology
    a, b = np.unravel_index(network.bandwidth_bytes_per_s.argmin(), (6, 6))
    assert_not_won("best-upgrade", [network.names[a], network.names[b]], because="slowest link")
    assert_not_won("best-upgrade", ["ada", "ada"], ["ada"], ["ada", "zoe"], [[], {}], because="wanted two of")
    right = set(worked_answer("best-upgrade"))
    pairs = [[a, b] for a in network.names for b in network.names if a < b and {a, b} != right]
    assert_not_won("best-upgrade", *pairs, because="another link saves more")


def test_mystery_link():
    assert_won_by_its_answer("mystery-link")
    source, target, gbps = worked_answer("mystery-link")
    plan = lab.missions.given("mystery-link").plan
    _, on_map = plan.topology.to_matrices()
    assert_not_won("mystery-link", [source, target, on_map.loc[source, target]], because="what the map says")
    assert_not_won("mystery-link", [target, source, gbps], because="other direction")
    rows = lab.simulate(plan).to_frame()
    slowest = rows.link[(rows.end_s - rows.start_s).where(rows.link != "").idxmax()].split(" -> ")
    if slowest != [source, target]:
        assert_not_won("mystery-link", [*slowest, gbps], because="as long as the map says")
    assert_not_won("mystery-link", [source, "zoe", gbps], [source, source, gbps], [0, 1, gbps], because="wanted two of")
    used = set(rows.link)
    unused = next([a, b] for a in on_map.index for b in on_map.index if a != b and f"{a} -> {b}" not in used)
    assert_not_won("mystery-link", [*unused, gbps], because="nothing goes from")
    assert_not_won("mystery-link", [source, target], [source, target, "slow"], [[], {}, 1.0])
