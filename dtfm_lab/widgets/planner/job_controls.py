"""Controls of the job: its name, shape, batch and schedule, each pinned or left to the planner.

The controls of the objective and its limits are here as well.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import MOST_COUNT, Option, options_of
from dtfm_lab.domain.units import counted
from dtfm_lab.figures.measures import MEASURES, ObjectiveWords, measure_of
from dtfm_lab.files import job_names, override
from dtfm_lab.planning import default_objective, objectives
from dtfm_lab.planning.iteration.problem import divisors
from dtfm_lab.simulation import schedules
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import CHOOSES, SavedControls, controls_for, labelled, menu, show
from dtfm_lab.widgets.lab_state import Guard, LabState, is_another

COMMUNICATION = "communication"
UNLIMITED = 0.0
LABEL_WIDTH = "164px"
"""CSS width of the labels of these controls, and of the controls below them in a menu, so that their fields line up."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that a plan must not exceed."""

    max_price_per_hour: Annotated[
        float, Option(help="Only plans whose devices cost at most this much per hour. 0: no limit.", least=UNLIMITED)
    ] = UNLIMITED
    max_iteration_s: Annotated[
        float, Option(help="Only plans whose iteration takes at most this long. 0: no limit.", least=UNLIMITED)
    ] = UNLIMITED


class ObjectiveControls(SavedControls):
    """The menu of objectives, with limits. It starts with the job's default objective.

    If another job has another default, the menu changes to that. A job without a model allows only the communication
    cost.
    """

    def __init__(self, lab_state: LabState, changed: Callable[[], None]) -> None:
        self._lab_state = lab_state
        self._changed: Callable[[], None] = lambda: None
        self.on_edit: Callable[[], None] = lambda: None
        """Called after the user has chosen another objective, or other limits."""
        self._default = ""
        self._is_offering, self._is_following = Guard(), Guard()
        offered = [(measure.choice, name) for name, measure in MEASURES.items()]
        what = "the simulated iteration time, the price of tokens, or the paper's communication cost"
        width = f"calc({LABEL_WIDTH} + 194px)"
        self.objective = menu("Plan for", width, LABEL_WIDTH, offered, f"What the search minimises: {what}")
        limits = controls_for(Limits, LABEL_WIDTH)
        self.max_price, self.max_seconds = limits.values()
        self.limits = w.VBox(list(limits.values()))
        self._controls = {"objective": self.objective, **limits}
        self._settled = self.settings()
        """Values of the controls after the last change. Undoing the next change restores them."""
        lab_state.history.add_part("objective", self.settings, self.restore)
        for control in self._controls.values():
            control.observe(lambda _: self._keep(), "value")
        self.objective.observe(lambda _: self._show(), "value")
        lab_state.observe(lambda _: self._follow(), "job")
        self._follow()
        self._changed = changed

    @property
    def measure(self) -> ObjectiveWords:
        """Title, unit and phrases for values of the chosen objective."""
        return measure_of(self.objective.value)

    def options(self) -> dict[str, Any]:
        """Return the objective, the limits and the queueing, as keywords of a search. The communication cost has no
        limits and no queueing."""
        given: dict[str, Any] = {"objective": self.objective.value}
        if self.objective.value == COMMUNICATION:
            return given
        given["queueing"] = self._lab_state.queueing
        limits = {name: control.value for name, control in self._controls.items() if name != "objective"}
        return given | {name: limit for name, limit in limits.items() if limit > UNLIMITED}

    def restore(self, settings: object) -> None:
        """Set the controls to saved values."""
        with self._is_following:
            super().restore(settings)
        self._settled = self.settings()

    def _follow(self) -> None:
        """Offer the objectives that the job supports."""
        job = self._lab_state.job
        if job is None:
            return
        known = [*MEASURES, *(name for name in objectives if name not in MEASURES)]
        # Without a model nothing can be simulated, which leaves only the paper's cost.
        offered = [COMMUNICATION] if job.model is None else known
        options = [(measure_of(name).choice, name) for name in offered]
        default, kept = default_objective(job), self.objective.value
        with self._is_offering, self._is_following:
            if options != list(self.objective.options):
                self.objective.options = options
            # What the user chose stays, unless the job suggests another objective than the last one did.
            self.objective.value = kept if kept in offered and default == self._default else default
        self._default, self._settled = default, self.settings()
        self._show()

    def _keep(self) -> None:
        """Record a change by the user, so that it can be undone."""
        before, self._settled = self._settled, self.settings()
        # The panel's own changes are not edits of the user.
        if self._is_following or before == self._settled:
            return
        was, now = (measure_of(settings["objective"]).choice for settings in (before, self._settled))
        label = f"{was} → {now}" if was != now else "Limits changed"
        self._lab_state.history.keep(label, objective=before)
        self.on_edit()

    def _show(self) -> None:
        if self._is_offering:
            return
        show(self.limits, self.objective.value != COMMUNICATION)
        self._changed()


