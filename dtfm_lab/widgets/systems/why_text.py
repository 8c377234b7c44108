"""Why a system takes so long here, as HTML: what each thing taken away would save, and what remains."""

from html import escape

from dtfm_lab.domain.units import format_s
from dtfm_lab.systems.why import MOST_CAUSES, Why
from dtfm_lab.widgets import markup


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
