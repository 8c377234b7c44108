"""Sailor's measured iterations on GH200 and on three kinds of GPU, predicted from its own profiles and link curves."""

import math
from collections.abc import Iterator, Sequence

from dtfm_lab.domain.units import GB, by_key
from dtfm_lab.extensions.published import sailor_memory
from dtfm_lab.extensions.published.calibration import leave_one_out
from dtfm_lab.extensions.published.row import Evidence, Row, document
from dtfm_lab.extensions.published.sailor_records import (
    ASSUMPTIONS,
    Document,
    Record,
    document_of,
    predicted_s,
    shared_nics,
)
from dtfm_lab.extensions.published.sources import published

ONE_FACTOR = ", one factor"
COUNTED = ", framework counted by its code"
FRAMEWORK = "5 GB of framework on every GPU, as Sailor's own predictions hold"
OF_OTHERS = (
    "CUDA's context and buffers of each communicator of its code, as large as others measured them "
    "(looked up after these rows were known, none fitted to them)"
)
ONE_KIND = "GH200"
"""Group of the rows with only GH200s, which the records call GH-96."""
SEVERAL_KINDS = "three kinds of GPU"
"""Group of the rows with more than one kind of GPU."""


@published("sailor")
def sailor() -> Iterator[Row]:
    """Yield iterations of GPT-Neo on GH200 (without a fit, and with one fitted factor) and of OPT on three kinds of GPU
    (without a fit), and the memory of both."""
    yield from rows_of(packaged())


def packaged() -> Document:
    """Return the packaged records."""
    return document_of(document("sailor.json"), "sailor.json")


def rows_of(records: Document) -> Iterator[Row]:
    """Yield the rows of each record: its iteration, its memory, and its iteration with a fitted factor.

    Memory is predicted twice, if it was measured and the model is known: with Sailor's constant for the framework, and
    with the framework's bytes counted from its code.

    The factor is fitted to the other records of the group. The group must have at least three, with GPUs of one kind.
    Sailor's predictions get their own factor in the same way.

    These records' curves and the packaged ones show whether hosts share a NIC. Raises FileError for a record that
    cannot be predicted.
    """
    sharing = shared_nics([*packaged().rows, *records.rows])
    seconds = [predicted_s(record, records.message_bytes, sharing) for record in records.rows]
    for record, predicted in zip(records.rows, seconds, strict=True):
        yield _row(record, predicted, records.rows, sharing)
        if record.measured_memory_bytes and (held := sailor_memory.reserved_bytes(record)) is not None:
            whole = held.max() + sailor_memory.FRAMEWORK_BYTES
            yield _memory_row(record, record.measured_memory_bytes, whole, records.rows)
            framework = [sailor_memory.framework_bytes(record, stage) for stage in range(record.n_stages)]
            counted = (held + framework).max()
            yield _memory_row(record, record.measured_memory_bytes, counted, records.rows, COUNTED)
    # One factor for GPUs of one kind; mixed ones have no common factor.
    both = [one for one in zip(records.rows, seconds, strict=True) if len({d.gpu for d in one[0].devices}) == 1]
    for group, members in by_key((_group(record), (record, predicted)) for record, predicted in both).items():
        # With only two rows, each fit would rest on a single row.
        if len(members) < 3:
            continue
        factors = leave_one_out([record.measured_s / predicted for record, predicted in members])
        theirs_s = [record.sailor_predicts_iteration_s for record, _ in members]
        known = [record.measured_s / (s or math.nan) for (record, _), s in zip(members, theirs_s, strict=True)]
        their_factors = leave_one_out(known)
        for (record, predicted), factor, their_s, their_factor in zip(
            members, factors, theirs_s, their_factors, strict=True
        ):
            yield Row(
                group=group + ONE_FACTOR,
                setting=record.case + ONE_FACTOR,
                quantity="iteration",
                unit="s",
                published=record.measured_s,
                predicted=predicted * factor,
                theirs=None if their_s is None or math.isnan(their_factor) else their_s * their_factor,
                evidence=Evidence.LEAVE_ONE_OUT,
                assumptions=ASSUMPTIONS,
                fitted=f"factor {factor:.4f}, the median of the other {len(members) - 1} rows of {group}",
                note=_suspicion(record, records.rows),
            )


def _row(record: Record, predicted: float, records: Sequence[Record], sharing: set[str]) -> Row:
    nics = "one NIC per host" if {d.gpu for d in record.devices} & sharing else "one NIC per GPU"
    lacking = sailor_memory.unknown_because(record) if record.measured_memory_bytes else ""
    return Row(
        group=_group(record),
        setting=record.case,
        quantity="iteration",
        unit="s",
        published=record.measured_s,
        predicted=predicted,
        theirs=record.sailor_predicts_iteration_s,
        evidence=Evidence.PROFILED,
        assumptions=(*ASSUMPTIONS, nics),
        note="; ".join(filter(None, [_suspicion(record, records), lacking])),
    )


def _memory_row(
    record: Record, measured_bytes: float, held_bytes: float, records: Sequence[Record], how: str = ""
) -> Row:
    theirs = record.sailor_predicts_memory_bytes
    return Row(
        group=_group(record) + how,
        setting=record.case + how,
        quantity="memory",
        unit="GB",
        published=measured_bytes / GB,
        predicted=held_bytes / GB,
        theirs=None if theirs is None else theirs / GB,
        evidence=Evidence.TRANSFERRED if how else Evidence.PROFILED,
        assumptions=(*sailor_memory.ASSUMPTIONS, OF_OTHERS if how else FRAMEWORK),
        note=_suspicion(record, records),
    )


def _group(record: Record) -> str:
    """Return the name of a record's group. Records with one kind of GPU are grouped by kind. All others are in one
    group."""
    gpus = {device.gpu for device in record.devices}
    if gpus == {"GH-96"}:
        return ONE_KIND
    return SEVERAL_KINDS if len(gpus) > 1 else gpus.pop()


def _suspicion(record: Record, records: Sequence[Record]) -> str:
    """Say why a record is suspect; empty if it is not."""
    for other in records:
        measured = (record.measured_iteration_s, record.measured_synchronisation_s)
        same = measured == (other.measured_iteration_s, other.measured_synchronisation_s)
        if other is not record and same and record.n_replicas == 1 < other.n_replicas:
            return (
                f"suspect record: equal to {other.case} to the last digit, with {measured[1]:g} s of synchronisation "
                f"for a single replica"
            )
    return ""
