"""The process between the kernel and the workers: starts them, keeps them in step, replaces who is lost, ends them.

``python -m dtfm_lab.runtime.coordinator.coordinator`` reads a RunSpec as its first line of standard input, then
commands; it writes events as JSON lines. It loads torch once and forks the workers, which saves each the import.
End of input means that the kernel is gone: then every worker is killed.

An iteration counts once every worker has finished it. Where one is lost before, the others go back to where that
iteration began, a replacement gets its state from a replica, or all read a checkpoint, and it is done anew: losses
are those of an undisturbed run.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.fx.experimental.symbolic_shapes  # autograd would load it in every worker, at the first backward

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.runtime.coordinator.calibration import Expected, Work, expected
from dtfm_lab.runtime.coordinator.checkpoint_policy import Keeper
from dtfm_lab.runtime.coordinator.recovery import Recovery, nothing_left, recovery
from dtfm_lab.runtime.coordinator.replay import replayed
from dtfm_lab.runtime.coordinator.worker_handle import Seats, forked
from dtfm_lab.runtime.coordinator.worker_pool import Answer, Failed, Lost, Roster
from dtfm_lab.runtime.gpu.nccl import refuse_shared
from dtfm_lab.runtime.protocol.json_lines import KernelGone, StandardInput, tell
from dtfm_lab.runtime.protocol.profile import FEWEST, LONG_S, MOST, WARM_UPS, Measured
from dtfm_lab.runtime.protocol.run_spec import RunSpec

HEAD_START_S = 0.02
"""between the order to begin an iteration and its moment 0"""
PROMPT = "It is a truth "
"""what a model that was trained on the lab's own text goes on from"""
MOST_FALLS = 3
"""of one device in one iteration; more than that is no accident"""
FIRST_REHEARSAL, FIRST_EVALUATION = -(10**4), -(10**6)
"""numbers that no iteration has, counted upwards and downwards"""


