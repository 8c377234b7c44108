"""What each action of a device's program does to its tensors: forward and backward passes, all-reduce, optimizer
steps."""

import hashlib
from collections.abc import Sequence

import torch
from torch import nn

from dtfm_lab.domain.schedule import Action, Kind, Step
from dtfm_lab.runtime.protocol.gradient_shards import WHOLE, Shard, shards_of
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.autograd_stage import AutogradStage, Batch
from dtfm_lab.runtime.worker.codec import Codec
from dtfm_lab.runtime.worker.stages import DTYPES, build_stages, tied_weight
from dtfm_lab.runtime.worker.training_state import TrainingState, learning_rate_at


class AllReduce:
    """One device's part in averaging a vector. Call ``begin``, then one method per step of the program, in its order.

    Sums have a fixed order: by replica, or in a ring the order in which the shard passes them. One replica averages
    each shard, and its encoding is sent on unchanged, so all replicas hold the same bits afterwards. With compression,
    the averaging replica uses the rounded average too. If replicas split the optimizer states, each steps the shard
    that it averaged. It then sends on that shard's parameters instead, never compressed.
    """

    def __init__(
        self,
        steps: tuple[Step, ...],
        synchronisation: str,
        replica: int,
        members: Sequence[int],
        n_replicas: int,
        codec: Codec,
        uncompressed: Codec,
    ) -> None:
        """Prepare to average.

        Parameters
        ----------
        members
            The replicas that average: all whose device is present.
        codec
            Encodes gradients and their averages.
        uncompressed
            Encodes parameters.
        """
        self._steps, self._replica, self._n_replicas, self._codec = steps, replica, n_replicas, codec
        self._shards = shards_of(steps, synchronisation, replica, members, n_replicas)
        sent_after = {need for step in steps if step.action.kind is Kind.SEND_P for need in step.needs}
        before_steps = {i for at in sent_after if steps[at].action.kind is Kind.STEP for i in steps[at].needs}
        summed = [i for i in before_steps if steps[i].action.kind is Kind.REDUCE]  # none if replicas step locally
        self._needs_of_averages = {*sent_after, *summed}
        self.splits_states = bool(summed)
        """True if parameters are sent on instead of averages."""
        self._codec_onward = uncompressed if self.splits_states else codec
        self.stepped = self._summed_by(steps[summed[0]]) if summed else WHOLE
        """The shard that this replica's optimizer steps."""

    def begin(self, vector: torch.Tensor) -> None:
        """Start averaging ``vector``, which belongs to this replica. ``reduce`` overwrites the shards that it sums."""
        self._vector = vector
        self._encoded: dict[Action, torch.Tensor] = {}
        self._averaged: dict[Shard, torch.Tensor] = {}
        self._received: dict[Action, torch.Tensor] = {}

    def receive(self, action: Action, raw: torch.Tensor) -> None:
        """Keep a received message for the step that needs it."""
        if action.kind is Kind.RECV_P:
            self._averaged[self._shards[action]] = raw
        self._received[action] = raw

    def pack(self, at: int) -> None:
        """Encode the shards that step ``at`` makes ready to send. A shard that a later sum still changes is left out.

        Does nothing if encoding does not round: then ``content`` encodes them.
        """
        if not self._codec.is_lossy:
            return
        for step in self._steps:
            summed = [need for need in step.needs if self._steps[need].action.kind is Kind.REDUCE]
            # a shard that another sum still changes is encoded after that sum
            if step.action.kind is Kind.SEND_G and at in step.needs and summed in ([], [at]):
                self._encoded[step.action] = self._codec.encode(self._elements_of(self._shards[step.action]))

    def reduce(self, at: int) -> None:
        """Add up all replicas' parts of one shard, as far as they have been received. Encode the result for sending.

        After its last sum, the shard is divided by the number of replicas. If replicas split the optimizer states, this
        average is not encoded, because parameters are sent instead.
        """
        shard = self._summed_by(self._steps[at])
        received = self._received_by(self._steps[at])
        own = self._elements_of(shard)
        parts = {self._replica: own.clone()}
        for action in received:
            sender = action.other_end(self._replica, self._n_replicas)[1]
            parts[sender] = self._codec.decode(self._received.pop(action))
        own.zero_()
        # always in the order of the replicas, because another order would round differently
        for replica in sorted(parts):
            own.add_(parts[replica])
        if at in self._needs_of_averages:
            own.div_(self._n_replicas)
            if self.splits_states:
                return
            self._averaged[shard] = self._codec.encode(own)
            # this replica has to use the same rounded numbers as those that it sends them to
            if self._codec.is_lossy:
                own.copy_(self._codec.decode(self._averaged[shard]))
        else:
            self.pack(at)

    def send_parameters(self, vector: torch.Tensor) -> None:
        """From now on, send this replica's stepped shard of ``vector``, which holds the parameters."""
        self._averaged[self.stepped] = self._codec_onward.encode(vector[self.stepped.bounds(vector.numel())])

    def content(self, action: Action) -> torch.Tensor:
        """Return the bytes of a message to send."""
        shard = self._shards[action]
        if action.kind is Kind.SEND_G:
            encoded = self._encoded.pop(action, None)
            return self._codec.encode(self._elements_of(shard)) if encoded is None else encoded
        if shard == WHOLE and WHOLE not in self._averaged:
            return torch.cat([raw for _, raw in sorted(self._averaged.items())])
        return self._averaged[shard]

    def copy_averages_to(self, vector: torch.Tensor) -> None:
        """Write what other replicas sent on, averages or parameters, into ``vector``, which may be a copy."""
        for action, raw in self._received.items():
            if action.kind is Kind.RECV_P:
                vector[self._shards[action].bounds(vector.numel())] = self._codec_onward.decode(raw)

    def _received_by(self, step: Step) -> list[Action]:
        """Return the receives of the peers' gradients that a step sums."""
        needed = (self._steps[need].action for need in step.needs)
        return [action for action in needed if action.kind is Kind.RECV_G]

    def _summed_by(self, step: Step) -> Shard:
        return self._shards[self._received_by(step)[0]]

    def _elements_of(self, shard: Shard) -> torch.Tensor:
        return self._vector[shard.bounds(self._vector.numel())]


