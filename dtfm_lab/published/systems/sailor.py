"""Sailor's measured iterations on GH200 and on three kinds of GPU, predicted from its own profiles and link curves."""

import math
from collections.abc import Iterator, Sequence

from dtfm_lab.domain.units import GB
from dtfm_lab.published import sailor_memory
from dtfm_lab.published.calibration import leave_one_out
from dtfm_lab.published.row import Band, KnownMiss, Row
from dtfm_lab.published.sailor_records import ASSUMPTIONS, Document, Record, document_of, predicted_s, shared_cards
from dtfm_lab.published.sources import published
from dtfm_lab.published.tables import document

ONE_FACTOR = ", one factor"
ONE_KIND, SEVERAL_KINDS = "GH200", "three kinds of GPU"
WITHOUT_PIPELINE = Band.share(0.04)
WITH_PIPELINE = Band.share(0.10)
WITH_FACTOR = Band.share(0.03)
MEMORY = Band.share(0.20)
RENDEZVOUS = (
    "a micro-batch takes the last stage's passes and both of its messages, to 1 %: the receive waits for the passes, "
    "too, while we let it be posted beforehand"
)
HOLDS_LESS = (
    "28.5 GB, where the same stages in more replicas hold 37.3 GB; Sailor's prediction is as far from its others"
)
TWO_GPUS = (
    "less than each of eight GPUs that share the same stages is said to hold; Sailor's own is 3.4 to 3.9 times it"
)
IN_FLIGHT = "of micro-batches of four sequences all rows are 13 % or more too large, and here most are in flight"
AS_SAILOR = "Sailor's own prediction of this row is as far from those of the others"


@published(
    "sailor",
    title="Sailor, measured iterations beside its simulator's",
    cite="Strati et al., SOSP 2025; measurements, profiles and link fits of its repository",
    licence="MIT",
    url="https://github.com/eth-easl/sailor",
    goals={ONE_KIND: 0.071, ONE_KIND + ONE_FACTOR: 0.015, SEVERAL_KINDS: 0.06},
    known_misses={
        ("mit/N2/N2_D1", "iteration"): KnownMiss(0.854, RENDEZVOUS),
        (f"GPT-NEO/N4/N4_D2{ONE_FACTOR}", "iteration"): KnownMiss(1.061, AS_SAILOR),
        ("GPT-NEO/N64/N64_D8", "memory"): KnownMiss(1.266, IN_FLIGHT),
        ("GPT-NEO/N8/N8_D2", "memory"): KnownMiss(1.529, HOLDS_LESS),
        ("mit/N2/N2_D1", "memory"): KnownMiss(4.932, TWO_GPUS),
        ("mit/N2/N2_D2", "memory"): KnownMiss(4.076, TWO_GPUS),
    },
)
def sailor() -> Iterator[Row]:
    """GPT-Neo on GH200 without a fit and with one factor, OPT on three kinds of GPU without; the memory of both."""
    yield from rows_of(packaged())


def packaged() -> Document:
    """The records that come with the lab."""
    return document_of(document("sailor.json"), "sailor.json")


def rows_of(records: Document) -> Iterator[Row]:
    """A row for each record, one of its memory where its model is known, and one with a factor.

    The factor is fitted to the other records of its group, where this has three or more and all GPUs are of one kind;
    Sailor's predictions get a factor of their own likewise.

    Whether hosts share a card is told from these records' curves and the packaged ones. Raises FileError for a record
    that cannot be predicted.
    """
    sharing = shared_cards([*packaged().rows, *records.rows])
    seconds = [predicted_s(record, records.message_bytes, sharing) for record in records.rows]
    for record, predicted in zip(records.rows, seconds, strict=True):
        yield _row(record, predicted, records.rows, sharing)
        if record.measured_memory_bytes and (held := sailor_memory.peak_bytes(record)) is not None:
            yield _memory_row(record, record.measured_memory_bytes, held, records.rows)
    by_group: dict[str, list[tuple[Record, float]]] = {}
    for record, predicted in zip(records.rows, seconds, strict=True):
        if len({device.gpu for device in record.devices}) == 1:
            by_group.setdefault(_group(record), []).append((record, predicted))
    for group, members in by_group.items():
        if len(members) < 3:
            continue
        factors = leave_one_out([record.measured_iteration_s / predicted for record, predicted in members])
        theirs_s = [record.sailor_predicts_iteration_s for record, _ in members]
        known = [
            record.measured_iteration_s / (s or math.nan) for (record, _), s in zip(members, theirs_s, strict=True)
        ]
        their_factors = leave_one_out(known)
        for (record, predicted), factor, their_s, their_factor in zip(
            members, factors, theirs_s, their_factors, strict=True
        ):
            yield Row(
                group=group + ONE_FACTOR,
                setting=record.case + ONE_FACTOR,
                quantity="iteration",
                unit="s",
                published=record.measured_iteration_s,
                predicted=predicted * factor,
                theirs=None if their_s is None or math.isnan(their_factor) else their_s * their_factor,
                band=WITH_FACTOR,
                assumptions=ASSUMPTIONS,
                fitted=f"factor {factor:.4f}, the median of the other {len(members) - 1} rows of {group}",
                note=_suspicion(record, records.rows),
            )


def _row(record: Record, predicted: float, records: Sequence[Record], sharing: set[str]) -> Row:
    cards = "one card a host" if {d.gpu for d in record.devices} & sharing else "a card of its own for each GPU"
    return Row(
        group=_group(record),
        setting=record.case,
        quantity="iteration",
        unit="s",
        published=record.measured_iteration_s,
        predicted=predicted,
        theirs=record.sailor_predicts_iteration_s,
        band=WITH_PIPELINE if record.n_stages > 1 else WITHOUT_PIPELINE,
        assumptions=(*ASSUMPTIONS, cards),
        note=_suspicion(record, records),
    )


def _memory_row(record: Record, measured_bytes: float, held_bytes: float, records: Sequence[Record]) -> Row:
    theirs = record.sailor_predicts_memory_bytes
    return Row(
        group=_group(record),
        setting=record.case,
        quantity="memory",
        unit="GB",
        published=measured_bytes / GB,
        predicted=held_bytes / GB,
        theirs=None if theirs is None else theirs / GB,
        band=MEMORY,
        assumptions=sailor_memory.ASSUMPTIONS,
        note=_suspicion(record, records),
    )


def _group(record: Record) -> str:
    """GPUs of one kind by their name, as several kinds share a group."""
    gpus = {device.gpu for device in record.devices}
    if gpus == {"GH-96"}:
        return ONE_KIND
    return SEVERAL_KINDS if len(gpus) > 1 else gpus.pop()


def _suspicion(record: Record, records: Sequence[Record]) -> str:
    """Why a record is suspect; empty where it is not."""
    for other in records:
        measured = (record.measured_iteration_s, record.measured_synchronisation_s)
        same = measured == (other.measured_iteration_s, other.measured_synchronisation_s)
        if other is not record and same and record.n_replicas == 1 < other.n_replicas:
            return (
                f"suspect record: equal to {other.case} to the last digit, with {measured[1]:g} s of synchronisation "
                f"for a single replica"
            )
    return ""
