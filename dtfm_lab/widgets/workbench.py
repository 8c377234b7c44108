"""The whole lab in one cell: the network on the left, its results on the right, what to do next on top."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from IPython import get_ipython

from dtfm_lab import lab
from dtfm_lab.compare import Comparison
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.extension import load, offered
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import counted, format_s
from dtfm_lab.figures.maps.network import thumbnail_svg
from dtfm_lab.files.workspaces import load_workspace, save_workspace
from dtfm_lab.lab.arguments import as_plan_or_network
from dtfm_lab.lab.plans import opening_job
from dtfm_lab.planning.search import network_of
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.comparing import ComparePanel
from dtfm_lab.widgets.controls import Panel, button, classed, mark
from dtfm_lab.widgets.groups import GroupsPanel
from dtfm_lab.widgets.lab_state import (
    RESULT_TRAITS,
    LabState,
    comparison_staleness,
    plan_staleness,
    prediction_staleness,
    run_staleness,
)
from dtfm_lab.widgets.network.network_panel import NetworkPanel
from dtfm_lab.widgets.planner.edits import EditHistory
from dtfm_lab.widgets.planner.plan_panel import PlanPanel
from dtfm_lab.widgets.planner.plan_words import result_words
from dtfm_lab.widgets.planner.replanning import BackgroundBound, LiveReplanning
from dtfm_lab.widgets.quiet import untold
from dtfm_lab.widgets.running.run_panel import RunPanel
from dtfm_lab.widgets.schedule.schedule_panel import SchedulePanel
from dtfm_lab.widgets.shell.autosave import Autosave, autosave_path
from dtfm_lab.widgets.shell.bar import StatusBar
from dtfm_lab.widgets.shell.first_minute import FirstMinute
from dtfm_lab.widgets.shell.panes import LEARN, PLAN, RUN, SEARCH, WHAT_IF, LabStep, NetworkPane, Panes
from dtfm_lab.widgets.shell.words_panel import WordsPanel
from dtfm_lab.widgets.shell.workspace import Workspace, restore_state, state_of
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.door import Door
from dtfm_lab.widgets.views.frame import Glossary, Legend
from dtfm_lab.widgets.what_if import WhatIfPanel
from dtfm_lab.widgets.what_if.worth_panel import WorthPanel

log = logging.getLogger(__name__)
AGAIN = "import dtfm_lab as lab\n{name} = lab.Lab(restores=True)\n{name}"
"""Code that the page runs in a new kernel to bring back a lab whose kernel has ended."""


class Lab(w.VBox):
    """Draw or load a network, plan it, see the pipeline, train for real, compare.

    Parameters
    ----------
    topology
        A name, a file or a Topology. None starts with a blank canvas. A Plan brings its job and is shown unchanged.
    job
        A name, a file or a Job. None chooses one that fits the network.
    autosave
        Save what is on the screen in the user's state folder as it changes, and offer it after a restart. Pass a
        folder for a page that many people open: each visitor has a file there, restored after a reload.
    restores
        Restore the saved lab at once instead of offering it.
    live
        Plan at once, and again after every edit. A switch in the bar turns this on and off.

    The results behind the screen are attributes: ``topology``, ``job``, ``plan``, ``predicted``, ``measured`` and
    ``comparison``. A result stays None until it exists.
    """

    def __init__(
        self,
        topology: Topology | str | Plan | None = None,
        job: Job | str | None = None,
        *,
        autosave: bool | Path = True,
        restores: bool = False,
        live: bool = True,
    ) -> None:
        is_own = job is not None
        network, job, plan = _opened(topology, job)
        self.opened_network = network
        """The network as opened. The drawn one has a single device for a group of GPUs that is planned as one."""
        if network is not None and job is not None:  # a group of GPUs that is planned as one device is drawn as one
            network, _ = network_of(network, job)  # what the job leaves open stays open
        # Most widgets are hidden at first, so the page hears of each only when it shows it.
        with untold():
            self.lab_state = LabState()
            self.lab_state.takes_offers = True
            self._make_panels(network, job, live=live)
            self.panels: dict[str, Panel] = {"network": self.network_panel, "replanning": self.replanning}
            self.steps = self._steps()
            self.bar = StatusBar(
                self.lab_state, self.replanning, self._press, lambda: self.compare_panel.refitting.is_useful
            )
            self.bar.view.on_link = self._take_link
            self.workspace = Workspace(self.lab_state, self.panels, self.bar.view.send)
            self.first_minute = FirstMinute(
                self.lab_state, self.bar.view, self.run_panel, self._press, self.workspace.link.click
            )
            self.network_pane = NetworkPane(self.lab_state, self.network_panel, self.run_panel.playback.view)
            self.panes = Panes(self.lab_state, self.steps, self._plans_by_itself)
            self.legend, self.glossary = Legend(), Glossary()
            self.door = Door(self.open_network, self.network_panel.files.take)
            self.network_panel.files.open_named = self._switch_network
            self._opened_with = None if is_own or plan is not None else self.lab_state.job
            """The job that the lab chose for the network. If the lab has a different job now, the user chose it."""
            self.lab_state.observe(lambda _: self._count_stages(), ["plan", "shown_tasks", "moment"])
            for trait in ("can_undo", "undo_label"):
                w.dlink((self.lab_state.history, trait), (self.bar.view, trait))
            self.autosave: Autosave | None = None
            if autosave:
                path = autosave_path() if autosave is True else None
                self.autosave = Autosave(path, self._write, self._read, restores=restores)
                self.autosave.view.add_class("dtfm-toast")
                self.lab_state.observe(lambda _: self._changed(), RESULT_TRAITS)
                for panel in self.panels.values():
                    panel.observe_edits(self._changed)
            if isinstance(autosave, Path):
                self.bar.view.observe(lambda change: self._keep_for(autosave, change["new"]), "visitor")
            halves = classed(w.HBox([self.network_pane.view, self.panes.view]), "dtfm-panes")
            self.panes.swap.observe(lambda change: mark(halves, "dtfm-swapped", change["new"]), "value")
            css = "".join([markup.CSS, markup.PANES_CSS, self.panes.css, *(step.css for step in self.steps)])
            parts = [w.HTML(f"<style>{css}</style>", layout=w.Layout(display="none"))]
            parts += [self.bar.view, halves, self.legend, *self._menus(), self.glossary, self.door]
            parts += [] if self.autosave is None else [self.autosave.view]
            super().__init__(parts)
            self.add_class("dtfm-lab")
        self.open()
        self.bar.view.shown_as = self.model_id or ""
        self.bar.view.again = AGAIN.format(name="the_lab") if autosave is True else ""
        self.lab_state.plan = plan
        self._count_stages()
        self.replanning.begin()
        # A restored lab has its own network, and the question would only be in the way.
        if network is None and not restores:
            self.door.offer()
        self.lab_state.observe(self._play_first, "predicted")

    def _make_panels(self, network: Topology | None, job: Job | None, *, live: bool) -> None:
        lab_state = self.lab_state
        self.network_panel = NetworkPanel(lab_state, network)
        self.plan_panel = PlanPanel(lab_state, job)
        drawing = self.network_panel.drawing
        history = EditHistory(lab_state, in_gesture=lambda: drawing.is_in_gesture)
        # A drag counts as one edit, and ends when the pointer does.
        drawing.observe(lambda _: history.end_gesture(), "is_in_gesture")  # once its last edit has been accepted
        self.replanning = LiveReplanning(lab_state, self.plan_panel.objective_controls.options, history, live=live)
        self.rising_bound = BackgroundBound(lab_state, self.plan_panel.objective_controls.options)
        self.groups_panel = GroupsPanel(lab_state)
        drawing.on_swap = self.groups_panel.hand.exchange
        self.schedule_panel = SchedulePanel(lab_state)
        self.network_panel.edits.is_answering = lambda: (
            self.replanning.is_answering or self.schedule_panel.is_predicting
        )
        self.replanning.foresee = self.schedule_panel.foresee
        self.replanning.show_at_hand = self.schedule_panel.show_at_hand
        self.schedule_panel.told_before_s = lambda: None if history.before is None else history.before.iteration_s
        self.what_if_panel = WhatIfPanel(lab_state)
        self.worth_panel = WorthPanel(lab_state)
        self.run_panel = RunPanel(lab_state, self.schedule_panel, self.network_panel.drawing)
        self.compare_panel = ComparePanel(lab_state, self.plan_panel.redo, self.run_panel.guessing.view)

    def _steps(self) -> list[LabStep]:
        """Return the panes in order of their tabs and pages: the lab's own, and those of extensions.

        A new pane needs only an entry here, or an extension, to be shown, saved and restored.
        """
        groups = of("plan", lambda plan: f"{counted(plan.job.n_stages, 'group')} of {plan.job.n_replicas}")
        predicted = of("predicted", lambda it: f"predicted {format_s(it.iteration_s)} under {it.context.schedule}")
        measured = of("measured", measured_words)
        error = of("comparison", lambda comparison: f"error {comparison.error_text}")
        found = of("bounded_plan", result_words)
        own = [
            LabStep("plan", self.plan_panel, "Search", found, plan_staleness, "Plan again", tab=SEARCH),
            LabStep(
                "schedule", self.schedule_panel, "Timeline", predicted, prediction_staleness, "Predict again", tab=PLAN
            ),
            LabStep("groups", self.groups_panel, "Groups", groups, plan_staleness, tab=PLAN),
            LabStep("what-if", self.what_if_panel, "Sliders", staleness=plan_staleness, tab=WHAT_IF),
            LabStep("worth", self.worth_panel, "Worth", staleness=self.worth_panel.staleness, tab=WHAT_IF),
            LabStep("run", self.run_panel, "Run", measured, run_staleness, "Run again", asked_for=True, tab=RUN),
            LabStep(
                "compare",
                self.compare_panel,
                "Compare",
                error,
                comparison_staleness,
                asked_for=True,
                tab=RUN,
                is_offered=lambda state: state.measured is not None,
            ),
            LabStep("words", WordsPanel(), "Words", tab=LEARN),
        ]
        # Steps of ten, so that an extension can put its pane between two.
        steps = [replace(step, position=10 * number) for number, step in enumerate(own[:-1])]
        steps += [own[-1], *self._steps_of_extensions()]  # words come after the course
        steps.sort(key=lambda step: step.order)
        self.panels |= {step.saved_name: step.panel for step in steps}
        return steps

    def _steps_of_extensions(self) -> list[LabStep]:
        """Return the panes of extensions. One that fails is left out, so that the lab still opens."""
        steps = []
        for name, place in offered("panes").items():
            try:
                steps.append(load(place)(self))
            except Exception:  # the code of another package may raise anything
                log.warning("the pane %s cannot be shown", name, exc_info=True)
        return steps

    def _menus(self) -> list[w.Widget]:
        """Return the boxes that the bar opens over the lab: for the network, the job and less used actions."""
        larger = w.Checkbox(False, description="Larger type, for a projector", indent=False)
        larger.observe(lambda change: mark(self, "dtfm-large", change["new"]), "value")
        gallery = button("All networks, with pictures", "", "Open the gallery", "auto")
        gallery.on_click(lambda _: self.door.set_trait("is_open", True))
        kept = [] if self.autosave is None else [self.autosave.view]
        menus = {
            "network": [self.network_panel.files.choose, gallery, self.network_panel.files.view],
            "job": [self.plan_panel.job_controls.view],
            "more": [*kept, self.workspace.view, larger],
        }
        return [classed(w.VBox(children), "dtfm-menu", f"dtfm-menu-{name}") for name, children in menus.items()]

    def _play_first(self, change: dict[str, Any]) -> None:
        """Play the first predicted iteration on the network, once."""
        if change["new"] is not None:
            self.lab_state.unobserve(self._play_first, "predicted")
            self.run_panel.playback.play_first(change["new"])

    def open_network(self, name: str) -> None:
        """Open a bundled network with the job that fits it. An empty name opens a blank canvas."""
        self.draw_network(lab.load_topology(name) if name else None)

    def draw_network(self, topology: Topology | None, job: Job | None = None) -> None:
        """Draw a network, or a blank canvas for None. Without a job, it gets the one that fits it."""
        if topology is not None:
            self.plan_panel.job_controls.take(job or opening_job(topology))
        self._draw(topology)
        self._opened_with = self.job

    def _draw(self, topology: Topology | None) -> None:
        self.network_panel.show(topology)
        self.bar.history.forget()
        self.network_pane.open_best_view()

    def take_job(self, job: Job) -> None:
        """Set the lab's job controls to a job, with exactly the shape that it has."""
        self.plan_panel.job_controls.take_exactly(job)

    def _switch_network(self, name: str) -> None:
        """Open a bundled network instead of the current one. A job that the user chose stays."""
        if self.job is None or self.job == self._opened_with:
            return self.open_network(name)
        self._draw(lab.load_topology(name) if name else None)

    def show_pane(self, name: str) -> None:
        """Show a pane by its name, and so its tab and page.

        The names are plan (the tab Search), schedule, groups, what-if, worth, run, compare, words, and those of
        extensions. Raises UnknownName.
        """
        if name not in [step.name for step in self.steps]:
            raise unknown("pane", name, [step.name for step in self.steps])
        self.lab_state.pane = name

    def _press(self, name: str) -> None:
        """Do what was pressed in the bar."""
        match name:
            case "handle":
                self.lab_state.select(self.lab_state.binding)
            case "undo":
                self.network_panel.drawing.undo()
            case "open":
                self.door.is_open = True
            case "words":
                self.glossary.is_open = True
            case "plan":
                self.plan_panel.redo()
                self.lab_state.pane = "plan"
            case "cheaper":
                self.lab_state.pane = "plan"
                self.plan_panel.look_for_cheaper()
            case "stop-plan":
                self.plan_panel.end()
            case "run":
                self.lab_state.pane = "run"
                self.run_panel.start.click()
            case "stop-run":
                self.run_panel.stop.click()
            case "compare":
                self.lab_state.pane = "compare"
            case "refit":
                self.compare_panel.refitting.apply()
            case "copied" | "not-copied":
                self.workspace.show_copied(name == "copied")
                self.first_minute.shared(name == "copied")
            case _:
                self.first_minute.take(name)

    def _take_link(self, link: str, again: bool) -> None:
        """Open the lab that a link in the page's address holds. After a reload, the autosaved lab is newer and wins."""
        if not (again and self.autosave is not None):
            begin(self._open_link(link), lambda line: self.lab_state.report_error("link", line))

    async def _open_link(self, link: str) -> None:
        self.door.offered = self.door.is_open = False
        await self.workspace.open_link(link)

    def _plans_by_itself(self) -> bool:
        """True if the lab finds a plan by itself for what is drawn and chosen now."""
        return self.replanning.switch.value and not self.lab_state.not_planned

    def _count_stages(self) -> None:
        plan, moment = self.lab_state.plan, self.lab_state.moment
        looked_at = self.lab_state.shown_tasks if not moment else moment["tasks"]
        n_planned = 0 if plan is None else plan.job.n_stages
        self.legend.n_stages = 1 + max(stage for stage, _ in looked_at.values()) if looked_at else n_planned

    def _write(self, path: Path) -> Callable[[], object]:
        return partial(save_workspace, state_of(self.lab_state, self.panels), path)

    async def _read(self, path: Path) -> None:
        restore_state(await asyncio.to_thread(load_workspace, path), self.lab_state, self.panels)

    def _keep_for(self, folder: Path, visitor: str) -> None:
        assert self.autosave is not None
        self.autosave.keep_in(autosave_path(folder, visitor), restores=True)

    def _changed(self) -> None:
        if self.autosave is not None:
            self.autosave.changed()

    @property
    def topology(self) -> Topology | None:
        return self.lab_state.topology

    @property
    def job(self) -> Job | None:
        return self.lab_state.job

    @property
    def plan(self) -> Plan | None:
        return self.lab_state.plan

    @property
    def predicted(self) -> Trace | None:
        return self.lab_state.predicted

    @property
    def measured(self) -> Trace | None:
        return self.lab_state.measured

    @property
    def comparison(self) -> Comparison | None:
        return self.lab_state.comparison

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any] | None:
        """Add the network as SVG and one line of text, for viewers without widgets, such as a saved notebook on a web
        page."""
        bundle: dict[str, Any] | None = super()._repr_mimebundle_(**options)
        if self.bar.view.again:  # its variable is known once it is shown
            self.bar.view.again = AGAIN.format(name=_variable_of(self))
        if bundle is not None:
            network, job = self.topology, self.job
            what = f"{network.name} ({counted(len(network), 'device')})" if network else "a blank canvas"
            line = f"dtfm_lab.Lab on {what}{f' with job {job.name}' if job else ''}: run the cell to use it"
            bundle["text/plain"] = line
            if network:
                bundle["image/svg+xml"] = thumbnail_svg(network, times=2)
        return bundle


