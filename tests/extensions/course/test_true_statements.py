"""Statements that readers see first, held to what they are about."""

import re
from pathlib import Path

import pytest

import dtfm_lab as lab
from dtfm_lab.extensions.course.api import LESSONS
from dtfm_lab.extensions.published.paper.table import BATCHES

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "tools" / "lessons"
CASES = {"datacenter": 1, "spot": 2, "universities": 3, "regional": 4, "worldwide": 5}


def texts():
    paths = [
        *ROOT.glob("docs/*.md"),
        *SOURCES.glob("*.py"),
        *ROOT.glob("dtfm_lab/**/*.py"),
        *ROOT.glob("dtfm_lab/**/*.yaml"),
    ]
    return {path.relative_to(ROOT): " ".join(path.read_text(encoding="utf-8").split()) for path in paths}


@pytest.mark.parametrize("words", ["paper's batch is", "paper's is 512", "quations 2 to 4", "nats a byte, in"])
def test_nothing_says_what_is_false(words):
    assert [path for path, text in texts().items() if words in text] == []


def test_the_batch_of_the_public_code_is_none_that_the_paper_measured():
    assert lab.load_job("dtfm-gpt3-xl").global_batch not in BATCHES


@pytest.mark.parametrize(("network", "case"), CASES.items())
def test_cases_have_the_papers_numbers(network, case):
    assert f"DT-FM case {case}," in " ".join(lab.load_topology(network).description.split())


def test_the_tours_code_is_about_the_job_above_it():
    source = (SOURCES / "00_tour.py").read_text()
    assert 'lab.Lab("lecture-hall", "tiny")' in source
    assert 'lab.load_job("tiny"' in source


def test_one_model_has_one_unit_of_loss():
    for path in SOURCES.glob("*.py"):
        assert "nats a byte" not in path.read_text(), path.name


@pytest.mark.parametrize("lesson", LESSONS)
def test_sentences_in_tables_are_shown_in_full(lesson):
    source = (SOURCES / f"{lesson}.py").read_text()
    shows = re.search(r'\[\[[^]]*"(sentence|note|source|reason)"', source)
    assert not shows or 'pd.set_option("display.max_colwidth", None)' in source


def test_a_week_needs_only_what_it_has_had():
    page = (ROOT / "docs" / "teach.md").read_text()
    days = re.findall(r"^\| (?:Mon|Tues|Wednes|Thurs|Fri)day \| (.+?) \|", page, re.MULTILINE)
    taught = [number for day in days for number in re.findall(r"\b(\d\d) ", day)]
    assert {"04", "05", "06"} <= set(taught), "the paper is in the week"
    for place, number in enumerate(taught):
        lesson = next(each for name, each in LESSONS.items() if name.startswith(number))
        assert {need[:2] for need in lesson.needs} <= set(taught[:place])
