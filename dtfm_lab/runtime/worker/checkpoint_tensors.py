"""Reads and writes the tensors of a checkpoint: parameters and the optimiser's state.

A tensor is named as in the whole model: ``3.mlp_in.weight``, with ``3.mlp_in.weight.first_moment`` and
``.second_moment``, and ``.in_common`` after local updates. Every stage has a file of its own, so that every device
writes alone; reading looks for a layer in all files, because the model may have been cut into other stages.
``checkpoint_folders`` describes the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from dtfm_lab.domain.errors import FileError
from dtfm_lab.runtime.protocol.checkpoint_folders import TENSORS
from dtfm_lab.runtime.worker.training_state import TrainingState

_REPLICA = re.compile(r".*-replica-(\d+)")


def write(folder: Path, modules: Mapping[int, nn.Module], state: TrainingState, replica: int) -> None:
    """Write one file a stage, or one a stage and replica after local updates; otherwise one replica writes for all.

    Raises FileError if a file cannot be written.
    """
    suffix = "" if state.synchronised is None else f"-replica-{replica}"
    for stage, module in modules.items():
        # a tied embedding is written under both names, for readers that hold one end only; tensors are copied because
        # the format does not allow them to share memory
        tensors = {
            name + kind: vector[state.slice_of(parameter)].view_as(parameter).clone()
            for name, parameter in module.named_parameters(remove_duplicate=False)
            for kind, vector in _vectors(state)
        }
        path = folder / f"stage-{stage}{suffix}.safetensors"
        partial = path.with_name(f".{path.name}.{replica}.partial")
        metadata = {"format": "pt", "steps": str(state.steps), "dtype": str(state.parameters.dtype)}
        try:
            save_file(tensors, partial, {key: value.removeprefix("torch.") for key, value in metadata.items()})
            partial.replace(path)
        except (OSError, SafetensorError) as error:
            partial.unlink(missing_ok=True)
            raise FileError(f"checkpoint {folder}: cannot be written: {error}") from None


def read(folder: Path, modules: Mapping[int, nn.Module], state: TrainingState, replica: int) -> None:
    """Read into ``state``, whose vectors the modules' parameters are views of, and convert numbers to its dtype.

    With local updates replica r reads replica r modulo the number of saved ones; otherwise all read the first.
    """
    with CheckpointTensors(folder, replica if state.synchronised is not None else 0) as found, torch.no_grad():
        for module in modules.values():
            for name, parameter in module.named_parameters():
                where = state.slice_of(parameter)
                for kind, vector in _vectors(state):
                    missing = kind == ".in_common" and not found.holds(name + kind)
                    vector[where] = found.get(name + ("" if missing else kind), parameter.shape).view(-1).to(vector)
        state.steps = found.steps


def read_parameters(folder: Path, module: nn.Module) -> None:
    """Read into a module named as in the whole model; after local updates the parameters of the first replica."""
    with CheckpointTensors(folder, 0) as found, torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(found.get(name, parameter.shape))


class CheckpointTensors:
    """All tensors of one replica in a checkpoint's files. Files are memory-mapped: only requested tensors are read."""

    def __init__(self, folder: Path, replica: int) -> None:
        self._folder, self._replica = folder, replica

    def __enter__(self) -> CheckpointTensors:
        self._files = ExitStack()
        self._holders: dict[str, Any] = {}
        steps = {}
        for path in self._own_files():
            try:
                file = self._files.enter_context(safe_open(path, framework="pt"))
                steps[int(file.metadata()["steps"])] = path.name
            except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
                self._files.close()
                raise FileError(f"checkpoint {self._folder}: {path.name} cannot be read: {error}") from None
            self._holders |= dict.fromkeys(file.keys(), file)
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
        """The tensor of this name. Raises FileError if there is none or it has another shape."""
        if name not in self._holders:
            raise FileError(f"checkpoint {self._folder}: holds no tensor {name}; wanted one of shape {list(shape)}")
        try:
            tensor: torch.Tensor = self._holders[name].get_tensor(name)
        except SafetensorError as error:
            raise FileError(f"checkpoint {self._folder}: tensor {name} cannot be read: {error}") from None
        if tensor.shape != shape:
            raise FileError(
                f"checkpoint {self._folder}: tensor {name} is of shape {list(tensor.shape)}; wanted {list(shape)}"
            )
        return tensor

    def _own_files(self) -> Iterator[Path]:
        by_replica: dict[int, list[Path]] = {}
        for path in sorted(self._folder.glob(TENSORS)):
            match = _REPLICA.fullmatch(path.stem)
            by_replica.setdefault(int(match[1]) if match else 0, []).append(path)
        if not by_replica:
            raise FileError(f"checkpoint {self._folder}: holds no tensors; wanted {TENSORS}")
        yield from by_replica[sorted(by_replica)[self._replica % len(by_replica)]]


def _vectors(state: TrainingState) -> list[tuple[str, torch.Tensor]]:
    """The saved vectors, by the suffix that names of their tensors have."""
    saved = [("", state.parameters), (".first_moment", state.first_moments), (".second_moment", state.second_moments)]
    return saved if state.synchronised is None else [*saved, (".in_common", state.synchronised)]
