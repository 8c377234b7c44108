"""The lab's glossary: every word that is marked anywhere is explained, once and in one sentence."""

import re
from pathlib import Path

import pytest

from dtfm_lab.widgets import markup as words
from dtfm_lab.widgets.views.frame import Glossary

SOURCES = [
    path
    for folder in ("dtfm_lab/widgets", "tools/js/shared")
    for path in (Path(__file__).parents[2] / folder).rglob("*")
    if path.suffix in (".py", ".js") and "static" not in path.parts
]
MARKED = re.compile(r"""(?:\bword\(|data-word["']?[=:]\s?)["']([\w -]+)["']""")


@pytest.mark.parametrize("word", words.WORDS)
def test_a_word_is_explained_in_one_sentence(word):
    sentence = words.WORDS[word]
    assert word == word.lower()
    assert sentence[0].isupper()
    assert sentence.endswith(".")
    assert len(sentence) < 160


def test_every_form_leads_to_a_word():
    assert set(words.ALSO.values()) <= set(words.WORDS)
    assert not set(words.ALSO) & set(words.WORDS)
    assert words.meaning("Stages") == words.WORDS["stage"]
    assert words.meaning("lower bound") == words.WORDS["bound"]
    assert words.meaning("tea") == ""
    assert Glossary().words == words.WORDS


def test_every_word_that_is_marked_is_explained():
    marked = {(path.name, term) for path in SOURCES for term in MARKED.findall(path.read_text("utf-8"))}
    assert [(name, term) for name, term in sorted(marked) if not words.meaning(term)] == []


def test_a_marked_word_can_be_reached_by_keyboard_and_cannot_break_the_page():
    html = words.word("1.04 < x")
    assert 'data-word="1.04 &lt; x"' in html
    assert 'tabindex="0"' in html
    assert ">1.04 &lt; x<" in html
