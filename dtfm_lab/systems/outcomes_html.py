"""The systems' outcomes as HTML, for notebooks and as a page of its own: bars by cause, assumptions under each."""

from collections.abc import Mapping, Sequence
from html import escape

from dtfm_lab.domain.units import format_s
from dtfm_lab.systems.bars import CHANGES, STACKED, Bar, bars
from dtfm_lab.systems.outcome import Outcome
from dtfm_lab.systems.outcomes_markdown import pairs, remarks, times

COLORS = {
    "compute": "#0072B2",
    "gathering": "#CC79A7",
    "latency": "#56B4E9",
    "bandwidth": "#F0E442",
    "queue": "#E69F00",
    "synchronisation": "#1F9D74",
    "straggler": "#C8283E",
}
"""Colours of the causes, those of the figures; a cause without one is grey."""
OTHER = "#999999"
BAR_PX = 220
DARK = "--edge: rgba(255, 255, 255, 0.35)"
# Names twice: JupyterLab's own rules for tables in outputs would win over one class.
STYLE = f"""
.dtfm-systems {{ --edge: rgba(0, 0, 0, 0.35);
  font: 13px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }}
[data-jp-theme-light="false"] .dtfm-systems, .vscode-dark .dtfm-systems {{ {DARK} }}
@media (prefers-color-scheme: dark) {{ .dtfm-systems-page .dtfm-systems {{ {DARK} }} }}
.dtfm-systems p {{ margin: 2px 0; }}
.dtfm-systems table {{ font: inherit; border-collapse: collapse; margin: 6px 0; }}
.dtfm-systems.dtfm-systems th, .dtfm-systems.dtfm-systems td {{ text-align: left; line-height: 1.45;
  padding: 3px 12px 3px 0; vertical-align: top;
  background: transparent; border: 0; }}
.dtfm-systems th {{ font-weight: 600; opacity: 0.8; }}
.dtfm-systems.dtfm-systems .number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
.dtfm-systems.dtfm-systems td:first-child {{ min-width: 14em; }}
.dtfm-systems.dtfm-systems td.plan {{ min-width: 20em; max-width: 34em; }}
.dtfm-systems td.plan span {{ display: block; opacity: 0.85; }}
.dtfm-systems .bar {{ display: flex; width: {BAR_PX}px; height: 14px; margin-top: 2px; }}
.dtfm-systems .bar i, .dtfm-systems .key i {{ display: inline-block; box-sizing: border-box;
  border: 1px solid var(--edge); border-left-width: 0; }}
.dtfm-systems .bar i:first-child {{ border-left-width: 1px; }}
.dtfm-systems .bar.cut i:last-of-type {{ border-right: 3px dotted currentColor; }}
.dtfm-systems .key i {{ width: 10px; height: 10px; margin: 0 4px 0 10px; border-left-width: 1px; }}
.dtfm-systems summary {{ cursor: pointer; }}
.dtfm-systems small {{ opacity: 0.8; }}
"""


def fragment(sentence: str, win: str, outcomes: Sequence[Outcome], not_modelled: Mapping[str, str]) -> str:
    """The outcomes as a notebook shows them; ``win`` stands under the sentence where there is something to say."""
    drawn = bars(outcomes)
    longest_s = max((bar.length_s for bar in drawn), default=0.0)
    least_s = min((one.iteration_s for one in outcomes if one.iteration_s is not None), default=1.0)
    head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in HEADINGS)
    rows = "".join(_row(bar, longest_s, least_s) for bar in drawn)
    parts = [f"<p><b>{escape(sentence)}.</b></p>", f"<p>{escape(win)}</p>" if win else "", _key(drawn)]
    parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    if any(bar.outcome.strategy.mathematics for bar in drawn):
        parts.append(f"<p><small>{CHANGES} changes the training itself: seconds alone do not compare it.</small></p>")
    if any(bar.cut for bar in drawn):
        parts.append("<p><small>A bar with a dotted end is longer than drawn.</small></p>")
    if not_modelled:
        lines = "".join(f"<p><b>{escape(name)}</b>: {escape(reason)}</p>" for name, reason in not_modelled.items())
        parts.append(f"<details><summary>{len(not_modelled)} systems are not modelled</summary>{lines}</details>")
    return f'<style>{STYLE}</style><div class="dtfm-systems">{"".join(parts)}</div>'


NUMBER = ' class="number"'
HEADINGS = (
    ("", ""),
    ("an iteration", NUMBER),
    ("times", NUMBER),
    ("with a link a pair", NUMBER),
    ("where it goes", ""),
    ("plan", ""),
)


def page(title: str, fragment: str) -> str:
    """The outcomes as a page of its own."""
    look = (
        "body { margin: 24px; font-family: system-ui, sans-serif; background: Canvas; color: CanvasText; } "
        ":root { color-scheme: light dark; }"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}: training systems</title><style>{look}</style></head>"
        f'<body class="dtfm-systems-page"><h1>{escape(title)}: what each system would do</h1>{fragment}</body></html>\n'
    )


def _key(drawn: Sequence[Bar]) -> str:
    present = {cause for bar in drawn for cause, _, _ in bar.parts}
    known = [cause for cause in STACKED if cause in present] + sorted(present - set(STACKED))
    marks = "".join(f'<i style="background: {COLORS.get(cause, OTHER)}"></i>{escape(cause)}' for cause in known)
    return f'<p class="key"><small>critical path by cause:{marks}</small></p>' if known else ""


def _row(bar: Bar, longest_s: float, least_s: float) -> str:
    one = bar.outcome
    seconds = "" if one.iteration_s is None else format_s(one.iteration_s)
    cells = [
        f"<td>{_system(bar)}</td>",
        f"<td{NUMBER}>{seconds}</td>",
        f"<td{NUMBER}>{times(one, least_s)}</td>",
        f"<td{NUMBER}>{pairs(one)}</td>",
        f"<td>{_bar(bar, longest_s)}</td>" if bar.parts else "<td>no plan</td>",
        f'<td class="plan">{escape(one.shape)}<span>{escape(remarks(one))}</span></td>',
    ]
    return f'<tr title="{escape(one.strategy.cite, quote=True)}">{"".join(cells)}</tr>'


def _system(bar: Bar) -> str:
    """Its name; a click opens what was assumed."""
    name = f"<b>{escape(bar.name)}</b>"
    assumed = "".join(
        f"<p>{escape(each['name'].replace('_', ' '))} <b>{escape(str(each['value']))}</b>: {escape(each['help'])} "
        f"<small>{escape(each['source'])}</small></p>"
        for each in bar.outcome.strategy.assumed
    )
    return f"<details><summary>{name}</summary>{assumed}</details>" if assumed else name


def _bar(bar: Bar, longest_s: float) -> str:
    whole_s = bar.outcome.iteration_s or 0.0
    parts = "".join(
        f'<i style="width: {100 * drawn_s / longest_s:.2f}%; background: {COLORS.get(cause, OTHER)}" '
        f'title="{escape(cause)} {format_s(part_s)}, {part_s / whole_s:.0%}"></i>'
        for cause, part_s, drawn_s in bar.parts
        if longest_s > 0 and whole_s > 0
    )
    words = ", ".join(f"{cause} {format_s(part_s)}" for cause, part_s, _ in bar.parts)
    kind = "bar cut" if bar.cut else "bar"
    return f'<div class="{kind}" role="img" aria-label="{escape(words, quote=True)}">{parts}</div>'