class Crew:
    """``run`` is the whole story; ``end`` leaves no process behind."""

    def __init__(self, spec: RunSpec, commands: StandardInput, seats: Seats) -> None:
        self._spec = spec
        self._keeper = Keeper(spec)
        self._done = spec.first_iteration
        self._losses: list[float] = []
        self._training: dict[int, dict[str, Any]] | None = None
        """by rank: the order to build what is trained, once there is one"""
        self._needy: dict[int, tuple[str, float]] = {}
        """ranks whose worker has no state yet: how the one before was lost, and when"""
        self._checkpoint = None if spec.resume_from is None else (spec.first_iteration, spec.resume_from)
        """iterations and folder of the newest"""
        self._rows: list[list[Any]] = []
        """what an iteration's workers reported, where that is played again before it is told"""
        self._falls: Counter[tuple[int | None, int]] = Counter()
        self._late_messages = self._overruns = self._n_evaluations = 0
        self._roster = Roster(spec, commands, seats, replaceable=self._replaceable, on_spans=self._pass_on)

    def run(self) -> None:
        """From joining to the last iteration."""
        spec, last = self._spec, self._spec.first_iteration + self._spec.iterations
        self._surely(self._join)
        tell("ready", workers=len(spec.workers), torch=torch.__version__)
        self._roster.doing = "in the rehearsals"
        self._build(expected(spec, self._surely(self._rehearse)))
        answers: list[Answer] = []
        while self._done < last or not answers:  # a loss after the last iteration may take the run back
            while self._done < last:
                self._one_more(last)
            self._roster.doing = "while leaving"
            answers = self._surely(lambda: self._roster.all("leave"))
        for (position, replica), answer in zip(spec.workers, answers, strict=True):
            tell("parameters", stage=position, replica=replica, sha256=answer["sha256"])
        self._roster.leave()

    def _one_more(self, last: int) -> None:
        """An iteration, and what is due after it."""
        spec = self._spec
        self._roster.doing = f"in iteration {self._done}"
        self._welcome_back()
        self._surely(self._iterate)
        done = self._done
        self._roster.doing = f"after iteration {done - 1}"
        if done == last or _due(done, spec.evaluate_every):
            self._surely(lambda: self._evaluate(done))
        if self._keeper.wants(done, last):
            self._surely(lambda: self._keep_checkpoint(done))
        if done == last and spec.sample_bytes:
            self._surely(lambda: self._write(done))

    def end(self) -> None:
        self._roster.end()
        self._keeper.close()

    def _surely(self, phase: Callable[[], Any]) -> Any:
        """Do it, and again after every loss, until it is done."""
        lost: Lost | None = None
        while True:
            try:
                if lost is not None:
                    self._replace(lost.how)
                    lost = None
                return phase()
            except Lost as loss:
                lost = loss

    def _rehearse(self) -> dict[Work, Measured]:
        """Iterations on copies of the stages; by stage, replica and kind what they took."""
        n_counted, counted_s, number, warm_ups = 0, 0.0, FIRST_REHEARSAL, WARM_UPS
        while n_counted < MOST and (n_counted < FEWEST or counted_s < LONG_S):
            counts, began_s = warm_ups <= 0, time.monotonic()
            self._begin("rehearse", iteration=number, counts=counts, first=number == FIRST_REHEARSAL)
            took_s = time.monotonic() - began_s
            number, n_counted, counted_s = number + 1, n_counted + counts, counted_s + took_s * counts
            warm_ups -= WARM_UPS if took_s > LONG_S else 1
        answers = self._roster.all("profile")
        return {
            (stage, self._spec.workers[rank][1], Kind(kind)): Measured(*figures)
            for rank, answer in enumerate(answers)
            for stage, kind, *figures in answer["rows"]
        }

    def _build(self, known: Expected) -> None:
        """Tell the workers what each computation is expected to take, and how slowly time passes."""
        tell("profile", rows=known.profile, time_scale=known.time_scale, stretched=known.stretched)
        self._training = {}
        for rank, (position, replica) in enumerate(self._spec.workers):
            held = self._spec.built.stages_of(position)
            own = [(row.stage, row.kind, row.seconds) for row in known.profile if row.replica == replica]
            drawn_s = [row for row in own if row[0] in held]
            self._training[rank] = {"drawn_s": drawn_s, "time_scale": known.time_scale}
        self._surely(lambda: self._roster.all("train", each=self._training))

    def _iterate(self) -> None:
        answers = self._begin("iterate", iteration=self._done)
        losses = [answer["loss"] for answer in answers if answer["loss"] is not None]
        self._losses.append(sum(losses) / len(losses))
        self._late_messages += sum(answer["late_messages"] for answer in answers)
        self._overruns += sum(answer["overruns"] for answer in answers)
        if self._spec.replays:
            tell("spans", rows=replayed(self._spec, self._done, self._rows))
            self._rows = []
        tell(
            "iteration",
            iteration=self._done,
            loss=self._losses[-1],
            late_messages=self._late_messages,
            overruns=self._overruns,
        )
        self._done += 1

    def _evaluate(self, done: int) -> None:
        if self._done != done:  # a loss took the run back; this will be due again
            return
        self._n_evaluations += 1
        answers = self._roster.all("evaluate", number=FIRST_EVALUATION - self._n_evaluations)
        losses = [answer["loss"] for answer in answers if answer["loss"] is not None]
        entropy = answers[0]["unigram_entropy"]
        tell("held_out", iteration=done, loss=sum(losses) / len(losses), unigram_entropy=entropy)

    def _keep_checkpoint(self, done: int) -> None:
        if self._done != done:
            return
        with self._keeper.new(done, self._losses) as folder:
            self._roster.all("checkpoint", folder=str(folder))
        self._checkpoint = done, str(folder)
        if self._spec.checkpoint_folder is not None:
            tell("checkpoint", iteration=done, folder=str(folder))

    def _write(self, done: int) -> None:
        """Let the trained model write, one worker doing it."""
        if self._done != done or self._checkpoint is None:
            return
        prompt = PROMPT if self._spec.text is None else ""
        answers = self._roster.all("write", folder=self._checkpoint[1], prompt=prompt)
        tell("text", prompt=prompt, text=answers[0]["text"])

    def _begin(self, do: str, **order: Any) -> list[Answer]:
        return self._roster.all(do, began_monotonic_s=time.monotonic() + HEAD_START_S, **order)

    def _pass_on(self, rows: list[Any]) -> None:
        if self._spec.replays:
            self._rows += rows
        else:
            tell("spans", rows=rows)

    def _replaceable(self, ranks: Collection[int]) -> bool:
        lost = {*self._needy, *ranks}
        return self._training is None or recovery(self._spec, lost, self._done, self._checkpoint) is not None

    def _replace(self, lost: dict[int, str]) -> None:
        """New workers on the places of those who are lost, and everyone where the run can go on."""
        for rank, how in lost.items():
            tell("lost", device=self._roster.device(rank), iteration=self._done, how=how)
        for rank in lost or [None]:
            self._falls[rank, self._done] += 1
            if self._falls[rank, self._done] > MOST_FALLS:
                name, how = ("connections", "broke") if rank is None else (self._roster.name(rank), lost[rank])
                why = f" ({self._roster.glitch})" if rank is None else ""
                raise Failed(f"{name} {how} {self._roster.doing}, for the {MOST_FALLS + 1}th time{why}")
        for rank in self._roster.settle(done=False):
            self._needy.pop(rank, None)
        for rank, how in lost.items():
            self._needy[rank] = how, time.monotonic()
            self._roster.replace(rank, how, may_return=self._training is not None)
        self._join()

    def _welcome_back(self) -> None:
        """Who stood still and moves again takes its place back, where a replica has its state."""
        for rank, seat in self._roster.returned().items():
            if recovery(self._spec, [rank], self._done, None) is None:
                seat.end()
                continue
            self._needy[rank] = "came back", time.monotonic()
            self._roster.seat_again(rank, seat)
            self._surely(self._join)

    def _join(self) -> None:
        """Make all connections anew; where training has begun, bring everyone's state to one version."""
        roster = self._roster
        roster.epoch += 1
        roster.listening()
        found = None
        if self._training is not None:
            found = recovery(self._spec, self._needy, self._done, self._checkpoint)
            if found is None:
                rank, (how, _) = min(self._needy.items())
                raise Failed(f"{roster.name(rank)} {how} {roster.doing}: {nothing_left(self._spec, rank)}")
            self._done = found.version
            del self._losses[self._done - self._spec.first_iteration :]
        self._rows = []
        donors = {} if found is None else found.donors
        each = {
            rank: {
                "train": None if self._training is None else self._training[rank],
                "takes_state_from": donors.get(rank),
                "gives_state_to": [other for other, donor in donors.items() if donor == rank],
            }
            for rank in range(len(roster.seats))
        }
        try:
            roster.all(
                "join",
                each,
                ids=self._ids(each),
                addresses=[seat.address for seat in roster.seats],
                version=None if found is None else found.version,
                checkpoint=None if found is None else found.checkpoint,
            )
        except Lost as loss:  # but who answered has its state
            self._tell_recovered(self._needy.keys() & loss.answered, found)
            raise
        roster.settle(done=True)
        roster.slow_again(self._needy)
        self._tell_recovered(set(self._needy), found)

    def _tell_recovered(self, ranks: Collection[int], found: Recovery | None) -> None:
        for rank in sorted(ranks):
            how, since_s = self._needy.pop(rank)
            tell(
                "recovered",
                device=self._roster.device(rank),
                iteration=self._done,
                how=how,
                state_from="the beginning" if found is None else found.told(self._spec, rank),
                lost_s=time.monotonic() - since_s,
            )

    def _ids(self, each: dict[int, dict[str, Any]]) -> list[list[Any]]:
        """By which the two ends of every pair of GPUs meet: sender, receiver, id; none where sockets carry all."""
        if self._spec.runs_on != "cuda" or self._spec.clock != "real":
            return []
        offers = self._roster.all("offer", each)
        if any(offer["gpu"] is None for offer in offers):
            return []
        refuse_shared([offer["gpu"] for offer in offers])
        return [pair for offer in offers for pair in offer["ids"]]


def _due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0


def main() -> None:
    torch.set_num_threads(1)
    gc.freeze()  # what was imported stays: workers, which are forks, need not look through it
    commands = StandardInput()
    crew = None
    try:
        spec = RunSpec.from_line(commands.first_line())
        tell("starting", workers=len(spec.workers))
        crew = Crew(spec, commands, forked(spec))
        crew.run()
        tell("done")
    except KernelGone:
        with contextlib.suppress(OSError):  # nobody may be there to read it
            tell("stopped")
    except (Failed, LabError) as error:
        tell("failed", message=str(error))
    finally:
        if crew is not None:
            crew.end()
    os._exit(0)  # torch takes its time to unload


if __name__ == "__main__":
    main()
