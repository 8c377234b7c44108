"""The missions of the lessons; importing this registers them all."""

from dtfm_lab.course.tasks import (
    capstone,
    cost_model,
    data_and_pipeline,
    first_steps,
    five_steps,
    memory,
    network,
    published_numbers,
    real_runs,
    schedules,
    searching,
    seconds,
    sending_less,
    systems,
    unequal_devices,
)

__all__ = [
    "capstone",
    "cost_model",
    "data_and_pipeline",
    "first_steps",
    "five_steps",
    "memory",
    "network",
    "published_numbers",
    "real_runs",
    "schedules",
    "searching",
    "seconds",
    "sending_less",
    "systems",
    "unequal_devices",
]
