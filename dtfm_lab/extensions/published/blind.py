"""Blind tests: predict rows whose measurements we do not have, seal the predictions with a hash, and compare them
later.

The owner of the measurements provides the rows without them. The sealed file holds every prediction, a hash of
the rows, and the software versions. Its hash can be published before the measurements. Opening the file checks
the hash first.
"""

import hashlib
import json
import math
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.units import GB
from dtfm_lab.extensions.published import nanotron, sailor_memory, sailor_records
from dtfm_lab.extensions.published import own as own_files
from dtfm_lab.extensions.published.ledger import Ledger
from dtfm_lab.extensions.published.own_predictions import (
    assumptions_of,
    evidence_of,
    located_plan,
    predicted_with_interval,
)
from dtfm_lab.extensions.published.row import BY_RULE, Band, Evidence, Row
from dtfm_lab.extensions.published.sources import Source
from dtfm_lab.extensions.published.systems import sailor
from dtfm_lab.files.reading import read_mapping, read_text, require_version, write_text

KEY = "dtfm_sealed"
VERSIONED = ("dtfm-lab", "numpy", "scipy")
MOST_NAMED = 5
"""Maximum number of rows that a sentence names."""
Prediction = dict[str, Any]
Key = tuple[str, str]
"""Identifies a row: its setting and its quantity."""


