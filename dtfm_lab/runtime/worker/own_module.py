"""Your own torch module as your function builds it, its data, and batches of the data."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.utils.data import default_collate

from dtfm_lab.domain.errors import JobError
from dtfm_lab.files.reading import reason_of
from dtfm_lab.runtime.client.own_modules import SUFFIX, modules_folder

LONGEST_REASON = 300
"""Maximum number of characters shown of what torch says about a module."""
Row = Mapping[str, Any] | Sequence[Any]
"""A batch as the module takes it: keywords, or arguments in order."""


class OwnModule(NamedTuple):
    """The module, data and loss that your own function has built."""

    module: nn.Module
    data: Any
    """A dataset with ``len`` and rows by index, or a batch whose rows are the dataset."""
    loss: Callable[[Any, Any], torch.Tensor] | None
    """Takes the module's output and the last part of the batch, or the whole batch if it is a mapping. None if the
    module itself returns the loss."""

    @property
    def n_samples(self) -> int:
        """Number of rows in the data."""
        return len(self._columns[0]) if self._columns else len(self.data)

    def batch(self, samples: Sequence[int]) -> Row:
        """Return these rows as one batch."""
        if self._columns:
            rows = [column[list(samples)] for column in self._columns]
            return dict(zip(self.data, rows, strict=True)) if isinstance(self.data, Mapping) else tuple(rows)
        return cast(Row, default_collate([self.data[index] for index in samples]))

    @property
    def _columns(self) -> list[torch.Tensor]:
        columns = self.data.values() if isinstance(self.data, Mapping) else self.data
        is_batch = isinstance(self.data, Mapping | tuple | list) and all(torch.is_tensor(one) for one in columns)
        return list(columns) if is_batch else []


def build(source: str, seed: int, dtype: torch.dtype) -> OwnModule:
    """Return the module, data and loss that ``file.py:function`` makes, or that ``lab.load_job`` wrote to a file.

    The module is converted to this dtype.

    Raises JobError in one line for anything wrong with it.
    """
    path, _, name = (source, "", "") if source.endswith(SUFFIX) else source.rpartition(":")
    folder = modules_folder().resolve()
    if not name and Path(path).resolve().parent != folder:
        raise JobError(f"module {source}: it lies outside {folder}; wanted one that lab.load_job has written there")
    torch.manual_seed(seed)
    try:
        if name:
            sys.path.insert(0, str(Path(path).resolve().parent))
            found = runpy.run_path(path)
            made = found[name]() if name in found else None
        else:
            import cloudpickle

            folders, pickled = cloudpickle.loads(Path(path).read_bytes())
            sys.path += [folder for folder in folders if folder not in sys.path]
            found, made = {name: True}, cloudpickle.loads(pickled)
    except (Exception, SystemExit) as error:
        exits = "it exits with " if isinstance(error, SystemExit) else ""
        raise JobError(f"module {source}: it cannot be built: {exits}{reason_of(error, LONGEST_REASON)}") from None
    if name not in found:
        raise JobError(f"module {source}: {Path(path).name} has no {name}; wanted a function of that name")
    parts = made if isinstance(made, tuple) else (made,)
    if not 2 <= len(parts) <= 3 or not isinstance(parts[0], nn.Module):
        raise JobError(
            f"module {source}: it makes {type(made).__name__}; wanted (module, data) or (module, data, loss)"
        )
    own = OwnModule(parts[0].to(dtype), parts[1], parts[2] if len(parts) == 3 else None)
    if own.n_samples < 1:
        raise JobError(f"module {source}: its data has no rows; wanted one at least")
    return own


def call_of(batch: Row, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the module's arguments and keywords for a batch, with numbers in this precision."""

    def cast_to(one: Any) -> Any:
        return one.to(dtype) if torch.is_tensor(one) and one.is_floating_point() else one

    if isinstance(batch, Mapping):
        return (), {key: cast_to(one) for key, one in batch.items()}
    return tuple(cast_to(one) for one in (batch if isinstance(batch, tuple | list) else (batch,))), {}


def leaves(batch: Row, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return the tensors of a batch in the order in which an exported graph takes them."""
    return cast(list[torch.Tensor], torch.utils._pytree.tree_leaves(call_of(batch, dtype)))
