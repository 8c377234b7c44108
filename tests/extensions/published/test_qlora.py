"""Fine-tuning on two RTX 3090s: what is predicted, what does not fit, and what is left out."""

import numpy as np

from dtfm_lab.extensions.published.api import sources
from dtfm_lab.extensions.published.row import numbers
from dtfm_lab.extensions.published.systems.qlora import plan_of
from dtfm_lab.simulation import memory, simulate

LINES = {line["line"]: line for line in numbers("home_qlora.csv")}


def test_weights_in_the_hosts_memory_are_left_out_and_the_largest_would_not_fit():
    offloaded = [line for line in LINES.values() if line["cpu_offload"] == "True"]
    (omitted,) = [each for each in sources["fsdp-qlora"].omitted if "host's memory" in each.what]
    assert omitted.n == len(offloaded) == 2
    assert not any(memory(plan_of(line)).fits for line in offloaded)
    assert all(memory(plan_of(line)).fits for line in LINES.values() if line not in offloaded)


def test_a_faster_link_shortens_what_is_sharded():
    sharded, whole = LINES["45"], LINES["73"]
    slow, fast = (simulate(plan_of(sharded, link_bytes_per_s=speed)).iteration_s for speed in (3e9, 56e9))
    assert slow > 2 * fast
    slow, fast = (simulate(plan_of(whole, link_bytes_per_s=speed)).iteration_s for speed in (3e9, 56e9))
    assert slow < 1.1 * fast


def test_the_median_error_is_at_most_a_fifth():
    rows = list(sources["fsdp-qlora"])
    for quantity in ("iteration", "memory"):
        errors = [abs(row.ratio - 1) for row in rows if row.quantity == quantity]
        assert len(errors) == 11
        assert np.median(errors) <= 0.2
