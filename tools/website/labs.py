"""The lab on the site's front page, without a kernel: one page a network, its answers found while the site is built."""

from __future__ import annotations

from pathlib import Path

import dtfm_lab as lab
from dtfm_lab.lab.plans import opening_job
from dtfm_lab.widgets.shell.still_page.linked import opening_page
from dtfm_lab.widgets.shell.workspace import VIEWER
from dtfm_lab.widgets.views.door import TITLES as GALLERY
from tools.website.answers import answering_page, answers_of

TITLES = {
    "worldwide": GALLERY["worldwide"][0],
    "lecture-hall": GALLERY["lecture-hall"][0],
    "regional": "64 GPUs in 4 regions",
    "campus": "32 computers of a university",
    "volunteers": "24 gaming computers at home",
    "mixed-gpus": "4 machines of 8 GPUs, all different",
    "universities": "64 GPUs of 2 universities",
    "islands": "32 GPUs on islands of fast links",
}
"""The networks, the first of which is on the front page."""
PLAIN = ("lecture-hall",)
MOST_SEQUENCES = 128
"""Largest batch to begin with: more would be some megabytes a page."""
TIMES = (0.5, 1, 2, 4, 8)
"""Batches, over the one to begin with, none below a sequence for each device."""
LARGEST_BATCH = 512
SECONDS = 0.3
"""Of search for each answer."""


def write_labs(folder: Path, *, plain: bool = False) -> str:
    """Write the pages, of a plain site only a small one; returns the front page's markup.

    Some minutes on two cores for all of them: an answer takes a search of ``SECONDS``, and a network has three for
    each pair of its regions.
    """
    folder.mkdir(parents=True)
    names = PLAIN if plain else tuple(TITLES)
    for name in names:
        topology = lab.load_topology(name)
        job = opening_job(topology)
        job = job.with_fields(global_batch=min(job.global_batch, MOST_SEQUENCES))
        batches = [int(job.global_batch * times) for times in TIMES]
        batches = [batch for batch in batches if len(topology) <= batch <= LARGEST_BATCH]
        found = list(answers_of(topology, job, batches=batches, seconds=SECONDS))
        note = (
            f"{len(found)} plans found when this site was built, each by {SECONDS:g} s of search from seed 0; one "
            f"change at a time. The lab itself searches as you drag."
        )
        others = {TITLES[other]: "" if other == name else f"{other}.html" for other in names}
        (folder / f"{name}.html").write_text(answering_page(found, others, note), encoding="utf-8")
    (folder / Path(VIEWER).name).write_text(opening_page(), encoding="utf-8")
    first = f"lab/{names[0]}.html"
    return (
        f'<iframe src="{first}" title="The lab without a kernel: drag a link" '
        'style="width: 100%; height: 720px; border: 0; border-radius: 6px"></iframe>\n\n'
        f'<p><a href="{first}" target="_blank">The lab in a tab of its own</a>, to drag a link with nothing installed: '
        "what it answers was found beforehand. "
        f'<a href="{VIEWER}" target="_blank">Open a link</a> that somebody copied in the lab.</p>\n'
    )
