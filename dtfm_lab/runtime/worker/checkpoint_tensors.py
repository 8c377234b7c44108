"""Reads and writes the tensors of a checkpoint: parameters and the optimizer's state.

A tensor is named as in the whole model: ``3.mlp_in.weight``, with ``3.mlp_in.weight.first_moment`` and
``.second_moment``. With local updates, ``.in_common`` has the parameters after the last averaging. Every stage has its
own file, so that devices need not wait for each other. Reading looks for a layer in all files, because the model may
have been cut into other stages.

If replicas split the optimizer states, each writes a file with its part of the moments.
``3.mlp_in.weight.first_moment.0-512`` are the first 512 elements. Readers join the parts, so any number of replicas can
continue from them. ``checkpoint_folders`` describes the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.units import by_key, counted
from dtfm_lab.files.reading import reason_of
from dtfm_lab.runtime.protocol.checkpoint_folders import TENSORS
from dtfm_lab.runtime.worker.stages import DTYPES
from dtfm_lab.runtime.worker.training_state import TrainingState

_REPLICA = re.compile(r".*-replica-(\d+)")
MOST_STEPS = 2**31
MOMENTS = (".first_moment", ".second_moment")
_PIECE = re.compile(r"(.+)\.(\d+)-(\d+)")


def write(folder: Path, modules: Mapping[int, nn.Module], state: TrainingState, replica: int) -> list[Path]:
    """Write this replica's tensors and return the paths of the files.

    There is one file per stage, and one replica writes it for all. After local updates there is one file per stage and
    replica. If replicas split the optimizer states, each also writes its part to a second file, next to the file of the
    parameters.

    Raises FileError if a file cannot be written.
    """
    suffix = "" if state.synchronised is None else f"-replica-{replica}"
    written = []
    for stage, module in modules.items():
        # a tied embedding is written under both names, for readers that hold one end only; tensors are copied because
        # the format does not allow them to share memory
        named = dict(module.named_parameters(remove_duplicate=False))
        if state.splits_states:
            shard = folder / f"stage-{stage}-shard-{replica}.safetensors"
            written.append(_save(shard, _pieces(named, state), state, replica))
        if replica == 0 or not state.splits_states:
            tensors = {
                name + kind: vector[state.slice_of(parameter)].view_as(parameter).clone()
                for name, parameter in named.items()
                for kind, vector in _vectors(state)
                if kind not in MOMENTS or not state.splits_states
            }
            written.append(_save(folder / f"stage-{stage}{suffix}.safetensors", tensors, state, replica))
    return written


def read(folder: Path, modules: Mapping[int, nn.Module], state: TrainingState, replica: int) -> None:
    """Read a checkpoint's tensors into ``state``, converted to its dtype. The modules' parameters are views of its
    vectors.

    With local updates, replica r reads saved replica r modulo the number of saved ones. Without local updates, all
    replicas read the first saved one.
    """
    with CheckpointTensors(folder, replica if state.synchronised is not None else 0) as found, torch.no_grad():
        for module in modules.values():
            for name, parameter in module.named_parameters():
                for kind, vector in _vectors(state):
                    # a run without local updates wrote none: its replicas are equal, so their parameters are the common
                    # ones
                    missing = kind == ".in_common" and not found.holds(name + kind)
                    whole = found.get(name + ("" if missing else kind), parameter.shape).view(-1)
                    here, there = _held(state, parameter, kind)
                    vector[there] = whole[here].to(vector)
        state.steps = found.steps


def read_parameters(folder: Path, module: nn.Module) -> None:
    """Read parameters into a module whose layers are named as in the whole model.

    After local updates, they are the first replica's.
    """
    with CheckpointTensors(folder, 0) as found, torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(found.get(name, parameter.shape))


class CheckpointTensors:
    """All tensors of one replica in a checkpoint's files. Files are memory-mapped, so only requested tensors are
    read."""

    def __init__(self, folder: Path, replica: int) -> None:
        self._folder, self._replica = folder, replica

    def __enter__(self) -> CheckpointTensors:
        self._files = ExitStack()
        self._holders: dict[str, Any] = {}
        self._pieces: dict[str, dict[int, tuple[int, str]]] = {}
        """For a tensor written in pieces: first element -> (the element after the last, name of the piece)."""
        steps = {}
        for path in self._own_files():
            with self._one_line(path.name):
                file = self._files.enter_context(safe_open(path, framework="pt"))
                done = int(file.metadata()["steps"])
                if not 0 <= done < MOST_STEPS:
                    raise ValueError(f"it is of {counted(done, 'step')}")
                steps[done] = path.name
                self._holders |= dict.fromkeys(file.keys(), file)
                for match in filter(None, map(_PIECE.fullmatch, file.keys())):
                    first, end = int(match[2]), int(match[3])
                    if first < end:
                        self._pieces.setdefault(match[1], {})[first] = end, match[0]
        # tensors of different iterations do not make one state
        if len(steps) > 1:
            self._files.close()
            found = ", ".join(f"{name} after {n}" for n, name in sorted(steps.items()))
            raise FileError(f"checkpoint {self._folder}: is of several iterations ({found}); wanted one")
        (self.steps,) = steps
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def holds(self, name: str) -> bool:
        return name in self._holders

    def get(self, name: str, shape: torch.Size) -> torch.Tensor:
        """Return the tensor of this name. Raises FileError if it is missing or has another shape."""
        if name in self._pieces and name not in self._holders:
            return self._put_together(name, shape)
        if name not in self._holders:
            raise FileError(f"checkpoint {self._folder}: holds no tensor {name}; wanted one of shape {list(shape)}")
        tensor = self._read(name)
        if tensor.shape != shape:
            raise FileError(
                f"checkpoint {self._folder}: tensor {name} is of shape {list(tensor.shape)}; wanted {list(shape)}"
            )
        return tensor

    def _put_together(self, name: str, shape: torch.Size) -> torch.Tensor:
        """Return a tensor whose pieces are in several files. Raises FileError if a piece is missing."""
        stop, pieces = 0, []
        while stop in self._pieces[name]:
            stop, piece = self._pieces[name][stop]
            pieces.append(self._read(piece))
        if stop != shape.numel() or sum(len(piece) for piece in pieces) != stop:
            raise FileError(
                f"checkpoint {self._folder}: holds elements of {name} up to {stop} only; wanted all {shape.numel()}"
            )
        return torch.cat(pieces).view(shape)

    def _read(self, name: str) -> torch.Tensor:
        with self._one_line(f"tensor {name}"):
            tensor: torch.Tensor = self._holders[name].get_tensor(name)
            return tensor.to(torch.float64) if tensor.dtype not in DTYPES.values() else tensor

    @contextmanager
    def _one_line(self, what: str) -> Iterator[None]:
        """Raise FileError for any error in the block, because a damaged file fails in many ways."""
        try:
            yield
        except Exception as error:
            self._files.close()
            raise FileError(f"checkpoint {self._folder}: {what} cannot be read: {reason_of(error)}") from None

    def _own_files(self) -> Iterator[Path]:
        found = [(path, _REPLICA.fullmatch(path.stem)) for path in sorted(self._folder.glob(TENSORS))]
        by_replica = by_key((int(match[1]) if match else 0, path) for path, match in found)
        if not by_replica:
            raise FileError(f"checkpoint {self._folder}: holds no tensors; wanted {TENSORS}")
        yield from by_replica[sorted(by_replica)[self._replica % len(by_replica)]]


def _vectors(state: TrainingState) -> list[tuple[str, torch.Tensor]]:
    """Return the saved vectors, each with the suffix of its tensors' names."""
    saved = [("", state.parameters), (".first_moment", state.first_moments), (".second_moment", state.second_moments)]
    return saved if state.synchronised is None else [*saved, (".in_common", state.synchronised)]


