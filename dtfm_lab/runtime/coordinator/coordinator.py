"""A run from its first connection to its last iteration: keeps the workers in step and recovers from losing them.

An iteration counts once every worker has finished it. If a worker is lost before that, the others return to the
beginning of the iteration. A replacement gets its state from a replica. If no replica has it, all workers read a
checkpoint, and the iterations since then are repeated. The losses are the same as in an undisturbed run.

A device that has left permanently is not replaced: the run waits for a new plan. A new plan may come at any time, and
is followed between two iterations, or instead of an interrupted one. One replica of each stage writes its state, or
every worker if replicas differ. Workers whose devices are in both plans take their new places; others end or are
started. All are calibrated again, and read the state. If a plan only lacks devices that left, the remaining workers
keep their stages and the calibration.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.units import counted
from dtfm_lab.runtime.coordinator.calibration import (
    FEWEST,
    LONG_S,
    MOST,
    WARM_UPS,
    MeasuredDurations,
    RunCalibration,
    Work,
    calibrate,
    replay,
    still_counted,
    train_orders,
)
from dtfm_lab.runtime.coordinator.losses import mean_loss, summary_of_diverged, why_warned
from dtfm_lab.runtime.coordinator.recovery import CheckpointPolicy, Recovery, find_recovery, why_unrecoverable
from dtfm_lab.runtime.coordinator.worker_handle import StartWorker
from dtfm_lab.runtime.coordinator.worker_pool import Answer, RunFailed, WorkerPool, WorkersLost
from dtfm_lab.runtime.protocol import orders
from dtfm_lab.runtime.protocol.processes import CommandReader, emit, warn
from dtfm_lab.runtime.protocol.run_options import RunSpec

HEAD_START_S = 0.02
"""Seconds from the order to begin an iteration to time 0 of that iteration, so that the order arrives before. The
longest round trip to a worker is added."""
PROMPT = "It is a truth "
"""The prompt for a model trained on the lab's own text."""
MOST_LOSSES = 3
"""Maximum number of times that one device's worker, or connections, may be lost in one iteration. The run fails at the
next loss."""
FIRST_CALIBRATION = -(10**4)
"""Iteration number from which calibrations count up. They stay below all numbers that training uses."""
FIRST_EVALUATION = -(10**6)
"""Iteration number from which evaluations count down, below those of calibrations."""


