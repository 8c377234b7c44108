"""Which job is planned: its name, its shape and its batch."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.files import job_names, override
from dtfm_lab.widgets.control_state import restore, settings
from dtfm_lab.widgets.lab_state import LabState


class JobControls:
    """Sets ``lab_state.job``; offers the shapes that the network in the lab's state allows."""

    def __init__(self, lab_state: LabState, job: Job | None) -> None:
        self._lab_state, self._base = lab_state, job
        names = list(dict.fromkeys([*([job.name] if job else []), *job_names()]))
        self.job = w.Dropdown(
            options=names,
            value=job.name if job else "small",
            description="Job",
            tooltip="What is trained: its model, precision and batch",
            layout=w.Layout(width="185px"),
            style={"description_width": "38px"},
        )
        self.shape = w.Dropdown(
            description="Shape",
            tooltip="Pipeline stages x data-parallel replicas",
            layout=w.Layout(width="245px"),
            style={"description_width": "48px"},
        )
        self.batch = _count(1_000_000, "Batch", "Sequences per iteration, over all replicas")
        self.microbatch = _count(100_000, "Micro-batch", "Sequences per pipeline step")
        self.view = w.HBox([self.job, self.shape, self.batch, self.microbatch])
        self._filling = False
        self._take_job()
        self.job.observe(lambda _: self._take_job(), "value")
        for control in (self.shape, self.batch, self.microbatch):
            control.observe(lambda _: self._set_job(), "value")
        lab_state.observe(lambda _: self._offer_shapes(), "topology")

    def settings(self) -> dict[str, Any]:
        return settings(self._controls) | {"shape": list(self.shape.value or ())}

    def restore(self, values: dict[str, Any]) -> None:
        restore(self._controls, values)
        shape = values.get("shape")
        if isinstance(shape, list | tuple) and tuple(shape) in [offered for _, offered in self.shape.options]:
            self.shape.value = tuple(shape)

    @property
    def _controls(self) -> dict[str, w.ValueWidget]:
        """The job first, for it sets the others."""
        return {"job": self.job, "batch": self.batch, "microbatch": self.microbatch}

    def _take_job(self) -> None:
        """Fill the controls from the chosen job."""
        given = self._base is not None and self.job.value == self._base.name
        self._chosen = self._base if given and self._base is not None else lab.load_job(self.job.value)
        self._filling = True
        self.batch.value, self.microbatch.value = self._chosen.global_batch, self._chosen.microbatch
        self._filling = False
        self._offer_shapes()

    def _offer_shapes(self) -> None:
        """The shapes that use all devices or, where there are none, as many as can be used; and the plan's, if near."""
        topology = self._lab_state.topology
        if topology is None:
            self._lab_state.job = None
            return
        job = self._sized(self._chosen)
        usable = next((n for n in range(len(topology), 0, -1) if job.shapes(n)), 0)
        shapes = job.shapes(usable) if usable else [(1, 1)]
        wanted = self.shape.value or (self._chosen.n_stages, self._chosen.n_replicas)
        plan = self._lab_state.plan
        if plan is not None and wanted == (plan.job.n_stages, plan.job.n_replicas):
            near = nearest_shape(job, wanted, len(topology))
            if near is not None:
                wanted, shapes = near, sorted({*shapes, near})
        fitted = lab.fitted(job, usable) if usable else job
        fallback = (fitted.n_stages, fitted.n_replicas)
        self._filling = True
        self.shape.options = [(shape_words(s, r, len(topology)), (s, r)) for s, r in shapes]
        self.shape.value = wanted if wanted in shapes else fallback if fallback in shapes else shapes[0]
        self._filling = False
        self._set_job()

    def _sized(self, job: Job) -> Job:
        """The job with the batch of the controls, in one pipeline, which any shape can start from."""
        if job.model is None:
            return job
        try:
            return override(
                job, n_stages=1, n_replicas=1, global_batch=self.batch.value, microbatch=self.microbatch.value
            )
        except LabError:
            return job

    def _set_job(self) -> None:
        if self._filling or self.shape.value is None:
            return
        n_stages, n_replicas = self.shape.value
        sizes = {}
        if self._chosen.model is not None:
            sizes = {"global_batch": self.batch.value, "microbatch": self.microbatch.value}
        try:
            self._lab_state.job = override(self._chosen, n_stages=n_stages, n_replicas=n_replicas, **sizes)
            self._lab_state.message = ""
        except LabError as error:
            self._lab_state.job = None
            self._lab_state.report_error("plan", str(error))


def nearest_shape(job: Job, wanted: tuple[int, int], n_devices: int) -> tuple[int, int] | None:
    """What becomes of a plan's (stages, replicas) when devices come or go: it stays if it fits and leaves fewer idle
    than one more pipeline or group takes; where too few are left, stages or replicas, not both, are given up."""
    n_stages, n_replicas = wanted
    if n_stages * n_replicas <= n_devices:
        return wanted if n_devices - n_stages * n_replicas < max(wanted) else None
    smaller = [(s, n_replicas) for s in range(1, n_stages)] + [(n_stages, r) for r in range(1, n_replicas)]
    possible = [(s, r) for s, r in smaller if s * r <= n_devices and (s, r) in job.shapes(s * r)]
    return max(possible, key=lambda shape: (shape[0] * shape[1], shape[1]), default=None)


def shape_words(n_stages: int, n_replicas: int, n_devices: int) -> str:
    words = " x ".join(
        f"{n} {what}{'' if n == 1 else 's'}" for n, what in ((n_stages, "stage"), (n_replicas, "replica"))
    )
    idle = n_devices - n_stages * n_replicas
    return f"{words}, {idle} idle" if idle > 0 else words


def _count(most: int, name: str, tooltip: str) -> w.BoundedIntText:
    return w.BoundedIntText(
        1,
        min=1,
        max=most,
        description=name,
        tooltip=tooltip,
        layout=w.Layout(width=f"{90 + 8 * len(name)}px"),
        style={"description_width": f"{8 * len(name)}px"},
    )
