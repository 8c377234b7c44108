"""The job that is planned: its name, its shape and its batch."""

from typing import Any

import ipywidgets as w

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.options import options_of
from dtfm_lab.files import job_names, override
from dtfm_lab.widgets.controls import control_for, labelled, restore_values, values_of
from dtfm_lab.widgets.lab_state import Guard, LabState


class JobControls:
    """Sets ``lab_state.job``, and offers the shapes that the drawn network allows."""

    def __init__(self, lab_state: LabState, job: Job | None) -> None:
        self._lab_state, self._base = lab_state, job
        names = list(dict.fromkeys([*([job.name] if job else []), *job_names()]))
        self.job = labelled(
            w.Dropdown,
            "Job",
            "185px",
            "38px",
            options=names,
            value=job.name if job else "small",
            tooltip="What is trained: its model, precision and batch",
        )
        self.shape = labelled(w.Dropdown, "Shape", "245px", "48px", tooltip="Pipeline stages x data-parallel replicas")
        options = {option.name: option for option in options_of(Job)}
        self.batch, self.microbatch = control_for(options["global_batch"]), control_for(options["microbatch"])
        self.view = w.HBox([self.job, self.shape, self.batch, self.microbatch])
        self._is_filling = Guard()
        self._take_job()
        self.job.observe(lambda _: self._take_job(), "value")
        for control in (self.shape, self.batch, self.microbatch):
            control.observe(lambda _: self._set_job(), "value")
        lab_state.observe(lambda _: self._offer_shapes(), "topology")

    def settings(self) -> dict[str, Any]:
        return values_of(self._controls) | {"shape": list(self.shape.value or ())}

    def restore(self, settings: dict[str, Any]) -> None:
        """Set the controls to saved values; unknown or impossible values are ignored."""
        restore_values(self._controls, settings)
        shape = settings.get("shape")
        if isinstance(shape, list | tuple) and tuple(shape) in [offered for _, offered in self.shape.options]:
            self.shape.value = tuple(shape)

    @property
    def _controls(self) -> dict[str, w.ValueWidget]:
        """Restored in this order, as the job sets the others."""
        return {"job": self.job, "batch": self.batch, "microbatch": self.microbatch}

    def _take_job(self) -> None:
        """Fill the controls from the chosen job."""
        given = self._base is not None and self.job.value == self._base.name
        self._chosen = self._base if given and self._base is not None else lab.load_job(self.job.value)
        with self._is_filling:
            self.batch.value, self.microbatch.value = self._chosen.global_batch, self._chosen.microbatch
        self._offer_shapes()

    def _offer_shapes(self) -> None:
        """Offer the shapes that use the most devices, and the plan's, or one near it, if that fits."""
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
        with self._is_filling:
            self.shape.options = [(shape_words(s, r, len(topology)), (s, r)) for s, r in shapes]
            self.shape.value = wanted if wanted in shapes else fallback if fallback in shapes else shapes[0]
        self._set_job()

    def _sized(self, job: Job) -> Job:
        """Return the job with the batch of the controls, of one stage and one replica, to try every shape on."""
        if job.model is None:
            return job
        try:
            return override(
                job, n_stages=1, n_replicas=1, global_batch=self.batch.value, microbatch=self.microbatch.value
            )
        except LabError:
            return job

    def _set_job(self) -> None:
        if self._is_filling or self.shape.value is None:
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
    """Return the (stages, replicas) nearest to the wanted ones when devices come or go; None where none is near.

    A shape stays if it fits and leaves fewer devices idle than one more pipeline or group takes. Where too few are
    left, there are fewer stages or fewer replicas, not both.
    """
    n_stages, n_replicas = wanted
    if n_stages * n_replicas <= n_devices:
        return wanted if n_devices - n_stages * n_replicas < max(wanted) else None
    smaller = [(s, n_replicas) for s in range(1, n_stages)] + [(n_stages, r) for r in range(1, n_replicas)]
    possible = [(s, r) for s, r in smaller if s * r <= n_devices and (s, r) in job.shapes(s * r)]
    return max(possible, key=lambda shape: (shape[0] * shape[1], shape[1]), default=None)


def shape_words(n_stages: int, n_replicas: int, n_devices: int) -> str:
    """Return ``4 stages x 2 replicas, 1 idle``."""
    words = " x ".join(
        f"{n} {what}{'' if n == 1 else 's'}" for n, what in ((n_stages, "stage"), (n_replicas, "replica"))
    )
    idle = n_devices - n_stages * n_replicas
    return f"{words}, {idle} idle" if idle > 0 else words
