"""Addresses of pages that moved: each old one sends its visitors on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MOVED: Mapping[str, str] = {
    "advice": "own-machines#at-home-in-the-cloud-both-or-not-at-all",
    "change": "devices-that-come-and-go",
    "classroom": "teach#thirty-people-on-one-server",
    "clusters": "extend#sweeps-on-a-cluster",
    "command-line": "commands-and-files",
    "comparison": "how-far-to-trust-it#other-tools",
    "exam": "teach#exam-questions",
    "examples": "python-api",
    "faq": "start#common-questions",
    "figures": "python-api#figures-one-by-one",
    "floor-plan": "extend#floor-plan",
    "gpu": "run-for-real#gpus",
    "hosts": "run-for-real#several-hosts",
    "limits": "how-an-iteration-is-predicted#what-is-modelled-and-what-is-not",
    "networks-and-jobs": "describe-a-network",
    "objectives": "how-a-plan-is-found#what-to-minimise",
    "paths": "teach#three-walks-through-the-lab",
    "planners": "how-a-plan-is-found#planners",
    "plug-ins": "extend#in-a-package-of-your-own",
    "published": "how-far-to-trust-it#published-numbers",
    "questions": "compare-systems#questions",
    "real-run": "run-for-real",
    "recipes": "extend#in-this-repository",
    "scale": "run-for-real#how-large-a-run-can-be",
    "schedules": "how-an-iteration-is-predicted#schedules",
    "security": "run-for-real#security",
    "strategies": "compare-systems",
    "systems": "how-an-iteration-is-predicted#what-frameworks-do-differently",
    "teaching": "teach",
    "where-it-runs": "start#where-it-runs",
}
"""Old page of docs/ -> the page, and where there is one the section, that has its contents."""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>This page has moved</title>
<meta http-equiv="refresh" content="0; url={target}"><link rel="canonical" href="{target}"></head>
<body><p>This page has moved: <a href="{target}">{target}</a></p></body></html>
"""


def write_moved(folder: Path) -> None:
    """Write a page that redirects, for each old address, to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for old, new in MOVED.items():
        page, _, section = new.partition("#")
        target = f"{page}.html#{section}" if section else f"{page}.html"
        (folder / f"{old}.html").write_text(PAGE.format(target=target), encoding="utf-8")
