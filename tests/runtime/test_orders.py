"""What is ordered of workers: every order is read back as it was sent, and nothing else is taken for one."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtfm_lab.runtime.protocol import orders

TRAIN = st.builds(
    orders.Train,
    specified_s=st.lists(st.tuples(st.integers(0, 9), st.just("F"), st.floats(0, 9)).map(list)),
    time_scale=st.floats(0.1, 9),
    turns=st.just([[[0, 1]], []]),
)
JOIN = st.builds(
    orders.Join,
    addresses=st.just([["127.0.0.1", 4711]]),
    version=st.none() | st.integers(0, 9),
    checkpoint=st.none() | st.text(),
    train=st.none() | TRAIN,
    takes_state_from=st.none() | st.integers(0, 9),
    gives_state_to=st.lists(st.integers(0, 9)),
)
OTHERS = [st.from_type(kind) for kind in get_args(orders.Order) if kind not in (orders.Train, orders.Join)]


@given(st.one_of(TRAIN, JOIN, *OTHERS), st.integers(1, 99))
def test_an_order_is_read_as_it_was_sent(order, epoch):
    assert orders.from_line(orders.to_line(order, epoch)) == (order, epoch)
    assert orders.from_line(orders.to_line(order)) == (order, 0)


def test_every_order_has_a_name_of_its_own():
    assert set(orders.KINDS.values()) == set(get_args(orders.Order))


@pytest.mark.parametrize(
    "line",
    [b'{"do": "dance"}', b"{}", b'{"do": "slow"}', b'{"do": "slow", "factor": 2, "by": 3}', b"no JSON"],
    ids=["unknown", "nameless", "a value missing", "a value too many", "no JSON"],
)
def test_what_is_no_order_is_refused(line):
    with pytest.raises(ValueError, match=r"not an order|Expecting value"):
        orders.from_line(line)
