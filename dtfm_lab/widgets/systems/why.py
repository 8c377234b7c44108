"""Why a system takes so long here: what each thing taken away would save, and what remains."""

import asyncio
from collections.abc import Callable
from html import escape

import ipywidgets as w

from dtfm_lab.domain.units import format_s
from dtfm_lab.systems import Outcome
from dtfm_lab.systems.why import MOST_CAUSES, Why, stream_why
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import classed
from dtfm_lab.widgets.tasks import FRAME_S, Stream, begin

WAITS = "taking one thing away at a time"


class WhyText:
    """``view`` explains one outcome; the explanation is computed on a thread, and kept."""

    def __init__(self, report_error: Callable[[str], None]) -> None:
        self._report_error = report_error
        self.explaining: Stream[Why] | None = None
        """The explanation that is computed; None while none is."""
        self.known: dict[Outcome, Why] = {}
        """The explanations that are complete."""
        self.view = classed(w.HTML(), "dtfm-systems-why")

    def explain(self, outcome: Outcome | None, faster: Outcome | None = None) -> None:
        """Explain an outcome against a ``faster`` one; None for nothing. What is computed of another ends."""
        if self.explaining is not None:
            self.explaining.stop()
            self.explaining = None
        if outcome is None:
            self.view.value = ""
        elif (known := self.known.get(outcome)) is not None:
            self.view.value = why_html(known)
        else:
            self.explaining = Stream(stream_why(outcome, faster))
            begin(self._watch(self.explaining, outcome), self._report_error)

    async def _watch(self, explaining: Stream[Why], outcome: Outcome) -> None:
        self.view.value = why_html(None, WAITS)
        while explaining.running and explaining is self.explaining:
            if explaining.newest is not None:
                self.view.value = why_html(explaining.newest, WAITS)
            await asyncio.sleep(FRAME_S * 3)
        if explaining is not self.explaining:
            return
        self.explaining = None
        if explaining.error is not None:
            self.view.value = ""
            raise explaining.error
        if explaining.newest is not None:
            self.known[outcome] = explaining.newest
            self.view.value = why_html(explaining.newest)


def why_html(why: Why | None, state: str = "") -> str:
    """Return a bar for each thing that saves time when taken away, then the explanation's other sentences.

    ``state`` says that more is to come; empty where this is all.
    """
    waiting = markup.line(escape(state)) if state else ""
    if why is None:
        return waiting
    lines = why.text.splitlines()
    told = {one.sentence for one in why.causes} | {
        f"Less each: {', '.join(one.noun for one in why.causes[MOST_CAUSES:])}."
    }
    rows = "".join(
        f'<li title="{escape(one.sentence)}"><span>{escape(one.noun[:1].upper() + one.noun[1:])}</span>'
        f'<span class="dtfm-why-track"><i style="width:{100 * min(1.0, one.share):.1f}%"></i></span>'
        f"<span>saves {format_s(one.gain_s)} ({one.share:.0%})</span></li>"
        for one in why.causes
    )
    listed = f'<ul class="dtfm-why">{rows}</ul>' if rows else ""
    rest = "".join(markup.line(escape(line)) for line in lines[1:] if line not in told)
    return f"{markup.line(escape(lines[0]), 'figure')}{listed}{waiting}{rest}"
