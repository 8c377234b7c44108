"""Models as sequences of layers, jobs that cut them into stages, and presets of both.

A Job says how many stages, replicas and micro-batches there are, and how messages are compressed. Message sizes follow
from it. Whatever it leaves open, a planner chooses.
"""

from dtfm_lab.domain.job.job import Job
from dtfm_lab.domain.job.model import (
    BACKWARD_PER_FORWARD,
    BYTES_PER_ELEMENT,
    Layer,
    LayerKind,
    ModelSpec,
    estimated_held,
    even_shares,
    gpt,
    llama,
    moe,
    with_adapters,
)
from dtfm_lab.domain.job.options import (
    COMPRESSIONS,
    INT8_BLOCK,
    LEFT_TO_PLANNERS,
    Coding,
    JobChanges,
    JobOptions,
    coded_bytes,
    compressed_bytes,
)
from dtfm_lab.domain.job.presets import GPT3_XL, JOBS, MODELS, SMALL, TINY
from dtfm_lab.domain.job.sizes import (
    boundary_bytes,
    boundary_of,
    buckets_of,
    copied_elements,
    device_average_bytes,
    device_expert_elements,
    device_gradient_bytes,
    device_gradient_elements,
    frozen_bytes,
    kept_elements,
    message_bytes,
    moved_elements,
    needed_elements,
    repeated_flop,
    whole_copies,
)
