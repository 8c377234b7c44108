"""The graph of a torch module, divided into stages between its blocks.

``torch.export`` writes what the module and its loss do to a batch as a graph of operators. A value that depends on no
parameter (masks, positions, the batch itself) is computed again by every stage that needs it. This happens in the
graph's order, so that in-place changes come at the right moment. Any other value that is made before a cut and used
after it crosses the cut, through every stage between. The operators are the module's own, in its own order, so losses
equal the unsplit module's to the last digit.
"""

from __future__ import annotations

import copy
import operator
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any, cast

import torch
from torch import fx, nn

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import Job
from dtfm_lab.files.reading import reason_of
from dtfm_lab.runtime.worker.own_module import LONGEST_REASON, OwnModule, build, call_of

COMPUTED = ("call_function", "call_method", "call_module")


class _WithLoss(nn.Module):
    """A module and its loss as one module, from a batch to a number."""

    def __init__(self, own: OwnModule) -> None:
        super().__init__()
        self.own, self._loss = own.module, own.loss

    def forward(self, *args: Any, **keywords: Any) -> Any:
        if self._loss is None:
            answer = self.own(*args, **keywords)
            return getattr(answer, "loss", answer)
        answer = self.own(**keywords) if keywords else self.own(*args[:-1])
        return self._loss(answer, keywords or args[-1])


