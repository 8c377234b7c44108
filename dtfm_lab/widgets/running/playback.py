"""An iteration as the network's views play it: when each device computes, and when each message is in flight."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.schedule import COMPUTE, Kind
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.runtime.client.record import RunRecord
from dtfm_lab.widgets.lab_state import LabState, members_of
from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.tasks import begin, has_event_loop
from dtfm_lab.widgets.views.player import PlayerView

FORWARD, BACKWARD, AVERAGING, STEP = range(4)
KINDS = {
    **dict.fromkeys((Kind.FORWARD, Kind.SEND_F), FORWARD),
    **dict.fromkeys((Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT, Kind.PART, Kind.SEND_B), BACKWARD),
    **dict.fromkeys((Kind.PACK, Kind.REDUCE, Kind.SEND_G, Kind.SEND_P, Kind.SEND_E), AVERAGING),
    Kind.STEP: STEP,
}
"""{kind of action: its number in the rows}. Receives have none, because a message's send and receive are one row."""
COMPUTES = -1
"""The target of a row that is a computation."""
NO_ROWS = np.empty((0, 5), dtype="<f4")
MOST_UNASKED = 4_000
"""Maximum rows that are sent to the page before a user presses Play. They take 80 kB."""
SETTLED_S = 0.3
"""Seconds without a newer prediction before the last one is sent. A drag makes dozens."""
SHOWN_S = 1.0
"""Minimum seconds that a measured iteration is shown before a newer one replaces it."""
SECOND_CAPTION = 0.33
"""Share of the iteration from which the second caption is shown."""
THIRD_CAPTION = (0.6, 0.68)
"""Smallest and largest share of the iteration from which the third caption is shown, so that each can be read."""
AS_PLAYED = {"lost": "killed"}

Rows = npt.NDArray[np.float32]


def device_names(context: RunContext) -> list[str]:
    """Return the devices in the order of their numbers in the rows: stage by stage."""
    return [name for group in context.devices for name in group]


def rows_of_trace(trace: Trace) -> Rows:
    """Return (n, 5) rows of the typical iteration, in order of start: start_s, end_s, kind, source, target.

    kind is a number of ``KINDS``. source and target index ``device_names``. A computation has its device as source and
    ``COMPUTES`` as target. A message lasts from the start of its send to the end of its receive, and has no row until
    both are known.
    """
    n_positions, n_replicas = len(trace.context.devices), len(trace.context.devices[0])
    iteration = trace.typical_iteration
    sent, received = trace.message_rows(iteration)
    computes = np.array([action.kind in COMPUTE for action in trace.actions])
    computed = np.flatnonzero((trace.iteration == iteration) & computes[trace.action])
    kind = np.array([KINDS.get(action.kind, -1) for action in trace.actions])
    position = np.array([action.stage % n_positions for action in trace.actions])
    device = position[trace.action] * n_replicas + trace.replica
    begins, ends = np.concatenate([computed, sent]), np.concatenate([computed, received])
    target = np.concatenate([np.full(len(computed), COMPUTES), device[received]])
    columns = (trace.start_s[begins], trace.end_s[ends], kind[trace.action[begins]], device[begins], target)
    rows = np.column_stack(columns)
    # Half the bytes of doubles, and more precise than a screen shows.
    played: Rows = rows[np.argsort(rows[:, 0], kind="stable")].astype("<f4")
    return played


def split_into_gpus(rows: Rows, members: Sequence[Sequence[str]]) -> tuple[Rows, list[str]]:
    """Return rows of single GPUs, and the names of the GPUs in the order of their numbers in these rows.

    ``members`` lists the GPUs of each device of ``rows``, which may be a single one. Every GPU of a group computes what
    the group computes. Messages go from the first GPU of one group to the first GPU of the other.
    """
    sizes = np.array([len(gpus) for gpus in members], dtype=np.int64)
    firsts = np.cumsum(sizes) - sizes
    source, target = rows[:, 3].astype(np.int64), rows[:, 4].astype(np.int64)
    computes = target == COMPUTES
    copies = np.where(computes, sizes[source], 1)
    split = np.repeat(rows, copies, axis=0)
    # Number of each row among the copies of its original, which is the number of the GPU within its group.
    number = np.arange(len(split)) - np.repeat(np.cumsum(copies) - copies, copies)
    split[:, 3] = np.repeat(firsts[source], copies) + number
    split[:, 4] = np.repeat(np.where(computes, COMPUTES, firsts[target]), copies)
    return split, [name for gpus in members for name in gpus]


