"""The ledger as HTML, for notebooks and as a page of its own: by group, what is missed in red, on light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from dtfm_lab.published.group import Group
from dtfm_lab.published.row import Row
from dtfm_lab.published.sources import Omission
from dtfm_lab.published.tally import Report, Tally

SCALE = math.log(2)
"""Half of the scale of a strip: it goes from half of the published number to twice of it."""
STRIP_PX, MARK_PX = 120, 4
DARK = "--miss: #ff7d93; --good: #3fc298; --strip: rgba(160, 160, 170, 0.28)"
# Names twice: JupyterLab's own rules for tables in outputs would win over one class.
STYLE = f"""
.dtfm-ledger {{ --miss: #b3002f; --good: #00795a; --strip: rgba(120, 120, 130, 0.22);
  font: 13px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }}
[data-jp-theme-light="false"] .dtfm-ledger, .vscode-dark .dtfm-ledger {{ {DARK} }}
@media (prefers-color-scheme: dark) {{ .dtfm-ledger-page .dtfm-ledger {{ {DARK} }} }}
.dtfm-ledger details {{ margin: 2px 0; }}
.dtfm-ledger summary {{ cursor: pointer; }}
.dtfm-ledger summary small, .dtfm-ledger p.small {{ opacity: 0.8; }}
.dtfm-ledger h4 {{ margin: 14px 0 2px; font-size: 14px; }}
.dtfm-ledger p {{ margin: 2px 0; }}
.dtfm-ledger .inset {{ margin-left: 14px; }}
.dtfm-ledger table {{ font: inherit; border-collapse: collapse; margin: 4px 0 8px 14px; }}
.dtfm-ledger.dtfm-ledger th, .dtfm-ledger.dtfm-ledger td {{ text-align: left;
  padding: 2px 10px 2px 0; vertical-align: top;
  background: transparent; border: 0; }}
