"""A population, generation by generation: tiny pictures, one individual's story, and a curve."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import traitlets

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.problem import Individual, PopulationFrame
from dtfm_lab.widgets.views.view import View

NOBODY = -1
"""Number that stands for no individual. The card then shows the cheapest."""
IDLE = -1
"""Stage of a device without one."""


class PopulationView(View):
    """Draws frames of a search. The kernel sets ``frame`` during playback. The page sets it when the user scrubs."""

    title = traitlets.Unicode("Teaching search").tag(sync=True)
    unit = traitlets.Enum(["s", "$"], "s").tag(sync=True)
    """Unit of the costs: seconds, or US dollars per billion tokens."""
    has_curve = traitlets.Bool(True).tag(sync=True)
    """True if best, median and bound are drawn below the pictures."""
    takes = traitlets.Bool(False).tag(sync=True)
    """True if an individual can be used as the plan."""
    cells = traitlets.Dict().tag(sync=True)
    """Where each device is in a picture, see ``cells_of``. Empty if nothing is searched."""
    frame = traitlets.Int(0).tag(sync=True)
    """Index of the displayed frame."""
    playing = traitlets.Bool(False).tag(sync=True)
    chosen = traitlets.Int(NOBODY).tag(sync=True)
    """Number of the individual that the card describes."""
    bound_s = traitlets.Float(0.0).tag(sync=True)
    """Lower bound on any placement's cost, in ``unit``. 0 if none is known."""
    planner_s = traitlets.Float(0.0).tag(sync=True)
    """Cost of the plan that the real planner found, in ``unit``. 0 if it has not searched yet."""
    is_over = traitlets.Bool(False).tag(sync=True)
    """True if the search has ended, so that no more frames come."""
    hint = traitlets.Unicode("").tag(sync=True)
    """Text that is shown until there is a frame."""
    height = traitlets.Int(0).tag(sync=True)
    """Pixels. 0 fills the parent element."""

    def __init__(self, take: Callable[[int], None] | None = None, **traits: Any) -> None:
        super().__init__(**{"takes": take is not None} | traits)
        self._take = take
        self.frames: list[PopulationFrame] = []
        self.individuals: dict[int, Individual] = {}
        """All individuals shown so far, and their parents, by number."""

    def begin(self, cells: dict[str, Any]) -> None:
        """Clear the view, and use these cells for its pictures."""
        self.frames, self.individuals = [], {}
        with self.hold_sync():
            self.cells, self.frame, self.chosen, self.is_over = cells, 0, NOBODY, False
        self.send({"kind": "reset"})

    def extend(self, frames: Sequence[PopulationFrame]) -> None:
        """Add frames, with the individuals that have not been sent yet."""
        new: dict[int, Individual] = {}
        for frame in frames:
            for one in (frame.best, *frame.individuals):
                for each in (*one.parents, one):
                    known = self.individuals.get(each.number) or new.get(each.number)
                    # A parent is first sent without its own parents, and again once they are known.
                    if known is None or (each.parents and not known.parents):
                        new[each.number] = each
        self.individuals |= new
        self.frames += frames
        if frames:
            self._send_frames(frames, list(new.values()))

    def follow(self, frames: Sequence[PopulationFrame]) -> None:
        """Add frames and show the newest, unless an earlier one is on display or the frames are playing."""
        # Asked before the frames are added, because they move the end.
        follows = self.frame >= len(self.frames) - 1 and not self.playing
        self.extend(frames)
        if follows and self.frames:
            self.frame = len(self.frames) - 1

    async def play(self, pace_s: Callable[[], float]) -> None:
        """Show one frame after another, each for ``pace_s()`` seconds, until the last or a pause."""
        while self.playing:
            await asyncio.sleep(pace_s())
            # The user may have paused meanwhile.
            if not self.playing:
                return
            if self.frame + 1 < len(self.frames):
                # At the end of a search that still runs, the next round looks for newer frames.
                self.frame += 1
            elif self.is_over:
                self.playing = False

    @property
    def shown(self) -> Individual | None:
        """The chosen individual, or else the cheapest of the shown generation."""
        if self.chosen in self.individuals:
            return self.individuals[self.chosen]
        return self.frames[min(self.frame, len(self.frames) - 1)].best if self.frames else None

    def _send_frames(self, frames: Sequence[PopulationFrame], people: Sequence[Individual]) -> None:
        n = len(self.cells["at"])
        stages = np.full((len(people), n), IDLE, dtype="<i2")
        for row, one in zip(stages, people, strict=True):
            row[one.grid] = np.arange(len(one.grid))[:, None]
        sent = {"frames": list(map(_frame_words, frames)), "people": list(map(_person_words, people))}
        self.send({"kind": "frames", **sent}, buffers=[stages.tobytes()])

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        match content:
            case {"kind": "hello"}:
                # A page that was reloaded, or opened late, has nothing yet.
                self.send({"kind": "reset"})
                if self.frames:
                    self._send_frames(self.frames, list(self.individuals.values()))
            case {"kind": "take", "number": int(number)} if self._take is not None and number in self.individuals:
                self._take(number)


def _frame_words(frame: PopulationFrame) -> dict[str, Any]:
    sent = {
        what: getattr(frame, what)
        for what in ("generation", "median_s", "diversity", "evaluations", "rule", "has_generations")
    }
    sent |= {"best": frame.best.number, "best_s": frame.best.cost_s, "made_by": dict(frame.made_by)}
    return sent | {"numbers": [one.number for one in frame.individuals]}


def _person_words(one: Individual) -> dict[str, Any]:
    sent = ("number", "cost_s", "is_estimate", "operator", "words", "generation")
    parents = [parent.number for parent in one.parents]
    return {what: getattr(one, what) for what in sent} | {"shape": list(one.grid.shape), "parents": parents}


def cells_of(place_of: IntArray, places: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Return ``PopulationView.cells``. Its ``at`` has the column and the row of each device.

    ``place_of`` indexes ``places``. Each place has separate columns, several if it has many devices, so that the
    picture is about square.
    """
    sizes = np.bincount(place_of, minlength=len(places))
    # A column has room for the largest place, unless that makes the picture far taller than a square.
    tallest = max(int(np.ceil(np.sqrt(len(place_of)))), min(int(sizes.max()), int(2 * np.sqrt(len(place_of)))))
    at = np.zeros((len(place_of), 2), dtype=int)
    column, starts = 0, []
    for place, size in enumerate(sizes):
        here = np.flatnonzero(place_of == place)
        wide = -(-int(size) // tallest)
        height = -(-int(size) // wide)
        at[here, 0], at[here, 1] = column + np.arange(size) // height, np.arange(size) % height
        starts.append(column)
        column += wide
    size = {"columns": column, "rows": int(at[:, 1].max()) + 1}
    return {"at": at.tolist(), **size, "starts": starts, "places": list(places), "names": list(names)}
