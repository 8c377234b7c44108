"""A picture to share: one sentence and bars that compare your machines with the cloud, in time and dollars."""

from __future__ import annotations

import re
from html import escape

from dtfm_lab.domain.units import CENT, money
from dtfm_lab.extensions.advice.advice import Advice, count_of
from dtfm_lab.extensions.advice.ways import MIXED, OWN, RENTED, FleetOption, duration
from dtfm_lab.figures.palette import BLUE, GREY

MOST_ROWS = 6
NUMBERS = {1: "one", 2: "two", 4: "four", 8: "eight"}
WIDTH = 720
"""Width of the card in pixels."""
HEAD = 92
"""Height in pixels of the part above the rows: two lines of text, and the headings of the bars."""
ROW = 44
"""Height of a row in pixels."""
FOOT = 34
"""Height in pixels of the line below the rows."""
NAME_X = 24
"""Pixels from the left edge to the names."""
TIME_X = 214
"""Pixels from the left edge to the bars of time."""
MONEY_X = 478
"""Pixels from the left edge to the bars of dollars."""
BAR = 150
"""Length of the longest bar in pixels. Each value is written after its bar."""
LEAST_BAR = 2.0
"""Minimum length of a bar in pixels, so that two minutes are still visible among days."""
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"


def sentence_of(advice: Advice) -> str:
    """Return the best option, followed by the one that it is compared with: ``Rent one RTX 4090: 2 min, 1 cent. Your
    machines: 13 h, $1.20``. If no option is chosen, say why."""
    best, home = advice.best, _home(advice)
    rival = home
    if best is None:
        planned = [way for way in advice.options if way.plan is not None]
        if not planned:
            return "The job fits neither your machines nor the rented ones that were tried"
        fastest = min(planned, key=lambda way: way.seconds)
        return f"Nothing meets your limits. The fastest, {fastest.name}: {_both(fastest)}"
    if best is home or best.where == "At home":
        first = f"Use {_named(best)}: {_both(best)}"
        rented = [way for way in advice.options if way.plan is not None and way.kind == RENTED]
        rival = min(rented, key=lambda way: (way.dollars, way.seconds), default=None)
        return first if rival is None else f"{first}. {_capital(_named(rival))}, rented: {_both(rival)}"
    verb = "Rent" if best.where == "In the cloud" else "Use"
    first = f"{verb} {_named(best)}: {_both(best)}"
    if home is None:
        return first
    return f"{first}. {_capital(_named(home))}: {_both(home) if home.plan else 'not enough memory'}"


def rows_of(advice: Advice) -> list[FleetOption]:
    """Return up to ``MOST_ROWS`` options to draw, the fastest first.

    The best option, all options with your own machines, the fastest and the cheapest option are included before any
    other. An option with rented machines added is omitted if its plan uses only yours or only the rented ones.
    """
    planned = [way for way in advice.options if way.plan is not None and (way.kind != MIXED or way.where == "Both")]
    own = [way for way in planned if way.kind != RENTED]
    by_time, by_money = (sorted(planned, key=key) for key in (lambda w: w.seconds, lambda w: w.dollars))
    wanted = dict.fromkeys([*filter(None, [advice.best]), *own, *by_time[:1], *by_money[:1], *planned])
    return sorted([*wanted][:MOST_ROWS], key=lambda way: way.seconds)


def card_svg(advice: Advice) -> str:
    """Return the card as an SVG on white, with one row per option. A row has a bar for its time and one for its
    dollars.

    Classes let a page's styles replace the colours. Empty if no option has a plan.
    """
    rows = rows_of(advice)
    if not rows:
        return ""
    height = HEAD + ROW * len(rows) + FOOT
    longest_s, most = max(way.seconds for way in rows), max(way.dollars for way in rows)
    what = f"{advice.job.name}, {count_of(advice.tokens)} {advice.job.counted}"
    parts = [
        f'<rect class="dtfm-card-ground" width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        *_lines(sentence_of(advice)),
        _text(TIME_X, HEAD - 10, "time", "soft", 12),
        _text(MONEY_X, HEAD - 10, "cost", "soft", 12),
    ]
    for at, way in enumerate(rows):
        y = HEAD + ROW * at
        chosen = way is advice.best
        tone = "chosen" if chosen else "other"
        parts.append(_text(NAME_X, y + 20, _short(way.name), "ink", 14, bold=chosen))
        for x, share, value in (
            (TIME_X, way.seconds / longest_s, duration(way.seconds)),
            (MONEY_X, way.dollars / most if most > 0 else 0.0, _cost(way) or "electricity *"),
        ):
            length = max(LEAST_BAR, BAR * share)
            color = BLUE if chosen else GREY
            size = f'x="{x}" y="{y + 4}" width="{length:.1f}" height="22" rx="3"'
            parts.append(f'<rect class="dtfm-card-{tone}" {size} fill="{color}"/>')
            parts.append(_text(x + length + 8, y + 20, value, "ink", 14, bold=chosen))
    basis = advice.best.basis.word if advice.best is not None else ""
    note = " * Electricity is unknown and not counted." * any(way.unmetered for way in rows)
    foot = f"{what}. Times are {basis or 'predicted'}.{note} dtfm_lab"
    parts.append(_text(NAME_X, height - 14, foot, "soft", 12))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(sentence_of(advice))}" font-family="{FONT}">{"".join(parts)}</svg>'
    )


def coins(dollars: float) -> str:
    """Return dollars as said aloud: ``1 cent``, ``under 1 cent``, ``$9.55``."""
    if not 0 < dollars < 0.995:
        return money(dollars)
    if dollars < CENT:
        return "under 1 cent"
    cents = round(dollars * 100)
    return f"{cents} cent{'s' * (cents != 1)}"


def _cost(way: FleetOption) -> str:
    """Return the known cost, with ``*`` if some electricity is unknown. Empty if unknown electricity is the only
    cost."""
    if not way.unmetered:
        return coins(way.dollars)
    return f"{coins(way.dollars)} *" if way.dollars else ""


def _both(way: FleetOption) -> str:
    return ", ".join(filter(None, [duration(way.seconds), _cost(way).removesuffix(" *")]))


def _home(advice: Advice) -> FleetOption | None:
    own = [way for way in advice.options if way.kind == OWN]
    return next((way for way in own if not way.is_single), own[0] if own else None)


def _named(way: FleetOption) -> str:
    """Return an option's name in words: ``one RTX 4090`` for ``1 x RTX 4090``."""
    if way.kind == OWN and not way.is_single and {device.gpu for device in way.topology.devices} == {"laptop"}:
        return "your laptops"
    found = re.fullmatch(r"(\d+) x (.+)", way.name)
    if found is None or int(found[1]) not in NUMBERS:
        return way.name
    plural = "" if found[1] == "1" else "s"
    return f"{NUMBERS[int(found[1])]} {found[2]}{plural}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _short(name: str, most: int = 22) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _lines(sentence: str) -> list[str]:
    """Return one or two SVG lines: the first sentence in bold, and the rest below it."""
    first, _, second = sentence.partition(". ")
    lines = [_text(NAME_X, 34, first, "ink", 19, bold=True)]
    return [*lines, _text(NAME_X, 58, second, "soft", 15)] if second else lines


def _text(x: float, y: float, text: str, tone: str, size: int, *, bold: bool = False) -> str:
    fill = {"ink": "#212121", "soft": "#5c5c5c"}[tone]
    look = f'font-size="{size}" fill="{fill}"' + ' font-weight="600"' * bold
    return f'<text class="dtfm-card-{tone}" x="{x:.1f}" y="{y}" {look}>{escape(text)}</text>'
