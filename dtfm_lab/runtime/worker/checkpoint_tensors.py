"""Parameters and what the optimiser remembers, to and from a checkpoint's files; ``checkpoints`` knows the folders.

A tensor is named by the whole model: ``3.mlp_in.weight``, and beside it ``3.mlp_in.weight.first_moment`` and
``.second_moment``; after local updates ``.in_common`` too. Files are by stage, so that every device writes its own, but
whoever reads looks for its layers in all of them: the model may have been cut and placed otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from dtfm_lab.domain.errors import FileError
from dtfm_lab.runtime.protocol.checkpoint_folders import TENSORS

_REPLICA = re.compile(r".*-replica-(\d+)")


class State(Protocol):
    """Flat vectors over all parameters of a device."""

    parameters: torch.Tensor
    first_moments: torch.Tensor
    second_moments: torch.Tensor
    in_common: torch.Tensor | None
    """what replicas last had in common; where they take steps alone"""
    steps: int
    """of the optimiser"""

    def where(self, parameter: nn.Parameter) -> slice:
        """Its numbers in the vectors."""
        ...


def write(folder: Path, modules: Mapping[int, nn.Module], state: State, replica: int) -> None:
    """One file a stage. Replicas that are equal share it: one of them is enough to write it.

    Raises FileError where that cannot be.
    """
    suffix = "" if state.in_common is None else f"-replica-{replica}"
    for stage, module in modules.items():
        # an embedding that is the head as well goes by both names, for readers who hold one end only; copies, because
        # the format knows no tensors that share memory
        tensors = {
            name + kind: vector[state.where(parameter)].view_as(parameter).clone()
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


def read(folder: Path, modules: Mapping[int, nn.Module], state: State, replica: int) -> None:
    """Into ``state``, whose vectors the modules' parameters are views of; numbers are converted to its dtype.

    After local updates each replica finds its own; one that was not there begins as replica r modulo their number.
    Where replicas are to be equal, all begin as the first was.
    """
    with Tensors(folder, replica if state.in_common is not None else 0) as found, torch.no_grad():
        for module in modules.values():
            for name, parameter in module.named_parameters():
                where = state.where(parameter)
                for kind, vector in _vectors(state):
                    missing = kind == ".in_common" and not found.holds(name + kind)
                    vector[where] = found.get(name + ("" if missing else kind), parameter.shape).view(-1).to(vector)
        state.steps = found.steps


def read_parameters(folder: Path, module: nn.Module) -> None:
    """Into a module that was built with the whole model's names; after local updates what the first replica has."""
    with Tensors(folder, 0) as found, torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(found.get(name, parameter.shape))


class Tensors:
    """All tensors of one replica in a checkpoint's files, mapped: only what is asked for is read."""

    def __init__(self, folder: Path, replica: int) -> None:
        self._folder, self._replica = folder, replica

    def __enter__(self) -> Tensors:
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
        """Raises FileError where it is not there, or of another shape."""
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


def _vectors(state: State) -> list[tuple[str, torch.Tensor]]:
    """What is kept of every parameter, by what its name ends in."""
    kept = [("", state.parameters), (".first_moment", state.first_moments), (".second_moment", state.second_moments)]
    return kept if state.in_common is None else [*kept, (".in_common", state.in_common)]
