"""What each computation of a device does to its tensors: all its stages, averaging, and the optimiser's step."""

from __future__ import annotations

import torch
from torch import nn

from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.runtime.protocol.run_spec import RunSpec
from dtfm_lab.runtime.worker.all_reduce import Averaging
from dtfm_lab.runtime.worker.autograd_stage import Batch, StagePasses
from dtfm_lab.runtime.worker.codec import Codec
from dtfm_lab.runtime.worker.learning_rate import learning_rate_at
from dtfm_lab.runtime.worker.stages import DTYPES, build_stages, tied_weight
from dtfm_lab.runtime.worker.training_state import TrainingState

CPU = torch.device("cpu")


class DeviceMath:
    """The stages of one device of one replica; gradients of all of them are one vector, for one optimiser.

    What replicas average, when and how coded, says the plan's job; a model that stands in for its model is computed.
    """

    def __init__(self, spec: RunSpec, position: int, replica: int, device: torch.device = CPU) -> None:
        planned, job, schedule = spec.plan.job, spec.trained, spec.built
        model, dtype = job.modelled(), DTYPES[job.dtype]
        last = schedule.n_stages - 1
        held = schedule.stages_of(position)
        self.modules: dict[int, nn.Sequential] = build_stages(job, schedule.n_stages, held, spec.seed)
        for module in self.modules.values():
            module.to(device)
        self.holds_last = last in self.modules
        shape = (job.microbatch, model.seq_len, model.d_model)
        split = {action.stage for action in schedule.programs[position] if action.kind is Kind.BACKWARD_INPUT}
        self._passes = {
            stage: StagePasses(
                module,
                shape,
                job.n_microbatches,
                is_last=stage == last,
                splits=stage in split,
                recompute=job.recompute,
            )
            for stage, module in self.modules.items()
        }
        self._learning_rate = spec.learning_rate
        self._locally = planned.synchronise_every > 1
        self.state = TrainingState(self.modules.values(), keeps_in_common=self._locally, version=spec.first_iteration)
        steps = spec.programs(synchronise=True).of(position, replica)
        codec = Codec(planned.gradients_as if planned.codes_gradients else "none", dtype)
        self.averaging = Averaging(steps, planned.synchronisation, replica, planned.n_replicas, codec)
        tied = tied_weight(self.modules, schedule.n_stages) if planned.ties_stages else None
        self._tied = slice(0, 0) if tied is None else self.state.where(tied)
        self._plain = Codec("none", dtype)

    def begin(self, *, synchronises: bool) -> None:
        """A new iteration."""
        self._synchronises = synchronises
        self._from_other_end: torch.Tensor | None = None
        if synchronises and not self._locally:
            self.averaging.begin(self.state.gradients)

    @property
    def loss(self) -> float:
        """Of this replica's micro-batches; of the device with the last stage."""
        return sum(loss for passes in self._passes.values() for _, loss in sorted(passes.losses.items()))

    def pass_through(self, action: Action, received: torch.Tensor | None, batch: Batch) -> torch.Tensor | None:
        """Do a forward or a backward; what the stage before or after is to get."""
        stage, kind, m, _ = action
        assert m is not None
        passes = self._passes[stage]
        match kind:
            case Kind.FORWARD:
                return passes.forward(m, received, batch)
            case Kind.BACKWARD:
                return passes.backward(m, received, batch)
            case Kind.BACKWARD_INPUT:
                return passes.backward_input(m, received, batch)
        passes.backward_weight(m)
        return None

    def abandon(self) -> None:
        """Forget an iteration that was broken off."""
        for passes in self._passes.values():
            passes.abandon()

    def evaluate(self, action: Action, received: torch.Tensor | None, batch: Batch) -> torch.Tensor | None:
        """A forward that nothing is kept of, on the stage and micro-batch of ``action``."""
        assert action.microbatch is not None
        return self._passes[action.stage].evaluate(action.microbatch, received, batch)

    def embedding_gradient(self) -> torch.Tensor:
        """Bytes for the other end of a tied embedding: the gradient, averaged where replicas average gradients."""
        gradients = self.state.gradients
        if self._synchronises and not self._locally:
            gradients = gradients.clone()
            self.averaging.take_over(gradients)
        return self._plain.encode(gradients[self._tied])

    def receive(self, action: Action, raw: torch.Tensor) -> None:
        """A message of synchronisation has come."""
        if action.kind is Kind.RECV_E:
            self._from_other_end = self._plain.decode(raw)
        else:
            self.averaging.receive(action, raw)

    def reduce(self, at: int, *, sums: bool) -> None:
        """Sum what came; or, after local updates, where nothing is left to sum, take over the averaged parameters."""
        if sums:
            self.averaging.reduce(at)
            return
        assert self.state.in_common is not None
        self.averaging.take_over(self._change)
        self.state.parameters.copy_(self.state.in_common.add_(self._change))

    def step(self) -> None:
        gradients = self.state.gradients
        if self._synchronises and not self._locally:
            self.averaging.take_over(gradients)
        if self._from_other_end is not None:
            gradients[self._tied] += self._from_other_end
        self.state.step(learning_rate_at(self._learning_rate, self.state.steps))
        if self._synchronises and self._locally:
            assert self.state.in_common is not None
            self._change = self.state.parameters - self.state.in_common
            self.averaging.begin(self._change)