@dataclass(frozen=True)
class ExportedModule:
    """The graph of a module, with the places where it may be cut."""

    graph: fx.GraphModule
    where: str

    @classmethod
    def of(cls, own: OwnModule, n_samples: int, dtype: torch.dtype, where: str) -> ExportedModule:
        """Export the module for batches of ``n_samples`` samples. Raises JobError."""
        args, keywords = call_of(own.batch([i % own.n_samples for i in range(n_samples)]), dtype)
        try:
            program = torch.export.export(_WithLoss(own), args, keywords, strict=False)
        except (Exception, SystemExit) as error:
            raise JobError(f"module {where}: torch.export refuses it: {reason_of(error, LONGEST_REASON)}") from None
        exported = cls(program.module(), where)
        exported._check()
        return exported

    def _check(self) -> None:
        value = self._loss.meta.get("val") if isinstance(self._loss, fx.Node) else None
        if not torch.is_tensor(value) or value.numel() != 1 or self._loss not in self.depends:
            raise JobError(f"module {self.where}: what it returns is not a loss; wanted one number, or a loss function")
        frozen = [name for name, one in self.graph.named_parameters() if not one.requires_grad]
        if frozen:
            raise JobError(f"module {self.where}: {frozen[0]} is not trained; wanted requires_grad of all parameters")
        for node in self.graph.graph.nodes:
            if _draws(node):
                raise JobError(
                    f"module {self.where}: {node.name} draws at random, differently on every worker; wanted a dropout "
                    f"of 0, or module.eval()"
                )

    @cached_property
    def _loss(self) -> Any:
        (output,) = (node for node in self.graph.graph.nodes if node.op == "output")
        return torch.utils._pytree.tree_leaves(output.args)[0]

    @cached_property
    def depends(self) -> dict[fx.Node, int]:
        """The operators whose results depend on a trained parameter, in order, each with its number."""
        trained = {name for name, one in self.graph.named_parameters(remove_duplicate=False) if one.requires_grad}
        found: dict[fx.Node, bool] = {}
        for node in self.graph.graph.nodes:
            own = node.op == "get_attr" and node.target in trained
            found[node] = own or any(found.get(before, False) for before in node.all_input_nodes)
        ordered = [node for node, does in found.items() if does and node.op in COMPUTED]
        return {node: index for index, node in enumerate(ordered)}

    @cached_property
    def cuts(self) -> list[int]:
        """Index in ``depends`` at which each block except the first begins.

        Blocks are the numbered parts of the longest ModuleList or Sequential, if it spans at least half of the
        operators. What is computed between two parts belongs to the earlier one. Otherwise blocks are the module's
        parts, in the order in which they compute. A part with more than half of the operators is divided again. Raises
        JobError if that leaves one block.
        """
        rows: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for node, index in self.depends.items():
            for path in _paths(node):
                for match in re.finditer(r"\.(\d+)(?=\.|$)", path):
                    rows[path[: match.start()]][int(match[1])].append(index)
        found = [
            (max(parts[max(parts)]) - min(parts[min(parts)]), [min(parts[i]) for i in sorted(parts)][1:])
            for parts in rows.values()
            if len(parts) > 1 and all(max(parts[a]) < min(parts[b]) for a, b in pairwise(sorted(parts)))
        ]
        length, cuts = max(found, key=lambda row: row[0], default=(0, []))
        if 2 * length < len(self.depends):
            cuts = self._parts(0, len(self.depends), 2)
        cuts = self._with_parameters([cut for cut in cuts if self.crossing(cut)])
        if not cuts:
            raise JobError(
                f"module {self.where}: it has no parts that compute one after the other; wanted submodules "
                f"to cut between"
            )
        return cuts

    def _with_parameters(self, cuts: list[int]) -> list[int]:
        """Return the cuts that have something to train on both sides. A block with nothing to train joins the previous
        one."""
        uses = [any(before.op == "get_attr" for before in node.all_input_nodes) for node in self.depends]
        kept: list[int] = []
        for cut in cuts:
            if any(uses[kept[-1] if kept else 0 : cut]) and any(uses[cut:]):
                kept.append(cut)
        return kept

    def _parts(self, begin: int, end: int, depth: int) -> list[int]:
        """Return the indices at which the parts ``depth`` levels down begin, except the first, in a range of
        operators."""
        parts = [_paths(node)[depth] if len(_paths(node)) > depth else "" for node in list(self.depends)[begin:end]]
        if not any(parts):
            return []
        named = [next((part for part in parts[i:] if part), parts[-1]) for i in range(len(parts))]
        ends = [begin + i for i in range(1, len(named)) if named[i] != named[i - 1]]
        found = []
        for first, last in pairwise([begin, *ends, end]):
            if 2 * (last - first) > len(self.depends):
                found += self._parts(first, last, depth + 1)
            found += [last] if last < end else []
        return found

    def crossing(self, cut: int) -> list[fx.Node]:
        """Return the values that cross a cut, in the order in which they are made."""
        return [node for node, index in self.depends.items() if index < cut <= self._last_use[node]]

    @cached_property
    def _last_use(self) -> dict[fx.Node, int]:
        end = len(self.depends)
        return {
            node: end if node is self._loss else max([self.depends.get(user, -1) for user in node.users], default=-1)
            for node in self.depends
        }

    def stage(self, begin: int, end: int, most_elements: int) -> StageOfModule:
        """Return the part between two cuts. Its output is a vector of ``most_elements`` numbers, or the loss."""
        # placeholders first: they become the arguments, in this order
        wanted, found = {}, fx.Graph()
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                wanted[node] = found.placeholder(node.name)
        comes = self.crossing(begin) if begin else []
        for node in comes:
            wanted[node] = found.placeholder(f"crossing_{node.name}")

        def take(node: fx.Node) -> None:
            for before in node.all_input_nodes:
                if before not in wanted:
                    take(before)
            wanted[node] = found.node_copy(node, lambda one: wanted[one])

        for node in self.graph.graph.nodes:
            here = begin <= self.depends[node] < end if node in self.depends else not self._checks(node)
            if node.op in COMPUTED and here and node not in wanted:
                take(node)
        is_last = end == len(self.depends)
        goes = [self._loss] if is_last else self.crossing(end)
        found.output(tuple(wanted[node] for node in goes))
        return StageOfModule(
            fx.GraphModule(self.graph, found), [shape_of(node) for node in comes], None if is_last else most_elements
        )

    def _checks(self, node: fx.Node) -> bool:
        """Return True if the operator only inspects the batch, as the guards that torch.export writes do."""
        return node.op == "call_module" or node.target is operator.is_


