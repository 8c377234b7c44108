"""The order of events: devices come and leave in turns, at one instant too."""

import numpy as np

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray


def in_turns(time_s: FloatArray, device: IntArray, comes: BoolArray) -> tuple[IntArray, int | None]:
    """Events in order, and the first at which a device comes while it is there, or leaves while it is not; None where
    there is none.

    At one instant those who were there leave, then others come; who both comes and leaves does so in the only order
    that can be. In whatever order the events are given, they come out in the same.
    """
    if not len(device):
        return np.arange(0), None
    by_device = np.lexsort((comes, time_s, device))
    of, at_s, coming = device[by_device], time_s[by_device], comes[by_device]
    is_new = np.append(True, of[1:] != of[:-1])
    # of the events of one device at one instant, of which those that leave stand first
    begins = np.flatnonzero(is_new | np.append(True, at_s[1:] != at_s[:-1]))
    sizes = np.diff(np.append(begins, len(of)))
    n_leave = np.add.reduceat(~coming, begins, dtype=np.int64)
    net = sizes - 2 * n_leave
    total, firsts = np.cumsum(net), np.flatnonzero(is_new[begins])
    there = total - np.repeat((total - net)[firsts], np.diff(np.append(firsts, len(begins))))
    was_there = np.repeat(there - net == 1, sizes)
    nth = np.arange(len(of)) - np.repeat(begins, sizes) - np.where(coming, np.repeat(n_leave, sizes), 0)
    turn = 2 * nth + (coming == was_there)
    order = by_device[np.lexsort((coming, turn, at_s))]
    wrong = np.flatnonzero((there < 0) | (there > 1))
    if not len(wrong):
        return order, None
    first = wrong[np.argmin(at_s[begins[wrong]])]
    return order, int(by_device[begins[first] + (sizes[first] - 1 if there[first] > 1 else 0)])


def checked_order(
    name: str, devices: tuple[str, ...], end_s: float, time_s: FloatArray, device: IntArray, comes: BoolArray
) -> IntArray:
    """The events in order. Raises TraceError, with the availability's name, for any that cannot be."""
    if not time_s.shape == device.shape == comes.shape or time_s.ndim != 1:
        raise TraceError(
            f"{name}: {time_s.size} times, {device.size} devices and {comes.size} kinds of events; "
            "wanted as many of each"
        )
    if (stray := next((each for each in devices if not isinstance(each, str)), None)) is not None:
        raise TraceError(f"{name}: a device is named {shortened(stray)}; wanted text")
    if len(set(devices)) < len(devices):
        twice = next(each for at, each in enumerate(devices) if each in devices[:at])
        raise TraceError(f"{name}: device {twice} stands twice in the list; wanted each once")
    outside = ~((time_s >= 0) & (time_s <= end_s))
    if outside.any():
        raise TraceError(f"{name}: an event at {time_s[outside][0]:g} s; wanted 0 to the end at {end_s:g} s")
    unknown = (device < 0) | (device >= len(devices))
    if unknown.any():
        raise TraceError(
            f"{name}: an event names device {device[unknown][0]}; wanted 0 to {len(devices) - 1}, "
            "an index of the devices"
        )
    order, wrong = in_turns(time_s, device, comes)
    if wrong is not None:
        who, when = devices[int(device[wrong])], f"{time_s[wrong]:g} s"
        if comes[wrong]:
            raise TraceError(f"{name}: {who} comes at {when} while it is there; wanted it to leave before")
        raise TraceError(f"{name}: {who} leaves at {when} while it is not there; wanted it to come before")
    return order