.dtfm-ledger th {{ font-weight: 600; opacity: 0.8; }}
.dtfm-ledger.dtfm-ledger .number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
.dtfm-ledger .good {{ color: var(--good); }}
.dtfm-ledger .known, .dtfm-ledger .miss {{ color: var(--miss); }}
.dtfm-ledger .miss {{ font-weight: 700; }}
.dtfm-ledger.dtfm-ledger td.words {{ max-width: 60em; padding: 0 10px 6px 0; font-size: 12px; }}
.dtfm-ledger.dtfm-ledger td:first-child {{ min-width: 17em; }}
"""
STRIP = "½ to 2 times"
PLAIN = ("", STRIP)
"""Headings of columns that are not numbers."""
CLASSES = {"inside": "good", "known miss": "known", "miss": "miss", "": ""}


def fragment(ledger: Report) -> str:
    """A ledger as a notebook shows it: the headline, rows by class, the hard ones by source, then every group."""
    rows = ledger.rows
    parts = [f"<p><b>{escape(ledger.headline)}.</b></p><p>{escape(ledger.sentence)}.</p>"]
    parts.append(_tallies("class of evidence", ledger.classes))
    if ledger.hard:
        parts.append(_tallies("what the headline counts", ledger.hard))
    parts.append(_omissions(ledger.omitted))
    by_name = {source.name: source for source in ledger.sources}
    for name, of_source in groupby(ledger.groups, key=lambda group: group.source):
        source = by_name.get(name)
        parts.append(f"<h4>{escape(source.title if source is not None else name)}</h4>")
        if source is not None:
            cited = f"{source.cite}. Licence: {source.licence}." if source.licence else source.cite
            parts.append(f'<p class="small">{escape(cited)}</p>')
        for group in of_source:
            own = [row for row in rows if (row.source, row.group, row.quantity) == group.key]
            parts.append(_group(group, own))
    return f'<style>{STYLE}</style><div class="dtfm-ledger">{"".join(parts)}</div>'


def _tallies(head: str, tallies: Iterable[Tally]) -> str:
    """Rows counted, what is missed in red, with the noise of the source and the coverage of intervals where known."""
    tallies = list(tallies)
    noisy, covered = any(each.noise for each in tallies), any(each.with_interval for each in tallies)
    more = [*(["source's own noise"] if noisy else []), *(["in the 90 % interval"] if covered else [])]
    heads = "".join(f'<th class="number">{name}</th>' for name in ("measured", "inside", "median error", *more))
    lines = []
    for each in tallies:
        style = "good" if each.inside == each.n else "known"
        cells = [f"{each.measured}", f'<span class="{style}">{each.inside} of {each.n}</span>']
        cells += [f"{each.median_error:.1%}"]
        cells += [f"{100 * each.noise:.2g} %" if each.noise else ""] if noisy else []
        cells += ["" if each.coverage is None else f"{each.coverage:.0%}"] if covered else []
        body = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        lines.append(f"<tr><td>{escape(each.name)}</td>{body}</tr>")
    return f"<table><thead><tr><th>{head}</th>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _omissions(omitted: Sequence[tuple[str, Omission]]) -> str:
    if not omitted:
        return ""
    items = "".join(
        f"<li>{escape(name)}: {escape(each.what)} ({each.n}): {escape(each.reason)}</li>" for name, each in omitted
    )
    n = sum(each.n for _, each in omitted)
    return f"<details><summary>{n} published rows are left out, and why</summary><ul>{items}</ul></details>"


def page(fragment: str) -> str:
    """A ledger as a page of its own."""
    look = (
        "body { margin: 24px; font-family: system-ui, sans-serif; background: Canvas; color: CanvasText; } "
        ":root { color-scheme: light dark; }"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Published numbers</title>'
        f'<style>{look}</style></head><body class="dtfm-ledger-page"><h1>Published numbers beside our predictions</h1>'
        f"{fragment}</body></html>\n"
    )


def _group(group: Group, rows: Sequence[Row]) -> str:
    words = [_words(row) for row in rows]
    shared = [each for each in words[0] if all(each in others for others in words)]
    facts = [f"mean error {group.mean_error:.1%}"]
    if group.their_mean_error is not None:
        facts.append(f"their own prediction {group.their_mean_error:.1%}")
    if group.goal is not None:
        facts.append(f'<span class="{CLASSES[group.verdict]}">goal {group.goal:.1%}</span>')
    missed = group.inside < group.n or not group.reached
    parts = [
        f"<details{' open' if missed else ''}><summary><b>{escape(group.group)}</b>, {group.quantity}: "
        f'<span class="{"known" if missed else "good"}">{group.inside} of {group.n} inside</span> '
        f"<small>{', '.join(facts)}</small></summary>"
    ]
    if shared:
        parts.append(f'<p class="small inset">{escape("; ".join(shared))}.</p>')
    if group.known_miss is not None and not group.reached:
        parts.append(f'<p class="known inset">{escape(group.known_miss.reason)}</p>')
    return "".join(parts) + _table(rows, shared) + "</details>"


def _table(rows: Sequence[Row], shared: Sequence[str]) -> str:
    theirs = any(row.theirs is not None for row in rows)
    heads = ["", "published", "ours", "ratio", *(["theirs"] if theirs else []), STRIP, "band"]
    head = "".join(f"<th{'' if name in PLAIN else ' class=number'}>{name}</th>" for name in heads)
    body = "".join(_line(row, shared, theirs) for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _line(row: Row, shared: Sequence[str], theirs: bool) -> str:
    verdict = CLASSES[row.verdict]
    unit = f" {row.unit}" if row.unit else ""
    known = row.known_miss.reason if row.known_miss is not None and not row.inside else ""
    words = [escape("; ".join(each for each in _words(row) if each not in shared))]
    words += [f'<span class="known">{escape(known)}</span>'] if known else []
    their = "" if row.theirs is None else f"{number(row.theirs)} ({row.theirs / row.published:.3f})"
    cells = [
        f"<td>{escape(row.setting)}</td>",
        f'<td class="number">{number(row.published)}{escape(unit)}</td>',
        f'<td class="number">{number(row.predicted)}</td>',
        f'<td class="number {verdict}">{row.ratio:.3f}</td>',
        *([f'<td class="number">{their}</td>'] if theirs else []),
        f"<td>{_strip(row)}</td>",
        f'<td class="number {verdict}">{escape(str(row.band))}</td>',
    ]
    said = " ".join(filter(None, words))
    below = f'<tr><td class="words" colspan="{len(cells)}">{said}</td></tr>' if said else ""
    return f'<tr title="{escape(row.cite, quote=True)}">{"".join(cells)}</tr>{below}'


def _words(row: Row) -> list[str]:
    """The class, what was assumed and fitted, and the note."""
    kind = row.evidence.words if row.measured else f"{row.evidence.words}, not a measurement"
    return [kind, *row.assumptions, *filter(None, [row.fitted, row.note])]


def _strip(row: Row) -> str:
    """The ratio on a scale from half to twice, on its band."""

    def place(ratio: float) -> float:
        log = math.log(ratio) if ratio > 0 else -SCALE
        return STRIP_PX / 2 * (1 + max(-1.0, min(1.0, log / SCALE)))

    low, high = row.band.low, row.band.high
    if row.band.absolute:
        low, high = (1 + (end / row.published if row.published else 0) for end in (low, high))
    left, right, at = place(low), place(high), place(row.ratio)
    return (
        f'<svg width="{STRIP_PX + 2 * MARK_PX}" height="12" viewBox="{-MARK_PX} 0 {STRIP_PX + 2 * MARK_PX} 12" '
        f'role="img" aria-label="{row.ratio:.3f} times">'
        f'<rect x="{left:.1f}" y="1" width="{max(1.0, right - left):.1f}" height="10" fill="var(--strip)"/>'
        f'<line x1="0" x2="{STRIP_PX}" y1="6" y2="6" stroke="currentColor" stroke-opacity="0.25"/>'
        f'<circle cx="{at:.1f}" cy="6" r="{MARK_PX - 0.5}" '
        f'fill="var(--{"good" if row.inside else "miss"})"/></svg>'
    )


def number(value: float) -> str:
    """Four figures, thousands apart, without an exponent."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