def captions_of(trace: Trace) -> list[dict[str, object]]:
    """Return ``PlayerView.captions`` of a predicted iteration: what the picture shows while it plays."""
    stages, replicas = len(trace.context.devices), len(trace.context.devices[0])
    captions: list[dict[str, object]] = [{"from": 0.0, "text": "Each number is a part of the model", "kinds": []}]
    if stages > 1:
        text = "Dots are messages"
        captions.append({"from": SECOND_CAPTION, "text": text, "kinds": ["forward", "backward"]})
    if replicas > 1:
        kind = np.array([KINDS.get(action.kind, -1) for action in trace.actions])[trace.action]
        averaging = (kind == AVERAGING) & (trace.iteration == trace.typical_iteration)
        begins_s = (
            trace.start_s[averaging].min(initial=np.inf)
            - trace.start_s[trace.iteration == trace.typical_iteration].min()
        )
        begin = float(np.clip(begins_s / trace.iteration_s, *THIRD_CAPTION))
        captions.append({"from": begin, "text": "Green: replicas agree", "kinds": ["averaging"]})
    return captions


class Playback:
    """Plays an iteration: the what-if on display, the predicted one, or one that the current or the last run measured.

    ``view`` is the row with Play. The views of ``drawing`` show the iteration, by traits of the drawing that are set
    here. If there are many rows, they are only sent once a user presses Play.
    """

    def __init__(
        self, lab_state: LabState, report_error: Callable[[str], None], drawing: Drawing | None = None
    ) -> None:
        self._lab_state, self._report_error = lab_state, report_error
        self.drawing = Drawing() if drawing is None else drawing
        self.view = PlayerView()
        self._seen: tuple[Trace | None, Trace | None] = (None, None)
        """The prediction and the measurement that were shown last."""
        self._held: Rows | None = None
        """Rows that are sent as soon as a user presses Play."""
        self._looked = (-1, 0, 0.0)
        """Iteration and number of spans of the run's last rows, and when they were made."""
        self._is_waiting = self._is_run = False
        self.view.observe(lambda change: self._play_or_end(change["new"]), "playing")
        lab_state.observe(lambda _: self._follow(), ["predicted", "measured", "tried"])

    def play_first(self, trace: Trace) -> None:
        """Play the first predicted iteration by itself, with captions for a person who has not seen them."""
        self.view.captions = captions_of(trace)
        self.view.playing = True

    def _play_or_end(self, playing: bool) -> None:
        if playing:
            self._release()
        else:
            self.view.captions = []

    def begin_run(self) -> None:
        """Play a run from now on."""
        self._is_run, self._held, self._looked = True, None, (-1, 0, 0.0)
        with self.view.hold_sync():
            self.view.source, self.view.iteration, self.view.known_s, self.view.length_s = "measured", 0, 0.0, 0.0
            self.view.loops, self.view.playing = True, True
        self._tell({}, {})
        self.drawing.playback = b""

    def look(self, run: RunRecord, expected_s: float) -> None:
        """Show a run's last complete iteration, or what has been measured of the first one.

        ``expected_s`` is the expected length of an iteration, 0 if that is unknown.
        """
        # Before the first iteration is complete, what there is of it is better than a still picture.
        iteration, is_whole = (run.last_whole, True) if run.losses else (run.spec.first_iteration, False)
        spans = run.spans_of(iteration)
        before = self._looked
        now_s = time.monotonic()
        # A complete iteration stays for a moment, or the player would jump with each.
        if (iteration, len(spans)) == before[:2] or (is_whole and now_s - before[2] < SHOWN_S) or not spans:
            return
        self._looked = iteration, len(spans), now_s
        context = run.context()
        rows, names = self._by_gpu(rows_of_trace(Trace.from_spans(context, spans)), context)
        known_s = float(rows[:, 1].max(initial=0.0))
        self.drawing.playback_devices = names
        # Both fields in one message, else the player would draw one with the other's old value.
        with self.view.hold_sync():
            self.view.iteration, self.view.known_s = iteration, known_s
            self.view.length_s = known_s if is_whole else max(known_s, expected_s)
        self.drawing.playback = rows.tobytes()

    def tell(self, run: RunRecord, conditions: Mapping[str, str]) -> None:
        """Show the condition of each device of a run, and which device a replacement got its state from. ``conditions``
        are ``FaultControls.conditions``."""
        known = set(run.ranks)
        self._tell(
            {name: AS_PLAYED.get(now, now) for name, now in conditions.items() if now},
            {fault.device: fault.state_from for fault in run.faults if fault.state_from in known},
        )

    def _tell(self, conditions: dict[str, str], restored_from: dict[str, str]) -> None:
        self.drawing.conditions, self.drawing.restored_from = conditions, restored_from

    def end_run(self) -> None:
        """Let predictions be shown again. The run's last iteration stays until another one is shown."""
        self._is_run = False
        self.view.loops = False

    def _follow(self) -> None:
        if not has_event_loop():
            self._show_newest()
        elif not self._is_waiting:
            self._is_waiting = True
            begin(self._settle(), self._report_error)

    async def _settle(self) -> None:
        """Show the first trace at once. Later ones are shown when no newer one has come for a moment.

        A displayed what-if comes before a new measurement, and a new measurement before the prediction.
        """
        try:
            before: object = self._traces if self._seen == (None, None) else None
            # A slider's answers come in quick succession, and only the last is worth sending.
            while before != (before := self._traces):
                await asyncio.sleep(SETTLED_S)
            trace = self._newest()
            rows = None if trace is None else await asyncio.to_thread(rows_of_trace, trace)
        finally:
            self._is_waiting = False
        if self._newest() is not trace:
            self._follow()
        else:
            self._show(trace, rows)

    def _show_newest(self) -> None:
        trace = self._newest()
        self._show(trace, None if trace is None else rows_of_trace(trace))

    def _newest(self) -> Trace | None:
        predicted, measured, tried = self._traces
        if tried is not None:
            return tried
        return measured if measured is not None and measured is not self._seen[1] else predicted

    @property
    def _traces(self) -> tuple[Trace | None, Trace | None, Trace | None]:
        return self._lab_state.predicted, self._lab_state.measured, self._lab_state.tried

    def _show(self, trace: Trace | None, rows: Rows | None) -> None:
        self._seen = self._lab_state.predicted, self._lab_state.measured
        if self._is_run:
            return
        length_s = 0.0 if rows is None else float(rows[:, 1].max(initial=0.0))
        source = "" if trace is None else {"simulated": "predicted"}.get(trace.context.source, "measured")
        source = "what if" if trace is not None and trace is self._lab_state.tried else source
        with self.view.hold_sync():
            self.view.source = source
            self.view.iteration = -1 if trace is None else trace.typical_iteration
            self.view.length_s = self.view.known_s = length_s
        names: list[str] = []
        if trace is not None and rows is not None:
            rows, names = self._by_gpu(rows, trace.context)
        self.drawing.playback_devices = names
        self._held = NO_ROWS if rows is None else rows
        if trace is None or trace.context.source == "simulated":
            self._tell({}, {})
        if len(self._held) <= MOST_UNASKED or self.view.playing:
            self._release()
        else:
            self.drawing.playback = b""

    def _by_gpu(self, rows: Rows, context: RunContext) -> tuple[Rows, list[str]]:
        """Return rows of single GPUs and their names. The network on the screen has single GPUs, not groups."""
        return split_into_gpus(rows, members_of(self._lab_state, device_names(context)))

    def _release(self) -> None:
        if self._held is not None:
            self.drawing.playback, self._held = self._held.tobytes(), None
