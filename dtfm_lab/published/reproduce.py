"""Publications, predicted anew: the ledger of some sources by name, of all, or of one's own file."""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.published import own as own_files
from dtfm_lab.published import sailor_records
from dtfm_lab.published.ledger import Ledger
from dtfm_lab.published.own_predictions import predict_rows
from dtfm_lab.published.row import Row
from dtfm_lab.published.sources import Source, sources
from dtfm_lab.published.systems import sailor


def reproduce(
    names: Iterable[str | Source] = (),
    *,
    own: str | os.PathLike[str] | None = None,
    progress: Callable[[Row], None] | None = None,
) -> Ledger:
    """The ledger of these sources, by name or as they are; of all where there is neither one nor an own file.

    ``progress`` is called with every row as it comes; Ctrl-C keeps the rows so far. Raises UnknownName for a source
    that is not known, and FileError for a file whose row cannot be read or predicted.
    """
    if isinstance(names, str | Source) or not isinstance(names, Iterable):
        raise LabError(f"sources are {shortened(names)}; wanted names or Sources in a list")
    given = list(names) or ([] if own is not None else list(sources))
    wanted = [_source(name) for name in given]
    wanted = list(dict.fromkeys(wanted))
    if own is not None:
        wanted.append(own_source(own))
    rows: list[Row] = []
    stopped = False
    try:
        for source in wanted:
            for row in source:
                rows.append(row)
                if progress is not None:
                    progress(row)
    except KeyboardInterrupt:
        if not rows:
            raise
        stopped = True
    return Ledger(tuple(rows), tuple(wanted), stopped)


def _source(name: object) -> Source:
    """A source by its name, or as it is. Raises LabError for what is neither, such as a list of names."""
    if isinstance(name, Source):
        return name
    if not isinstance(name, str):
        raise LabError(f"source is {shortened(name)}; wanted a name or a Source each, such as 'sailor', 'simumax'")
    return sources[name]


def own_source(path: str | os.PathLike[str]) -> Source:
    """A file of one's own as a source; it is read at once and predicted when its rows are asked for.

    It holds rows as ``own`` describes them, or records in Sailor's format, as the packaged ones are.
    """
    if not isinstance(path, str | os.PathLike):
        raise FileError(f"own is {shortened(path)}; wanted a path of a CSV or JSON file")
    name, data = Path(path).name, own_files.document_of(path)
    rows: Callable[[], Iterator[Row]]
    if sailor_records.is_document(data):
        rows = partial(sailor.rows_of, sailor_records.document_of(data, name))
    else:
        rows = partial(predict_rows, own_files.read_rows(path))
    return Source(name=name, title="A file of one's own", cite=name, licence="", rows=rows)