def _variable_of(noun: object) -> str:
    """Return the name of the notebook variable that holds this object, so that a new kernel can assign it again.
    ``the_lab`` if no variable does."""
    shell = get_ipython()
    names = {} if shell is None else dict(shell.user_ns)
    own = (name for name, value in names.items() if value is noun and not name.startswith("_"))
    return next(own, "the_lab")


def measured_words(trace: Trace) -> str:
    """Return the seconds of a measured iteration, and which part of the plan ran if not all of it."""
    part = f", {trace.context.part}" if trace.context.part else ""
    return f"measured {format_s(trace.iteration_s)}{part}"


def _opened(
    given: Topology | str | Plan | None, job: Job | str | None
) -> tuple[Topology | None, Job | None, Plan | None]:
    """Return the network and the job to open, and the plan if one is given. Raises LabError."""
    opened = None if given is None else as_plan_or_network(given)
    # A plan brings its own network and job.
    if isinstance(opened, Plan):
        if job is not None:
            raise PlanError(f"job is {shortened(job)} beside a plan, which has its own; wanted one of the two")
        return opened.topology, opened.job, opened
    if job is not None:
        return opened, job if isinstance(job, Job) else lab.load_job(job), None
    return opened, None if opened is None else opening_job(opened), None


def of(trait: str, describe: Callable[[Any], str]) -> Callable[[LabState], str]:
    """Return a step's ``result``: a description of one trait of the state. Empty while the trait has no value."""

    def result(lab_state: LabState) -> str:
        noun = getattr(lab_state, trait)
        return "" if noun is None else describe(noun)

    return result