CPU = torch.device("cpu")
OWN_SHARE = 0.5
"""Share of a replica's own parameters in the mix with a delayed average: alpha of Streaming DiLoCo (Douillard et al.
2025)."""


class DeviceMath:
    """The stages of one device. All their gradients are one vector, for one optimizer.

    The plan's job determines what replicas average, when, and with which compression. The model that is computed may be
    a smaller substitute (``stand_in``) for the job's model.
    """

    def __init__(self, spec: RunSpec, position: int, replica: int, device: torch.device = CPU) -> None:
        planned, job, schedule = spec.plan.job, spec.trained, spec.built
        model, dtype = job.modelled(), DTYPES[job.dtype]
        last = schedule.n_stages - 1
        held = schedule.stages_of(position)
        self.modules: dict[int, nn.Module] = build_stages(job, schedule.n_stages, held, spec.seed)
        for module in self.modules.values():
            module.to(device)
        self.holds_last = last in self.modules
        # for your own module one vector crosses each cut, and its length differs by cut
        shape = (-1,) if model.source else (job.microbatch, model.seq_len, model.d_model)
        split = {action.stage for action in schedule.programs[position] if action.kind is Kind.BACKWARD_INPUT}
        self._local_updates = local_updates = planned.synchronise_every > 1
        # Replicas average over all micro-batches, even if some replicas have more of them. So either all micro-batches'
        # losses have equal weight, or each replica steps on its own mean and its change is weighted.
        own, mean = job.microbatch_counts[replica], job.mean_microbatches
        self._weight = own / mean if local_updates else 1.0
        self._stages = {
            stage: AutogradStage(
                module,
                shape,
                own if local_updates else mean,
                is_last=stage == last,
                split_backward=stage in split,
                recompute=job.checkpoints == "stage",
                checkpoints_blocks=job.checkpoints == "block",
            )
            for stage, module in self.modules.items()
        }
        self._learning_rate = spec.learning_rate
        self._codec = Codec(planned.gradients_as if planned.codes_gradients else "none", dtype)
        self._uncompressed = Codec("none", dtype)
        self._averages_every, self._fragments = planned.averages_every, planned.fragments
        self._delayed = planned.fragment_delay > 0
        self.follow(spec, position, replica)
        self.state = TrainingState(
            self.modules.values(),
            local_updates=local_updates,
            version=spec.first_iteration,
            shard=self.all_reduce.stepped,
        )
        tied = tied_weight(self.modules, schedule.n_stages) if planned.ties_stages else None
        self._tied = slice(0, 0) if tied is None else self.state.slice_of(tied)

    def follow(self, spec: RunSpec, position: int, replica: int) -> None:
        """Average from now on as the programs of ``spec`` say. It is the run's own spec, or later the spec of the same
        plan without some devices."""
        planned, members = spec.plan.job, spec.members(position)
        steps = spec.programs(synchronise=True).of(position, replica)
        if planned.averaged_share < 1:
            # shares are of all parameters, but here one fragment is the whole vector
            steps = tuple(step._replace(share=round(step.share / planned.averaged_share, 9)) for step in steps)
        self.all_reduce = AllReduce(
            steps, planned.synchronisation, replica, members, planned.n_replicas, self._codec, self._uncompressed
        )
        self._sums_of = planned.n_replicas if len(members) == 1 else 1
        """Number of replicas whose gradients are summed on this device. It is 1 unless all other replicas of the
        stage are absent."""
        for stage in self._stages.values():
            stage.losses.clear()

    def begin(self, *, synchronises: bool, iteration: int) -> None:
        """Start an iteration, and prepare the averaging if it synchronises."""
        turn = ((iteration + 1) // self._averages_every - 1) % self._fragments
        self._fragment = Shard(turn, self._fragments).bounds(self.state.parameters.numel())
        self._synchronises = synchronises
        self._tied_gradient: torch.Tensor | None = None
        if synchronises and not self._local_updates:
            self.all_reduce.begin(self.state.gradients)
        if synchronises and self._delayed:
            self._average_change()

    def discard(self) -> None:
        """Free what an interrupted iteration has saved."""
        for stage in self._stages.values():
            stage.discard()

    @property
    def sha256(self) -> str:
        """Digest of the trained parameters."""
        digest = hashlib.sha256()
        for module in self.modules.values():
            for parameter in module.parameters():
                digest.update(parameter.detach().cpu().numpy().tobytes())
        return digest.hexdigest()

    @property
    def loss(self) -> float:
        """Sum of the losses of this replica's micro-batches, divided by the mean number of micro-batches per replica.

        So the mean over replicas is the mean loss. 0 on devices without the last stage.
        """
        # in the order of micro-batches, so that the sum always rounds the same
        own = sum(loss for stage in self._stages.values() for _, loss in sorted(stage.losses.items()))
        return own * self._weight

    def run(
        self, action: Action, received: torch.Tensor | None, batch: Batch, *, saves: bool = True
    ) -> torch.Tensor | None:
        """Run a forward or backward pass on what another stage sent, and return what to send to the next.

        ``saves``: True if a forward pass keeps what its backward pass needs.
        """
        assert action.microbatch is not None
        stage, m = self._stages[action.stage], action.microbatch
        match action.kind:
            case Kind.FORWARD:
                return stage.forward(m, received, batch, saves=saves)
            case Kind.BACKWARD:
                return stage.backward(m, received, batch)
            case Kind.BACKWARD_INPUT:
                return stage.backward_input(m, received, batch)
        stage.backward_weight(m)
        return None

    def embedding_gradient(self) -> torch.Tensor:
        """Return the gradient of a tied embedding as bytes for the other stage.

        It is the average over replicas if each replica's optimizer steps the whole embedding with that average.
        Otherwise it is this replica's own gradient.
        """
        gradients = self.state.gradients
        if self._synchronises and not self._local_updates and not self.all_reduce.splits_states:
            # a copy, because the state's own gradients take over the averages only in `step`
            gradients = gradients.clone()
            self.all_reduce.copy_averages_to(gradients)
        return self._uncompressed.encode(gradients[self._tied])

    def receive(self, action: Action, raw: torch.Tensor) -> None:
        """Keep a received synchronisation message until a later step needs it."""
        if action.kind is Kind.RECV_E:
            self._tied_gradient = self._uncompressed.decode(raw)
            if self.all_reduce.splits_states:  # shards of the sum are averaged next
                self._add_tied_gradient()
        else:
            self.all_reduce.receive(action, raw)

    def reduce(self, at: int, *, sums: bool) -> None:
        """Carry out the REDUCE action at index ``at``.

        With ``sums``, add up received gradients. Without, use the finished result: copy the parameters that other
        replicas stepped (sharded optimizer states), or apply the averaged change (local updates).
        """
        if sums:
            self.all_reduce.reduce(at)
            return
        if self.all_reduce.splits_states:
            self.all_reduce.copy_averages_to(self.state.parameters)
            return
        assert self.state.synchronised is not None
        self.all_reduce.copy_averages_to(self._change)
        here, equal = self.state.parameters[self._fragment], self.state.synchronised[self._fragment]
        equal.add_(self._change)
        if self._delayed:
            here.mul_(OWN_SHARE).add_(equal, alpha=1 - OWN_SHARE)
        else:
            here.copy_(equal)

    def step(self) -> None:
        """Take the optimizer's step, with the averaged gradients or, with local updates, with this replica's own.

        Afterwards, if local updates are synchronised without delay, begin to average what they have changed. If
        replicas split the optimizer states, prepare to send the stepped parameters.
        """
        splits_states = self.all_reduce.splits_states
        if self._sums_of > 1:
            # it computed the absent replicas' micro-batches, too, so their sum is here and still has to be averaged
            self.state.gradients.div_(self._sums_of)
        elif self._synchronises and not self._local_updates and not splits_states:
            self.all_reduce.copy_averages_to(self.state.gradients)
        self._add_tied_gradient()
        self.state.step(learning_rate_at(self._learning_rate, self.state.steps))
        if self._synchronises and self._local_updates:
            if not self._delayed:
                self._average_change()
        elif splits_states:
            self.all_reduce.send_parameters(self.state.parameters)

    def _average_change(self) -> None:
        """Begin to average what local updates have changed in the current fragment."""
        assert self.state.synchronised is not None
        part = self._fragment
        self._change = (self.state.parameters[part] - self.state.synchronised[part]).mul_(self._weight)
        self.all_reduce.begin(self._change)

    def _add_tied_gradient(self) -> None:
        """Add the gradient that the other stage sent for a tied embedding. Later calls add nothing."""
        if self._tied_gradient is not None:
            self.state.gradients[self._tied] += self._tied_gradient
            self._tied_gradient = None
