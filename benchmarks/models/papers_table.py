"""The tables of docs/papers-table.md: DT-FM's ratios, its settings beside its authors' seconds, and the two waterfalls.

``python benchmarks papers_table`` takes some three minutes; ``--quick`` has one size and one batch.
"""

from __future__ import annotations

import sys

import pandas as pd

import dtfm_lab as lab


def markdown(frame: pd.DataFrame) -> str:
    """A table of the page."""
    rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.astype(str).values.tolist()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def ratios(table: lab.published.PapersTable) -> pd.DataFrame:
    """The four ratios: as stated, of the measured seconds, and ours."""
    lines = []
    for one in table.ratios:
        ends = [f"{low:.2f} to {high:.2f}" for low, high in (one.measured_range, one.range)]
        stated = f"{one.published[0]:g} to {one.published[1]:g}"
        lines.append([one.name, stated, *ends, "overlap" if one.overlaps else f"{one.residue:.2f} times"])
    return pd.DataFrame(lines, columns=["ratio", "published", "of their seconds", "ours", "residue"])


def seconds(table: lab.published.PapersTable) -> pd.DataFrame:
    """PFLOPS, ours and theirs, and the range of our seconds over theirs, by case and system."""
    frame = table.to_frame()
    lines = []
    for (case, system), rows in frame.groupby(["case", "system"], sort=False):
        pflops = f"{rows['pflops'].min():.2f} to {rows['pflops'].max():.2f}"
        theirs, off = "", ""
        if rows["published_s"].notna().any():
            theirs = f"{rows['published_pflops'].min():.2f} to {rows['published_pflops'].max():.2f}"
            off = f"{rows['ratio'].min():.2f} to {rows['ratio'].max():.2f}"
        lines.append([case, system, pflops, theirs, off])
    return pd.DataFrame(lines, columns=["case", "system", "PFLOPS, ours", "theirs", "our seconds over theirs"])


def fall(layers: int, batch: int) -> None:
    """One waterfall."""
    found = lab.published.papers_waterfall(layers, batch)
    frame = found.to_frame()
    shown = pd.DataFrame(
        {
            "assumption": frame["sentence"],
            "times": frame["value"].map("{:.2f}".format),
            "Megatron-LM": frame["iteration_s"].map("{:.1f} s".format),
            "DT-FM": frame["against_s"].map("{:.1f} s".format),
            "source": frame["source"],
        }
    )
    print(f"\n{layers} layers, batch {batch}: {found.sentence}\n\n{markdown(shown)}")


def main() -> None:
    """Print all of it."""
    quick = {"layers": (24,), "batches": (1024,)} if "--quick" in sys.argv else {}
    table = lab.published.papers_table(
        **quick, progress=lambda so_far: print(f"\r{len(so_far)}", end="", file=sys.stderr)
    )
    print(f"\n{table.sentence}\n\n{markdown(ratios(table))}\n\n{markdown(seconds(table))}")
    fall(24, 1024)
    fall(40, 4096)


if __name__ == "__main__":
    main()