class StageOfModule(nn.Module):
    """One stage of a module. It takes what crossed the previous cut and its micro-batch, and returns what crosses
    the next cut, or the loss.

    Several values cross as one vector, padded with zeros to the size that the job states for this cut. The job states
    the size per sample, so a value without a sample axis counts once per sample. The first stage ignores ``received``.
    """

    def __init__(self, part: fx.GraphModule, shapes: list[torch.Size], most_elements: int | None) -> None:
        """``shapes`` are the shapes of the values that come in. ``most_elements`` is the length of the vector that goes
        out, None for the loss."""
        super().__init__()
        self.part, self._shapes, self._most_elements = part, shapes, most_elements
        self.tied: nn.Parameter | None = None
        """The parameter that the first and the last stage share, set on these two. None if they share none."""

    def forward(self, received: torch.Tensor, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        values = []
        if self._shapes:
            sizes = [shape.numel() for shape in self._shapes]
            pieces = torch.split(received.reshape(-1)[: sum(sizes)], sizes)
            values = [piece.view(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        found: tuple[torch.Tensor, ...] = self.part(*batch, *values)
        if self._most_elements is None:
            return found[0]
        goes = torch.cat([one.reshape(-1) for one in found])
        return nn.functional.pad(goes, (0, self._most_elements - goes.numel()))


def stages_of(job: Job, n_stages: int, held: Iterable[int], seed: int, dtype: torch.dtype) -> dict[int, StageOfModule]:
    """Return the stages ``held`` by one device. The job's own module is cut into ``n_stages``, and is exported for
    micro-batches of the job's size."""
    source = job.modelled().source
    assert job.microbatch is not None, "a run has a shape"
    exported = _exported(source, job.microbatch, seed, dtype)
    ends = [0, *exported.cuts, len(exported.depends)]
    bounds = [ends[n_blocks] for n_blocks in accumulate(job.cut(n_stages), initial=0)]
    sizes = job.boundary_elements(n_stages)[1:]
    # both ends in any case, to find the parameter that they share
    found = {
        stage: exported.stage(bounds[stage], bounds[stage + 1], sizes[stage]) for stage in {0, n_stages - 1, *held}
    }
    if n_stages > 1:
        tied = set(found[0].parameters()) & set(found[n_stages - 1].parameters())
        found[0].tied = found[n_stages - 1].tied = next(iter(tied), None)
    return copy.deepcopy(
        {stage: found[stage] for stage in held}
    )  # copies are trained; the cached stages stay untrained


@lru_cache(maxsize=1)
def _exported(source: str, microbatch: int, seed: int, dtype: torch.dtype) -> ExportedModule:
    """Return the exported module before training. It is cached because a worker builds its stages twice: to calibrate
    and to train."""
    return ExportedModule.of(build(source, seed, dtype), microbatch, dtype, source)


def _paths(node: fx.Node) -> list[str]:
    """Return the modules that contain an operator, outermost first."""
    return [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]


def shape_of(node: fx.Node) -> torch.Size:
    """Return the shape of an operator's result."""
    return cast(torch.Size, node.meta["val"].shape)


def _draws(node: fx.Node) -> bool:
    """Return True if an operator is random. A dropout that is off is not."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    drops_out = any(kind in str(target) for kind in ("dropout", "attention", "gru", "lstm", "rnn_"))
    named = {argument.name: default for argument, default in _arguments(target, node)}
    rates = [named[name] for name in ("p", "dropout_p", "dropout") if name in named]
    return not (drops_out and (rates == [0] or named.get("train", True) is False))


def _arguments(target: torch._ops.OpOverload, node: fx.Node) -> Iterable[tuple[Any, Any]]:
    for index, argument in enumerate(target._schema.arguments):
        if index < len(node.args):
            yield argument, node.args[index]
        else:
            yield argument, node.kwargs.get(argument.name, argument.default_value)