class Coordinator:
    """One run. ``run`` carries it out, and ``end`` leaves no process behind."""

    def __init__(self, spec: RunSpec, commands: CommandReader, start_worker: StartWorker) -> None:
        self._spec = spec
        self._checkpoints = CheckpointPolicy(spec)
        self._done = spec.first_iteration
        """Number of iterations done, including those before a resumed checkpoint."""
        self._losses: list[float] = []
        self._measured: dict[Work, MeasuredDurations] = {}
        self._calibration: RunCalibration | None = None
        self._calibrated_s: list[float] = []
        """Seconds of each calibration iteration after the warm-up in which replicas average."""
        self._train_orders: dict[int, orders.Train] | None = None
        """The ``Train`` order of each rank; None before the calibration is over."""
        self._without_state: dict[int, tuple[str, float]] = {}
        """Ranks whose new worker has no state yet: how the previous worker was lost, and when."""
        self._handed: Recovery | None = None
        """The state from which training continues under a new plan. All workers read it until the first iteration under
        that plan is done; then None."""
        self._span_rows: list[list[Any]] = []
        """Spans (start and end of each action) of this iteration, if ``spec.replays``. Otherwise they are emitted at
        once."""
        self._n_losses: Counter[tuple[int | None, int]] = Counter()
        """How often each (rank, iteration) was lost. Rank None counts broken connections."""
        self._late_messages = self._overruns = self._n_evaluations = 0
        self._time_scale = 1.0
        self._moment_s = self._ready_s = 0.0
        """Monotonic times: time 0 of the last iteration, and when the next one could begin. The gap between this and
        time 0 of the next one is reported."""
        self._pool = WorkerPool(
            spec, commands, start_worker, self._checkpoints, self._is_replaceable, self._collect_spans
        )

    def run(self) -> None:
        """Calibrate, then train to the last iteration."""
        spec, pool, last = self._spec, self._pool, self._spec.first_iteration + self._spec.iterations
        warn(*spec.notes)
        if why := self._checkpoints.why_unlocked:
            warn(f"checkpoint_folder {spec.checkpoint_folder}: no lock against other runs: {why}")
        self._until_done(self._join)
        emit("ready", workers=len(self._spec.workers), torch=pool.workers[0].torch_version)
        self._calibrate_and_build()
        answers: list[Answer] = []
        while self._done < last or not answers:  # losing a worker after the last iteration may set the run back
            while self._done < last:
                self._train_iteration(last)
            pool.phase = "while leaving"
            answers = self._until_done(lambda: pool.order_all(orders.Leave()))
        for (position, replica), answer in zip(self._spec.workers, answers, strict=True):
            emit("parameters", stage=position, replica=replica, sha256=answer["sha256"])
        warn(summary_of_diverged(self._losses, spec.first_iteration))
        pool.order_exit()

    def end(self) -> None:
        """Kill all workers and remove temporary checkpoints."""
        self._pool.end()
        self._checkpoints.close()

    def _train_iteration(self, last: int) -> None:
        """Carry out one iteration, and the evaluation, checkpoint or generated text that is due after it."""
        spec, pool = self._spec, self._pool
        if pool.new_plan is not None:
            self._follow()
        pool.phase = f"in iteration {self._done}"
        self._until_done(self._iterate)
        done = self._done
        pool.phase = f"after iteration {done - 1}"
        if done == last or (spec.evaluate_every and done % spec.evaluate_every == 0):
            self._until_done(partial(self._evaluate, done))
        if self._checkpoints.is_due(done, last):
            self._until_done(partial(self._write_checkpoint, done))
        if done == last and spec.sample_bytes:
            self._until_done(partial(self._generate_text, done))

    def _until_done(self, phase: Callable[[], Any]) -> Any:
        """Carry out ``phase`` and return its result. Repeat it after each loss of workers, once the run has
        recovered."""
        lost: WorkersLost | None = None
        while True:
            try:
                if lost is not None:
                    self._replace(lost.how)
                    lost = None
                return phase()
            except WorkersLost as loss:
                lost = loss

    def _calibrate_and_build(self) -> None:
        """Measure the computations, and build the stages that are trained."""
        self._pool.phase = "in the calibration"
        self._measured = self._until_done(self._calibrate)
        self._pool.limits.calibrated(self._measured)
        self._calibration = calibrate(self._spec, self._measured, self._calibrated_s)
        of_rank = self._tell_calibration(self._calibration)
        self._until_done(partial(self._pool.order_each, orders.Train, of_rank.__getitem__))
        self._ready_s = time.monotonic()
        if self._spec.slow_worker is not None:
            self._pool.slow(*self._spec.slow_worker)

    def _calibrate(self) -> dict[Work, MeasuredDurations]:
        """Run iterations on copies of the stages, and return the durations of each computation."""
        n_counted, counted_s, number, warm_ups = 0, 0.0, FIRST_CALIBRATION, WARM_UPS
        self._calibrated_s.clear()
        while n_counted < MOST and (n_counted < FEWEST or counted_s < LONG_S):
            counts, began_s = warm_ups <= 0, time.monotonic()
            done = number - FIRST_CALIBRATION
            emit("calibrating", done=done, total=done + max(0, warm_ups) + still_counted(n_counted, counted_s))
            first, moment_s = number == FIRST_CALIBRATION, self._next_moment_s()
            order = orders.Calibrate(iteration=number, counts=counts, first=first, began_monotonic_s=moment_s)
            answers = self._pool.order_all(order)
            took_s = time.monotonic() - began_s
            # `_message_s` compares these with a simulated iteration that synchronises
            if counts and self._spec.synchronises(number):
                self._calibrated_s.append(max(min(float(answer.get("took_s", took_s)), took_s) for answer in answers))
            number, n_counted, counted_s = number + 1, n_counted + counts, counted_s + took_s * counts
            warm_ups -= WARM_UPS if took_s > LONG_S else 1
        return {
            (stage, replica, Kind(kind)): MeasuredDurations(*figures)
            for (_, replica), answer in zip(self._spec.workers, self._pool.order_all(orders.Profile()), strict=True)
            for stage, kind, *figures in answer["rows"]
        }

    def _tell_calibration(self, calibration: RunCalibration) -> dict[int, orders.Train]:
        """Report the expected durations and the time scale. Return the ``Train`` order of each rank."""
        of_run = {name: value for name, value in calibration._asdict().items() if name != "profile"}
        emit("profile", rows=calibration.profile, **of_run)
        self._time_scale, self._train_orders = calibration.time_scale, train_orders(self._spec, calibration)
        return self._train_orders

    def _iterate(self) -> None:
        ready_s = self._ready_s
        answers = self._pool.order_all(orders.Iterate(iteration=self._done, began_monotonic_s=self._next_moment_s()))
        gap_s, self._ready_s = self._moment_s - ready_s, time.monotonic()
        self._losses.append(mean_loss(answers, self._spec.plan.job.n_replicas))
        self._late_messages += sum(answer["late_messages"] for answer in answers)
        self._overruns += sum(answer["overruns"] for answer in answers)
        warn(why_warned(self._losses, f"the loss of iteration {self._done}"))
        if self._spec.replays:
            emit("spans", rows=replay(self._spec, self._done, self._span_rows))
            self._span_rows = []
        emit(
            "iteration",
            iteration=self._done,
            loss=self._losses[-1],
            late_messages=self._late_messages,
            overruns=self._overruns,
            gap_s=max(0.0, gap_s),
        )
        self._done += 1
        self._handed = None

    def _evaluate(self, done: int) -> None:
        if self._done != done:  # a lost worker set the run back, and the evaluation will be due again
            return
        self._n_evaluations += 1
        answers = self._pool.order_all(orders.Evaluate(number=FIRST_EVALUATION - self._n_evaluations))
        loss = mean_loss(answers, self._spec.plan.job.n_replicas)
        emit("held_out", iteration=done, loss=loss, unigram_entropy=answers[0]["unigram_entropy"])
        warn(why_warned([loss], f"the held-out loss after {counted(done, 'iteration')}"))

    def _write_checkpoint(self, done: int) -> None:
        if self._done != done:
            return
        digests: dict[str, str] = {}
        try:
            with self._checkpoints.writing(done, self._losses, digests) as folder:
                answers = self._pool.order_all(orders.WriteCheckpoint(folder=str(folder)))
                for answer in answers:
                    digests |= answer.get("digests", {})
                if unwritten := [answer["unwritten"] for answer in answers if answer["unwritten"]]:
                    raise FileError(unwritten[0])
        except FileError as error:  # a folder that cannot be written must not end the training
            warn(f"no checkpoint after iteration {done - 1}, training continues: {error}")
            return
        if self._spec.checkpoint_folder is not None:
            emit("checkpoint", iteration=done, folder=str(folder))

    def _generate_text(self, done: int) -> None:
        """Generate text with the trained model. Does nothing if the run was set back, or if its last checkpoint was not
        written."""
        newest = self._checkpoints.newest
        if self._done != done or newest is None or newest[0] != done:
            return
        prompt = PROMPT if self._spec.text is None else ""
        answers = self._pool.order_all(orders.Write(folder=newest[1], prompt=prompt))
        emit("text", prompt=prompt, text=answers[0]["text"])

    def _next_moment_s(self) -> float:
        """Return time 0 of the iteration that is ordered now, on the monotonic clock."""
        # an order takes time to arrive, so time 0 is later by the longest round trip
        head_start_s = HEAD_START_S + max(worker.round_trip_s for worker in self._pool.workers.values())
        self._moment_s = time.monotonic() + head_start_s
        return self._moment_s

    def _collect_spans(self, rows: list[Any]) -> None:
        if self._spec.replays:
            self._span_rows += rows
        else:
            emit("spans", rows=rows)

    def _is_replaceable(self, ranks: Collection[int]) -> bool:
        lost = {*self._without_state, *ranks}
        # before training there is no state to lose
        return self._train_orders is None or self._recovery(lost) is not None

    def _recovery(self, lost: Collection[int]) -> Recovery | None:
        if self._handed is not None:
            return self._handed
        return find_recovery(self._spec, lost, self._done, self._checkpoints.newest)

    def _replace(self, lost: dict[int, str]) -> None:
        """Start new workers for the lost ones, and bring all workers to a state from which the run can continue.

        If a device has left permanently, drop the lost workers and follow a new plan instead. Raises RunFailed if the
        state is lost, if one worker is lost too often, or if no new plan comes.
        """
        pool = self._pool
        for rank, how in lost.items():
            emit("lost", device=pool.device(rank), iteration=self._done, how=how, gone=rank in pool.gone)
        # a device that left gets no replacement, so only a new plan can continue the run
        if pool.gone & lost.keys():
            pool.drop(lost)
            pool.await_plan()
            self._follow()
            return
        blamed: list[int | None] = [*lost] or [None]
        for culprit in blamed:
            self._n_losses[culprit, self._done] += 1
            if self._n_losses[culprit, self._done] > MOST_LOSSES:
                name, how = ("connections", "broke") if culprit is None else (pool.describe(culprit), lost[culprit])
                why = f" ({pool.connection_error})" if culprit is None else ""
                raise RunFailed(f"{name} {how} {pool.phase}, for the {MOST_LOSSES + 1}th time{why}")
        self._refuse_unrecoverable({rank: (how, 0.0) for rank, how in lost.items()} | self._without_state)
        for rank, how in lost.items():
            self._without_state[rank] = how, time.monotonic()
            pool.replace(rank)
        if not lost:  # no ``recovered`` event will say that this iteration's measurements are void
            report = f"connections between workers broke {pool.phase} ({pool.connection_error}) and were made again"
            emit("reconnected", iteration=self._done, message=report)
        self._join()

    def _refuse_unrecoverable(self, lost: Mapping[int, tuple[str, float]]) -> Recovery | None:
        """Return how to continue without the memory of these ranks, or None before training. Damaged checkpoints are
        dropped. Raises RunFailed if the state is lost."""
        if self._train_orders is None:
            return None
        damaged: list[str] = []
        found = self._recovery(lost)
        if self._handed is None and found is not None and found.checkpoint is not None:
            # its contents are checked before all workers rely on it
            damaged = self._checkpoints.forget_damaged()
            warn(*damaged)
            found = self._recovery(lost)
        if found is None:
            rank, (how, _) = min(lost.items())
            pool = self._pool
            why = "; ".join([why_unrecoverable(self._spec, rank), *damaged])
            raise RunFailed(f"{pool.describe(rank)} {how} {pool.phase}: {why}")
        return found

    def _join(self) -> None:
        """Make all connections again. Once training has begun, also bring every worker's state to one version."""
        pool = self._pool
        pool.epoch += 1
        pool.wait_until_listening()
        found = self._refuse_unrecoverable(self._without_state)
        if found is not None:
            self._done = found.version
            # iterations that are repeated report their losses again
            del self._losses[self._done - self._spec.first_iteration :]
        self._span_rows = []
        donors = {} if found is None else found.donors
        each = {
            rank: orders.Join(
                addresses=[worker.address for worker in pool.workers.values()],
                version=None if found is None else found.version,
                checkpoint=None if found is None else found.checkpoint,
                train=None if self._train_orders is None else self._train_orders[rank],
                takes_state_from=donors.get(rank),
                gives_state_to=[other for other, donor in donors.items() if donor == rank],
            )
            for rank in range(len(pool.workers))
        }
        try:
            pool.order_each(orders.Join, each.__getitem__)
        except WorkersLost as loss:  # workers that answered have their state already
            self._report_recovered(self._without_state.keys() & loss.answered, found)
            raise
        pool.send_slowdowns_again(self._without_state)
        self._report_recovered(set(self._without_state), found)

    def _follow(self) -> None:
        """Continue with the new plan, from the newest state that is left."""
        pool, before, began_s = self._pool, self._spec, time.monotonic()
        assert pool.new_plan is not None, "it was sent"
        command, pool.new_plan = pool.new_plan, None
        spec = RunSpec.from_line(command["spec"])
        if spec.clock == "paced":
            spec = replace(spec, time_scale=self._time_scale if self._train_orders is not None else before.time_scale)
        has_state = self._train_orders is not None and self._handed is None and not command["from_checkpoint"]
        shares = has_state and pool.only_loses(spec, self._without_state)
        if self._train_orders is not None and not shares:
            pool.phase = "while a new plan was taken up"
            if self._handed is None or command["from_checkpoint"]:
                self._handed = self._state_for_all(from_checkpoint=command["from_checkpoint"])
        self._spec, self._train_orders = spec, None
        self._checkpoints.follow(spec)
        undone = self._done - (self._done if self._handed is None else self._handed.version)
        self._done -= undone
        del self._losses[self._done - spec.first_iteration :]
        self._without_state.clear()
        self._n_losses.clear()
        self._span_rows = []
        n_kept, started = pool.regroup(spec, self._done if shares else None)
        report = {"iteration": self._done, "undone": undone, "kept": n_kept, "started": len(started)}
        emit("replanned", spec=command["spec"], from_checkpoint=command["from_checkpoint"], **report)
        if shares:
            self._without_state |= dict.fromkeys(started, ("was lost", began_s))
            self._keep_calibration()
        self._until_done(self._join)
        if not shares:
            self._calibrate_and_build()
            if self._handed is not None:
                self._until_done(self._join)  # all read the state
        paced = self._time_scale if spec.clock == "paced" else 0.0
        # a pause is in seconds of the run, and only the paced clock lets these pass
        left_s = command["pause_s"] * paced - (time.monotonic() - began_s)
        if left_s > 0:
            self._until_done(partial(pool.rest, left_s))
        self._ready_s = time.monotonic()
        emit("resumed", iteration=self._done, lost_s=time.monotonic() - began_s)

    def _state_for_all(self, *, from_checkpoint: bool) -> Recovery:
        """Return the state that all workers of a new plan read.

        It is the live workers' state, unless a part of it is lost or ``from_checkpoint`` is True. Then it is the newest
        checkpoint, or the initial state before there is one.
        """
        if not from_checkpoint:
            folder = self._pool.hand_over(self._checkpoints.hand_over_folder, self._done, self._without_state)
            if folder is not None:
                self._checkpoints.handed_over(self._done, folder)
        warn(*self._checkpoints.forget_damaged())
        newest = self._checkpoints.newest
        return Recovery(self._spec.first_iteration) if newest is None else Recovery(newest[0], checkpoint=newest[1])

    def _keep_calibration(self) -> None:
        """Continue with the measured durations of the remaining workers."""
        n, workers = self._spec.plan.job.n_stages, set(self._spec.workers)
        left = {work: took for work, took in self._measured.items() if (work[0] % n, work[1]) in workers}
        self._pool.limits.calibrated(left)
        assert self._calibration is not None, "training had begun"
        rows = [row for row in self._calibration.profile if (row.stage % n, row.replica) in workers]
        self._tell_calibration(self._calibration._replace(profile=rows))

    def _report_recovered(self, ranks: Collection[int], found: Recovery | None) -> None:
        for rank in sorted(ranks):
            how, since_s = self._without_state.pop(rank)
            emit(
                "recovered",
                device=self._pool.device(rank),
                iteration=self._done,
                how=how,
                state_from="the beginning" if found is None else found.describe_source(self._spec, rank),
                lost_s=time.monotonic() - since_s,
            )
