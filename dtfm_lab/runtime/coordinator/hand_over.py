"""The state of a run goes to a new plan: from the living where they have all of it, else from a checkpoint."""

from collections.abc import Collection

from dtfm_lab.runtime.coordinator.recovery import CheckpointPolicy, Recovery, holders
from dtfm_lab.runtime.coordinator.worker_pool import RunFailed, WorkerPool, WorkersLost
from dtfm_lab.runtime.protocol.run_options import RunSpec


def hand_over(
    spec: RunSpec,
    pool: WorkerPool,
    checkpoints: CheckpointPolicy,
    done: int | None,
    checkpoint: tuple[int, str] | None,
    stateless: Collection[int],
) -> Recovery:
    """Return the state that all workers of a new plan will read; those that are lost meanwhile leave the pool.

    The state goes through files in the layout of a checkpoint, which any cut can read. Where a part of it is left with
    nobody and there is no checkpoint, all begin again.

    Parameters
    ----------
    done
        Iterations that the living have done; None to go back to the checkpoint, or else to the beginning.
    checkpoint
        Iterations and folder of the newest one.
    stateless
        Ranks whose workers have not got their state yet.
    """
    while done is not None:
        givers = holders(spec, pool.workers.keys() - set(stateless))
        if givers is None:
            break
        folder = str(checkpoints.hand_over_folder())
        pool.epoch += 1
        unlike = len(givers) > spec.plan.job.n_stages
        each = {rank: {"writes": rank in givers, "each": unlike} for rank in pool.workers}
        try:
            answers = pool.order_all("hand_over", each, folder=folder, version=done)
        except WorkersLost as loss:
            pool.drop(loss.how)
            continue
        if unwritten := [answer["unwritten"] for answer in answers if answer["unwritten"]]:
            raise RunFailed(f"no state could be handed over to a new plan: {unwritten[0]}")
        return Recovery(done, checkpoint=folder)
    if checkpoint is not None:
        return Recovery(checkpoint[0], checkpoint=checkpoint[1])
    return Recovery(spec.first_iteration)