OPEN_SHAPE: tuple[int, ...] = ()
OPEN_MICROBATCH = 0
OPEN_SCHEDULE = ""
"""Value of the schedule menu that leaves the choice to the planner. ``OPEN_SHAPE`` and ``OPEN_MICROBATCH`` are the same
for their menus."""


class JobControls(SavedControls):
    """Sets ``lab_state.job``. Offers the planner's choice and the shapes that the drawn network allows."""

    def __init__(self, lab_state: LabState, job: Job | None) -> None:
        self._lab_state, self._base = lab_state, job
        names = list(dict.fromkeys([*([job.name] if job else []), *job_names()]))
        what = "What is trained: its model, precision and batch"
        self.job = menu("Job", "185px", "38px", names, what, value=job.name if job else "small")
        self.shape = menu("Shape", "265px", "48px", (), "Pipeline stages x data-parallel replicas")
        options = {option.name: option for option in options_of(Job)}
        # an unbounded field, because a bounded one would silently turn a batch of 0 into 1; the job refuses 0 clearly
        self.batch = labelled(w.IntText, "Batch", "125px", "45px", tooltip=options["global_batch"].help)
        offered = [(CHOOSES, OPEN_MICROBATCH)]
        self.microbatch = menu("Micro-batch", "262px", "82px", offered, "Sequences per pipeline step")
        named = [(CHOOSES, OPEN_SCHEDULE), *((name, name) for name in schedules)]
        order = "The order in which devices process micro-batches. The communication cost does not depend on it"
        self.schedule = menu("Schedule", "250px", "68px", named, order)
        # in the order of restoring, as the job sets the others, and the batch the micro-batches
        of_job = {"batch": self.batch, "microbatch": self.microbatch, "schedule": self.schedule}
        self._controls = {"job": self.job} | of_job
        rows = [self.job, self.shape, self.batch], [self.microbatch, self.schedule]
        self.view = w.VBox([w.HBox(row) for row in rows])
        self._is_filling, self._is_chosen = Guard(), Guard()
        self._settled = self._state()
        """Values of the controls when they last set the job."""
        self._take_job()
        lab_state.history.add_part("job", self._state, self._put)
        self.job.observe(lambda _: self._choose_job(), "value")
        self.batch.observe(lambda _: self._offer_microbatches(), "value")
        for control in (self.shape, *of_job.values()):
            control.observe(lambda _: self._set_job(by_hand=True), "value")
        self._drawn: Topology | None = lab_state.topology
        """The last network that was drawn."""
        lab_state.observe(lambda _: self._follow_network(), "topology")

    def take(self, job: Job) -> None:
        """Choose ``job`` instead of the menu's job of the same name. If its shape is not offered, set another one."""
        self._base = job
        with self._is_filling:
            self.job.options = list(dict.fromkeys([job.name, *self.job.options]))
            self.job.value = job.name
        self._take_job(as_is=True)

    def _state(self) -> tuple[Job | None, dict[str, Any], Job | None]:
        return self._base, self.settings(), self._lab_state.job

    def _put(self, state: tuple[Job | None, dict[str, Any], Job | None]) -> None:
        """Restore what ``_state`` returned before an edit."""
        base, settings, job = state
        if state == self._state():
            return
        # The job's name would otherwise load the job again.
        self._base = base
        with self._is_filling:
            self.job.value = settings["job"]
        self._take_job(as_is=True)
        self.restore(settings)
        self._lab_state.job, self._lab_state.message = job, ""
        self._settled = self._state()

    def _choose_job(self) -> None:
        with self._is_chosen:
            self._take_job()

    def _follow_network(self) -> None:
        """Offer the shapes that suit the drawn network. An edited network keeps the chosen shape, an unrelated one
        resets it to the job's."""
        before, now = self._drawn, self._lab_state.topology
        self._drawn = now or before
        another = before is None or now is None or is_another(before, now)
        self._offer_shapes(None if another else self.shape.value)

    def take_exactly(self, job: Job) -> None:
        """Choose a job with everything it specifies, including its shape."""
        self.take(job)
        # Fields that are open leave the shape to the planner, so the menu has nothing to add.
        topology, shape = self._lab_state.topology, (job.n_stages, job.n_replicas)
        if topology is None or None in shape:
            return
        if shape not in [offered for _, offered in self.shape.options]:  # it leaves more devices idle than it need
            self.shape.options = [*self.shape.options, (shape_words(*shape, len(topology)), shape)]
        self.shape.value = shape
        self._set_job()

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"shape": list(self.shape.value or ())}

    def restore(self, settings: dict[str, Any]) -> None:
        """Set the controls to saved values. Unknown or impossible values are ignored."""
        batch = settings.get("batch")
        if isinstance(batch, int) and not 1 <= batch <= MOST_COUNT:
            settings = {name: value for name, value in settings.items() if name != "batch"}
        super().restore(settings)
        shape = settings.get("shape")
        if isinstance(shape, list | tuple) and tuple(shape) in [offered for _, offered in self.shape.options]:
            self.shape.value = tuple(shape)

    def _take_job(self, *, as_is: bool = False) -> None:
        """Fill the controls from the chosen job.

        If the menu leaves the shape to the planner, it stays so, and so does an open micro-batch or schedule. With
        ``as_is``, all fields are the job's.
        """
        if self._is_filling:
            return
        given = self._base is not None and self.job.value == self._base.name
        self._chosen = job = self._base if given and self._base is not None else lab.load_job(self.job.value)
        stays_open = not as_is and self.shape.value == OPEN_SHAPE and job.model is not None
        microbatch = (None if stays_open and self.microbatch.value == OPEN_MICROBATCH else job.microbatch) or 0
        with self._is_filling:
            self.batch.value = job.global_batch
            self._offer_microbatches(also=microbatch)
            self.microbatch.value = microbatch
            names = [name for _, name in self.schedule.options]
            if job.schedule is not None and job.schedule not in names:  # registered since, or by a plug-in
                self.schedule.options = [*self.schedule.options, (job.schedule, job.schedule)]
            if not (stays_open and self.schedule.value == OPEN_SCHEDULE):
                self.schedule.value = job.schedule or OPEN_SCHEDULE
        is_open = stays_open or None in (job.n_stages, job.n_replicas)
        self._offer_shapes(OPEN_SHAPE if is_open else None if as_is else self.shape.value)

    def _offer_microbatches(self, also: int | None = None) -> None:
        """Offer the micro-batches that divide the batch, and the current one."""
        batch, kept = self.batch.value, self.microbatch.value if also is None else also
        if not 1 <= batch <= MOST_COUNT:
            return  # the job says what is wanted
        # The current one stays even if it divides nothing: an error is better than a silent change of the user's
        # choice.
        sizes = sorted({*divisors(batch), kept} - {OPEN_MICROBATCH})
        chooses = [] if self._chosen.model is None else [(CHOOSES, OPEN_MICROBATCH)]
        with self._is_filling:
            self.microbatch.options = [*chooses, *((f"{n:,}", n) for n in sizes)]
            if kept in [size for _, size in self.microbatch.options]:
                self.microbatch.value = kept

    def _offer_shapes(self, wanted: tuple[int, ...] | None) -> None:
        """Offer the planner's choice and the shapes that use the most devices, and choose ``wanted``. None stands for
        the job's own shape.

        If the plan has the wanted shape, the nearest shape that fits is offered and chosen, because devices may have
        come or gone. If the wanted shape is not offered, the most square one is chosen.
        """
        topology = self._lab_state.topology
        if topology is None:
            self._lab_state.job = None
            return
        job = self._sized(self._chosen)
        shapes = self._shapes(job, len(topology))
        if wanted is None:
            is_open = None in (self._chosen.n_stages, self._chosen.n_replicas)
            wanted = OPEN_SHAPE if is_open else (self._chosen.n_stages, self._chosen.n_replicas)
        plan = self._lab_state.plan
        if plan is not None and wanted == (plan.job.n_stages, plan.job.n_replicas):
            # Devices may have joined or left since, so the nearest shape that the network allows is offered.
            near = nearest_shape(job, (plan.job.n_stages, plan.job.n_replicas), len(topology))
            if near is not None and (job.model is not None or near[0] == job.n_stages):
                wanted, shapes = near, sorted({*shapes, near})
        fallback = min(shapes, key=lambda shape: (abs(shape[0] - shape[1]), -shape[0]))
        chooses = [] if self._chosen.model is None else [(self._open_words, OPEN_SHAPE)]
        with self._is_filling:
            self.shape.options = [*chooses, *((shape_words(s, r, len(topology)), (s, r)) for s, r in shapes)]
            offered = [shape for _, shape in self.shape.options]
            self.shape.value = wanted if wanted in offered else fallback
        self._set_job()

    def _shapes(self, job: Job, n_devices: int) -> list[tuple[int, ...]]:
        """Return the shapes that use all devices, or as many as possible.

        A job with given message sizes keeps its number of stages, because the sizes are per stage.
        """
        if job.model is None:
            return [(job.n_stages, max(n_devices // job.n_stages, 1))]
        usable = next((n for n in range(n_devices, 0, -1) if job.shapes(n)), 0)
        return [*job.shapes(usable)] if usable else [(1, 1)]

    @property
    def _open_words(self) -> str:
        """Text of the menu entry that leaves the shape to the planner. If the job pins only the stages or only the
        replicas, it names their number."""
        job = self._chosen
        if job.n_stages is not None and job.n_replicas is None:
            return f"{counted(job.n_stages, 'stage')}; {CHOOSES} replicas"
        if job.n_replicas is not None and job.n_stages is None:
            return f"{counted(job.n_replicas, 'replica')}; {CHOOSES} stages"
        return CHOOSES

    def _sized(self, job: Job) -> Job:
        """Return the job with the controls' batch, one stage and one replica, so that every shape can be tried on
        it."""
        if job.model is None:
            return job
        microbatch = self.microbatch.value or 1
        try:
            return override(job, n_stages=1, n_replicas=1, global_batch=self.batch.value, microbatch=microbatch)
        except LabError:
            return job

    def _set_job(self, *, by_hand: bool = False) -> None:
        """Set the job from the controls, or None if it is refused. ``by_hand`` records an edit that can be undone."""
        if self._is_filling or self.shape.value is None:
            return
        chosen = self._chosen
        given: dict[str, Any] = {"schedule": self.schedule.value or None}
        if self.shape.value:
            given["n_stages"], given["n_replicas"] = self.shape.value
        elif None not in (chosen.n_stages, chosen.n_replicas):
            # The chosen job names a shape, but the user leaves it to the planner.
            given["n_stages"] = given["n_replicas"] = None
        if chosen.model is not None:
            given |= {"global_batch": self.batch.value, "microbatch": self.microbatch.value or None}
        try:
            job = override(chosen, **given)
            before = self._settled[2]  # undo must not go back to a job that was refused since
            if (by_hand or self._is_chosen) and before not in (None, job):
                self._lab_state.history.keep(job_words(before, job), job=self._settled)
            self._lab_state.job = job
            self._lab_state.message = ""
            self._settled = self._state()
        except LabError as error:
            self._lab_state.job = None
            self._lab_state.report_error("plan", str(error))


def nearest_shape(job: Job, wanted: tuple[int, int], n_devices: int) -> tuple[int, int] | None:
    """Return the (stages, replicas) nearest to ``wanted`` after devices have come or gone. None if no shape is near.

    ``wanted`` stays if it fits and leaves fewer devices idle than max(stages, replicas). If there are too few devices
    for it, either the stages or the replicas shrink, not both.
    """
    n_stages, n_replicas = wanted
    if n_stages * n_replicas <= n_devices:
        return wanted if n_devices - n_stages * n_replicas < max(wanted) else None
    smaller = [(s, n_replicas) for s in range(1, n_stages)] + [(n_stages, r) for r in range(1, n_replicas)]
    possible = [(s, r) for s, r in smaller if s * r <= n_devices and (s, r) in job.shapes(s * r)]
    return max(possible, key=lambda shape: (shape[0] * shape[1], shape[1]), default=None)


def shape_words(n_stages: int, n_replicas: int, n_devices: int) -> str:
    """Return ``4 stages x 2 replicas, 1 idle``."""
    words = f"{counted(n_stages, 'stage')} x {counted(n_replicas, 'replica')}"
    idle = n_devices - n_stages * n_replicas
    return f"{words}, {idle} idle" if idle > 0 else words


JOB_FIELDS = {
    "global_batch": "batch",
    "microbatch": "micro-batch",
    "schedule": "schedule",
    "n_stages": "stages",
    "n_replicas": "replicas",
}
"""Fields of a job that the bar's menu changes, with their names in a sentence."""
MOST_TOLD = 3
"""Maximum number of changed fields that are listed. If more change, only "The job changed" is reported."""


def job_words(before: Job | None, job: Job | None) -> str:
    """Return the differences between two jobs, such as "Batch 16 → 32". Empty for equal jobs, and without a job before
    or after."""
    if before is None or job is None or before == job:
        return ""
    if before.name != job.name:
        return f"{before.name} → {job.name}"
    changed = [field.name for field in fields(Job) if getattr(before, field.name) != getattr(job, field.name)]
    # A change of model alters many derived fields; name only those that people set.
    chosen = [name for name in JOB_FIELDS if name in changed]  # the others follow from these
    clauses = [
        f"{JOB_FIELDS.get(name, name.replace('_', ' '))} {_value(getattr(before, name))} → {_value(getattr(job, name))}"
        for name in chosen or changed
        if isinstance(getattr(job, name), str | int | float | None)
    ]
    if not clauses or len(clauses) > MOST_TOLD:
        return "The job changed"
    line = ", ".join(clauses)
    return line[0].upper() + line[1:]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "planner's choice" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