def seal(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the sealed predictions of a file's rows as plain values, ready for JSON.

    The file has rows in the format of ``own`` without ``published``, or records in Sailor's format, or configurations
    in the format of ``nanotron.SWEEP``. None of them has measurements. Raises FileError for a row that holds a
    measurement, occurs twice, or cannot be predicted.
    """
    file = _file(path)
    data = own_files.document_of(file)
    if sailor_records.is_document(data):
        predictions = list(_of_records(sailor_records.document_of(data, file.name)))
    elif nanotron.is_sweep(file):
        predictions = list(_of_sweep(file))
    else:
        predictions = list(_of_rows(own_files.read_rows(file, blind=True)))
    # Two predictions of one row would let their author choose the better one.
    _refuse_doubles(map(_key, predictions), file)
    content = {
        "rows": file.name,
        # By the rows' hash, anyone can see later whether they were changed.
        "rows_sha256": hashlib.sha256(read_text(file).encode()).hexdigest(),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in VERSIONED} | {"python": platform.python_version()},
        "predictions": predictions,
    }
    return {KEY: 1, "sha256": _hash(content), "content": content}


def save_sealed(sealed: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write sealed predictions as JSON."""
    return write_text(path, json.dumps(sealed, indent=1) + "\n")


def opened(path: str | os.PathLike[str], measured: str | os.PathLike[str]) -> Ledger:
    """Return the ledger of sealed predictions and the measurements of the same rows.

    ``measured`` is a CSV or JSON file with ``setting``, ``quantity`` and ``published``, or records in Sailor's format,
    or a sweep with measurements. A ``unit`` must match the sealed prediction's unit. The title of the ledger's source
    says which rows were not measured, and which were not sealed. Raises FileError if the sealed file does not match its
    hash, or if no row was measured.
    """
    file, results = _file(path), _file(measured)
    sealed = read_mapping(file)
    require_version(sealed, KEY, file.name)
    content = sealed.get("content")
    # A prediction that could be edited after the measurement would prove nothing.
    if not isinstance(content, dict) or sealed.get("sha256") != _hash(content):
        raise FileError(f"{file.name} is not what was sealed: its content has another hash; wanted the file as written")
    predictions = {_key(one): one for one in content["predictions"]}
    numbers = _measured(results, {key: one["unit"] for key, one in predictions.items()})
    known = [one for key, one in predictions.items() if key in numbers]
    if not known:
        raise FileError(f"{results.name} measures no row of {file.name}; wanted the same settings and quantities")
    rows = partial(_rows, known, numbers)
    said = (
        f"Sealed on {content['made_at']}, sha256 {sealed['sha256'][:12]}",
        f"{len(known)} of {len(predictions)} sealed predictions measured",
        *_said("not measured", [key for key in predictions if key not in numbers]),
        *_said("measured, but not sealed", [key for key in numbers if key not in predictions]),
    )
    source = Source(name=file.name, title="; ".join(said), cite=results.name, licence="", rows=rows)
    return Ledger(tuple(source), (source,))


def _rows(predictions: Sequence[Prediction], numbers: dict[Key, float]) -> Iterator[Row]:
    for one in predictions:
        yield Row(
            group="blind",
            setting=one["setting"],
            quantity=one["quantity"],
            unit=one["unit"],
            published=numbers[one["setting"], one["quantity"]],
            predicted=one["predicted"],
            evidence=Evidence(one["class"]),
            band=Band(**one["band"]) if one.get("band") else BY_RULE,
            interval=None if one["interval"] is None else (one["interval"][0], one["interval"][1]),
            assumptions=("sealed before it was measured or told", *one["assumptions"]),
        )


def _of_rows(rows: Sequence[own_files.OwnRow]) -> Iterator[Prediction]:
    for row in rows:
        if row.fitted:
            raise FileError(f"{row.where}, column efficiency: fit, to what was not measured; wanted a share or nothing")
        plan = located_plan(row)
        value, interval = predicted_with_interval(row, plan, row.efficiency)
        said = assumptions_of(row, plan)
        one = _prediction(row.setting, row.quantity, row.unit, value, interval, evidence_of(row), said)
        searched = {} if row.listed or row.rank_map is not None else {"rank_map": list(plan.rank_map)}
        yield one | {"band": asdict(row.band)} | searched


def _of_sweep(file: Path) -> Iterator[Prediction]:
    for row in nanotron.read_sweep(file):
        # A prediction of a measured row would not be blind.
        if row.tokens_per_s_per_gpu is not None or row.peak_memory_bytes is not None or row.failed:
            raise FileError(
                f"{file.name}: {row.one.setting} holds a measurement; wanted none, to predict the row blind"
            )
        found = nanotron.predict(row.one)
        fitted = row.one.model in nanotron.FITTED
        evidence = Evidence.FITTED if fitted else Evidence.LEAVE_ONE_OUT
        said = ("constants of nanotron on this cluster are medians of the models 1B and 3B", *found.notes)
        low, high = (row.one.tokens_per_s_per_gpu(seconds) for seconds in reversed(found.interval_s))
        speed = found.tokens_per_s_per_gpu
        yield _prediction(row.one.setting, "throughput", "tokens/s a GPU", speed, (low, high), evidence, said)
        yield _prediction(row.one.setting, "memory", "GB", found.memory_bytes / GB, None, evidence, said)


def _of_records(document: sailor_records.Document) -> Iterator[Prediction]:
    sharing = sailor_records.shared_nics([*sailor.packaged().rows, *document.rows])
    for record in document.rows:
        if record.measured_iteration_s is not None or record.measured_memory_bytes is not None:
            raise FileError(f"{record.case}: holds a measurement; wanted none, to predict the record blind")
        seconds = sailor_records.predicted_s(record, document.message_bytes, sharing)
        assumed = (*sailor_records.ASSUMPTIONS, *filter(None, [sailor_memory.unknown_because(record)]))
        yield _prediction(record.case, "iteration", "s", seconds, None, Evidence.PROFILED, assumed)
        if (reserved := sailor_memory.reserved_bytes(record)) is not None:
            held = reserved.max() + sailor_memory.FRAMEWORK_BYTES
            kept = (*sailor_memory.ASSUMPTIONS, sailor.FRAMEWORK)
            yield _prediction(record.case, "memory", "GB", held / GB, None, Evidence.PROFILED, kept)


def _prediction(
    setting: str,
    quantity: str,
    unit: str,
    value: float,
    interval: tuple[float, float] | None,
    evidence: Evidence,
    assumptions: Sequence[str],
) -> Prediction:
    return {
        "setting": setting,
        "quantity": quantity,
        "unit": unit,
        "predicted": value,
        "interval": None if interval is None else list(interval),
        "class": str(evidence),
        "assumptions": list(assumptions),
    }


def _file(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise FileError(f"file is {shortened(path)}; wanted a path")
    return Path(path)


def _key(one: Prediction) -> Key:
    return one["setting"], one["quantity"]


def _said(what: str, keys: Sequence[Key]) -> list[str]:
    """Return a list with one part of a sentence: ``what``, and the names of the first of these rows. Empty without
    rows."""
    named = [f"{setting} {quantity}" for setting, quantity in keys[:MOST_NAMED]]
    more = [f"{len(keys) - MOST_NAMED} more"] if len(keys) > MOST_NAMED else []
    return [f"{what}: {', '.join(named + more)}"] if keys else []


def _refuse_doubles(keys: Iterable[Key], file: Path) -> None:
    for (setting, quantity), times in Counter(keys).items():
        if times > 1:
            raise FileError(f"{file.name}: {setting}, {quantity} stands {times} times; wanted it once")


def _refuse_unit(unit: str, sealed: str, where: str) -> None:
    if unit != sealed:
        raise FileError(f"{where}: {unit}; wanted {sealed or 'none'}, as sealed")


def _measured(file: Path, units: dict[Key, str]) -> dict[Key, float]:
    """Return measured numbers by setting and quantity, in the sealed units."""
    data = own_files.document_of(file)
    found: dict[Key, float] = {}
    if sailor_records.is_document(data):
        records = sailor_records.document_of(data, file.name).rows
        _refuse_doubles(((record.case, "iteration") for record in records), file)
        for record in records:
            if record.measured_iteration_s is not None:
                _refuse_unit("s", units.get((record.case, "iteration"), "s"), f"{record.case}, iteration")
                found[record.case, "iteration"] = record.measured_iteration_s
            if record.measured_memory_bytes is not None:
                _refuse_unit("GB", units.get((record.case, "memory"), "GB"), f"{record.case}, memory")
                found[record.case, "memory"] = record.measured_memory_bytes / GB
        return found
    if nanotron.is_sweep(file):
        for row in nanotron.read_sweep(file):
            if row.tokens_per_s_per_gpu is not None:
                found[row.one.setting, "throughput"] = row.tokens_per_s_per_gpu
            if row.peak_memory_bytes is not None:
                found[row.one.setting, "memory"] = row.peak_memory_bytes / GB
        return found
    keys: list[Key] = []
    for number, record_ in own_files.records(file):
        # The same columns as in your own rows, so that one file works for both.
        try:
            key = record_["setting"], record_["quantity"]
            value = float(record_["published"].replace(",", ""))
        except (KeyError, ValueError):
            raise FileError(
                f"{file.name}, row {number}: wanted setting, quantity and published, a number in the unit of the rows"
            ) from None
        if not 0 < value < math.inf:
            raise LabError(f"{file.name}, row {number}, column published: {value:g}; wanted a number above 0")
        if (unit := record_.get("unit")) is not None:
            _refuse_unit(unit, units.get(key, unit), f"{file.name}, row {number}, column unit")
        keys.append(key)
        found[key] = value
    _refuse_doubles(keys, file)
    return found


def _hash(content: dict[str, Any]) -> str:
    """Return the SHA-256 of the content as JSON without spaces, with sorted keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
