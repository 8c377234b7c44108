"""Devices and the links between them.

A Topology holds devices and, for every ordered pair, latency and bandwidth. ``Links`` says when a message arrives.
"""

from dtfm_lab.domain.network.collectives import CollectiveSpeed
from dtfm_lab.domain.network.device import (
    HARDWARE,
    LONGEST_NAME,
    MOST_DEVICES,
    PAPERS_GPU,
    Device,
    MeasuredBlock,
    MeasuredGpu,
    as_number,
    check_count,
    check_text,
    hardware_fields,
    hardware_of,
    is_plain,
    known_gpu,
    nics_of,
    shortened,
    typical_price,
    variants_of,
)
from dtfm_lab.domain.network.estimate import BETWEEN, INSIDE, BandwidthEstimate
from dtfm_lab.domain.network.estimates import ENDS, at_their_ends, estimated, estimates_of
from dtfm_lab.domain.network.naming import count_words, counted_host, name_words, set_words, uneven_hosts
from dtfm_lab.domain.network.outgoing import OutgoingLinks, Passage
from dtfm_lab.domain.network.places import (
    Place,
    find_place,
    link_between,
    place_names,
)
from dtfm_lab.domain.network.streams import LINUX_WINDOW_BYTES, slow_start_s, streams_bandwidth
from dtfm_lab.domain.network.topology import (
    LARGEST,
    LINK_SPREAD,
    MOST_SPREAD,
    MOST_TIMES,
    QUEUEING,
    Links,
    Topology,
    check_sizes,
    hosts_among,
    is_shared,
    queues_of,
    segment_of,
)
