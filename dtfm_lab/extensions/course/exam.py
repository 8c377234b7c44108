"""The questions of docs/teach.md with random numbers, and their answers, each a closed form.

A question is a template. ``sampled`` returns random numbers for one student's exam, and ``worked`` adds what follows
from them. ``printed`` is the page for a class, with one sheet per student.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from html import escape
from math import factorial
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.extensions.course.mission import TEXTS
from dtfm_lab.files import load_topology
from dtfm_lab.files.reading import read_mapping

Numbers = Mapping[str, Any]


class ExamQuestion(NamedTuple):
    """A question and its answer, both templates, in Markdown."""

    asks: str
    answer: str


_EXAM = read_mapping(TEXTS / "exam.yaml")
PRINTED: Numbers = _EXAM["numbers"]
"""The numbers with which docs/teach.md prints the exam."""


def sampled(rng: np.random.Generator) -> Numbers:
    """Return random numbers for the exam's questions that are as easy to compute with as the original ones."""
    network = load_topology("worldwide")
    cities = sorted({str(device.region) for device in network.devices})
    here, there = (str(name) for name in rng.choice(cities, 2, replace=False))
    ends = [next(i for i, device in enumerate(network.devices) if device.region == name) for name in (here, there)]
    latency_s, bytes_per_s = network.latency_s[*ends], network.bandwidth_bytes_per_s[*ends]
    bound_s = int(rng.integers(20, 40))
    return {
        "here": here, "there": there, "latency_ms": f"{latency_s * 1e3:g}", "gbps": f"{bytes_per_s * 8 / 1e9:g}",
        "ring": int(rng.integers(5, 13)), "ring_ms": 10 * int(rng.integers(2, 10)), "ring_gb": int(rng.integers(1, 5)),
        "stages": int(rng.integers(3, 7)), "microbatches": int(rng.integers(7, 17)),
        "group": int(rng.integers(3, 7)), "group_mb": 60 * int(rng.integers(3, 10)),
        "hop_ms": 5 * int(rng.integers(1, 9)), "hop_mb": 10 * int(rng.integers(2, 10)),
        # Numbers that split into whole groups only.
        "few": (few := int(rng.choice([6, 8, 9, 10, 12]))), "few_groups": few // (3 if few == 9 else 2),
        "cost_s": bound_s + int(rng.integers(3, 15)), "bound_s": bound_s,
        "billions": int(rng.integers(3, 30)) / 10,
        "averaging_s": int(rng.integers(8, 20)), "rest_s": int(rng.integers(2, 7)), "every": int(rng.integers(4, 20)),
        "sent_ms": 10 * int(rng.integers(3, 15)), "sent_mb": 4 * int(rng.integers(1, 6)),
    }  # fmt: skip


def numbers_of(variant: str) -> Numbers:
    """Return the numbers of one student's exam. ``variant`` is the text that seeds them, made with the class's key."""
    seed = hashlib.sha256(f"exam: {variant}".encode()).digest()[:8]
    return sampled(np.random.default_rng(int.from_bytes(seed)))


def worked(numbers: Numbers) -> Numbers:
    """Return the given numbers and the answers, by the names that the questions use, such as ``ring_s``: the seconds of
    a ring all-reduce."""
    n = dict(numbers)
    stages, microbatches, members, few = n["stages"], n["microbatches"], n["group"], n["few"]
    rounds, shard_mb = 2 * (n["ring"] - 1), n["group_mb"] / members
    shard_s, hop_s = n["hop_ms"] / 1e3 + shard_mb * 8 / 1e3, n["hop_ms"] / 1e3 + n["hop_mb"] * 8 / 1e3
    group_s, path_s = 2 * (members - 1) * shard_s, 2 * (stages - 1) * hop_s
    size = few // n["few_groups"]
    before_s = 3 * (microbatches + stages - 1)
    slow_s = 6 * microbatches + 3 * (stages - 1)  # each waits for the slow stage; one passes all others, too
    averaging_s, rest_s, sent_s = n["averaging_s"], n["rest_s"], n["sent_ms"] / 1e3
    gigabytes = 16 * n["billions"]
    return n | {
        "half_mb": float(n["latency_ms"]) / 1e3 * float(n["gbps"]) * 1e9 / 8 / 1e6,
        "ring_s": rounds * (n["ring_ms"] / 1e3 + 8 * n["ring_gb"] / n["ring"]),
        "ring_latency_s": rounds * n["ring_ms"] / 1e3,
        "ring_rest_s": rounds * 8 * n["ring_gb"] / n["ring"],
        "between": stages - 1, "bubble": f"{100 * (stages - 1) / (microbatches + stages - 1):.1f} %",
        "all_slots": microbatches + stages - 1, "held": min(stages, microbatches),
        "shard_mb": shard_mb, "shard_s": shard_mb * 8 / 1e3, "others": members - 1,
        "group_s": group_s, "hop_s": 2 * hop_s, "path_s": path_s, "placement_s": group_s + path_s,
        "size": size, "groupings": factorial(few) // (factorial(size) ** n["few_groups"] * factorial(n["few_groups"])),
        "gap": f"{100 * (n['cost_s'] - n['bound_s']) / n['cost_s']:.3g} %", "faster": n["cost_s"] / n["bound_s"],
        "before_s": before_s, "slow_s": slow_s, "slower": slow_s / before_s, "busy_s": 6 * microbatches,
        "gigabytes": gigabytes, "gigabytes_each": gigabytes / stages,
        "rarely": (averaging_s + rest_s) / (rest_s + averaging_s / n["every"]),
        "at_most": (averaging_s + rest_s) / rest_s,
        "sooner": (sent_s + n["sent_mb"] * 8 / 1e3) / (sent_s + n["sent_mb"] * 2 / 1e3),
    }  # fmt: skip


QUESTIONS = tuple(ExamQuestion(**each) for each in _EXAM["questions"])


def questions(numbers: Numbers) -> Iterator[ExamQuestion]:
    """Yield the questions with these numbers in them, and their answers."""
    everything = worked(numbers)
    for each in QUESTIONS:
        yield ExamQuestion(each.asks.format(**everything), each.answer.format(**everything))


def printed(numbers: Mapping[str, Numbers], *, answers: bool) -> str:
    """Return an HTML page to print, with one sheet per student. With ``answers``, it shows the answers too."""
    title = "Exam: decentralised training" + (", with answers" if answers else "")
    sheets = []
    for student, own in numbers.items():
        items = []
        for each in questions(own):
            said = f'<p class="answer">{_html(each.answer)}</p>' if answers else ""
            items.append(f"<li>{_html(each.asks)}{said}</li>")
        sheets.append(f"<section><h1>{title}: {escape(student)}</h1><ol>{''.join(items)}</ol></section>")
    head = f'<meta charset="utf-8"><title>{title}</title><style>\n{_EXAM["style"]}\n</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(sheets)}</body></html>\n'


def _html(text: str) -> str:
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", marked)