def _held(state: TrainingState, parameter: nn.Parameter, kind: str) -> tuple[slice, slice]:
    """Return which part of a parameter's numbers of this kind the replica holds: a slice of the parameter's elements,
    and the slice of the state's vector that holds them. ``kind`` is a suffix of ``_vectors``."""
    where = state.slice_of(parameter)
    if kind not in MOMENTS or not state.splits_states:
        return slice(0, where.stop - where.start), where
    own = state.stepped
    start, stop = max(where.start, own.start), min(where.stop, own.stop)
    stop = max(start, stop)
    return slice(start - where.start, stop - where.start), slice(start - own.start, stop - own.start)


def _pieces(named: Mapping[str, nn.Parameter], state: TrainingState) -> dict[str, torch.Tensor]:
    """Return the moments that this replica holds. The keys are names such as ``3.mlp_in.weight.first_moment.0-512``."""
    found = {}
    for name, parameter in named.items():
        for kind, vector in _vectors(state):
            here, there = _held(state, parameter, kind)
            if kind in MOMENTS and here.start < here.stop:
                found[f"{name}{kind}.{here.start}-{here.stop}"] = vector[there].clone()
    return found


def _save(path: Path, tensors: dict[str, torch.Tensor], state: TrainingState, replica: int) -> Path:
    """Write a file completely or not at all, and return its path. Raises FileError if it cannot be written."""
    partial = path.with_name(f".{path.name}.{replica}.partial")
    metadata = {"format": "pt", "steps": str(state.steps), "dtype": str(state.parameters.dtype)}
    try:
        partial.unlink(missing_ok=True)  # or a link of this name would be followed
        save_file(tensors, partial, {key: value.removeprefix("torch.") for key, value in metadata.items()})
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        partial.unlink(missing_ok=True)
        raise FileError(f"checkpoint {path.parent}: cannot be written: {error}") from None
    return path
