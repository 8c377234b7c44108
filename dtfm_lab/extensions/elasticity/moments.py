"""The instants at which a run learns something: devices leave, become ready, or announce that they will leave."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dtfm_lab.extensions.elasticity.availability import Availability


class Moment(NamedTuple):
    """An instant at which devices leave, become ready to serve, or announce that they will leave."""

    time_s: float
    left: frozenset[int]
    ready: frozenset[int]
    leaving: frozenset[int]


LEFT, READY, LEAVING = range(3)
NOBODY: frozenset[int] = frozenset()


def moments(availability: Availability, start_s: float, notice_s: float = 0.0) -> Iterator[Moment]:
    """Yield the instants at which something changes, in order of time.

    A device is ready ``start_s`` after it arrives, if it is still online. It announces its departure ``notice_s`` in
    advance, or when it becomes ready if that is later.
    """
    n = len(availability.time_s)
    by_device = np.lexsort((np.arange(n), availability.device))
    ordered = availability.device[by_device]
    leaves = np.full(n, np.inf)
    following = np.flatnonzero(np.append(ordered[1:] == ordered[:-1], False)[:n])
    # Each arrival's own departure, to leave out devices that go before they are ready.
    leaves[by_device[following]] = availability.time_s[by_device[following + 1]]
    comes, time_s, end_s = availability.comes, availability.time_s, availability.end_s
    ready_s = time_s + start_s
    ready = np.flatnonzero(comes & (ready_s < np.minimum(leaves, end_s)))
    gone = np.flatnonzero(~comes & (time_s < end_s))
    noticed = ready[leaves[ready] < np.inf] if notice_s > 0 else ready[:0]
    # A notice before the device is ready would come too early to be of use.
    notice = np.maximum(leaves[noticed] - notice_s, ready_s[noticed])
    when = np.concatenate([time_s[gone], ready_s[ready], notice])
    who = np.concatenate([availability.device[each] for each in (gone, ready, noticed)]).tolist()
    kind = np.repeat([LEFT, READY, LEAVING], [len(gone), len(ready), len(noticed)]).tolist()
    order = np.argsort(when, kind="stable")
    order = order[when[order] < end_s]
    sorted_s, positions = when[order].tolist(), order.tolist()
    begins = np.flatnonzero(np.diff(when[order], prepend=-np.inf) > 0).tolist()
    alone = [frozenset((device,)) for device in range(len(availability.devices))]
    for begin, end in pairwise([*begins, len(positions)]):
        if end - begin == 1:  # the common case, for which grouping would be slow
            only, which = alone[who[positions[begin]]], kind[positions[begin]]
            yield Moment(
                sorted_s[begin],
                only if which == LEFT else NOBODY,
                only if which == READY else NOBODY,
                only if which == LEAVING else NOBODY,
            )
            continue
        groups = tuple(
            frozenset(who[i] for i in positions[begin:end] if kind[i] == each) for each in (LEFT, READY, LEAVING)
        )
        yield Moment(sorted_s[begin], *groups)
