"""How large a message is: what the simulator charges and what the emulated links charge."""

from __future__ import annotations

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.schedule import Action, Kind


def message_bytes(job: Job, action: Action) -> float:
    """Bytes that a send carries: one micro-batch of activations, or one replica's shard of the gradient."""
    match action.kind:
        case Kind.SEND_F | Kind.SEND_B:
            return job.activation_bytes
        case Kind.SEND_G | Kind.SEND_P:
            return job.stage_gradient_bytes[action.stage] / job.n_replicas
    raise ValueError(f"{action} sends nothing")
