"""The card of "Rent or own": its sentence and its picture say what the advice says, whatever things are called."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import dtfm_lab as lab
from dtfm_lab.extensions.advice.card import BAR, LEAST_BAR, card_svg, coins, rows_of, sentence_of

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def advice():
    return lab.advise("lecture-hall", "small", tokens="100M", steps=1)


def test_the_sentence_has_the_best_option_and_its_rival_in_time_and_money(advice):
    sentence = sentence_of(advice)
    assert sentence.startswith("Rent one RTX 4090: ")
    assert re.search(r"\. Your laptops: [\d.]+ h$", sentence), "nobody knows what a laptop draws"
    unlimited = replace(advice, asked=replace(advice.asked, deadline_days=1e-9))
    assert sentence_of(unlimited).startswith("Nothing meets your limits. The fastest, ")
    own = replace(advice, options=tuple(way for way in advice.options if way.where == "At home"))
    assert sentence_of(own).startswith("Use your laptops: ")
    none = replace(advice, options=tuple(replace(way, plan=None, lacks="too little") for way in advice.options))
    assert "fits neither" in sentence_of(none)
    assert card_svg(none) == ""


def test_bars_are_as_long_as_times_and_dollars_are(advice):
    rows = rows_of(advice)
    assert advice.best in rows
    assert [way.seconds for way in rows] == sorted(way.seconds for way in rows)
    root = ElementTree.fromstring(card_svg(advice))
    bars = [float(one.get("width")) for one in root.findall(f"{SVG}rect")][1:]
    for values, widths in (([w.seconds for w in rows], bars[::2]), ([w.dollars for w in rows], bars[1::2])):
        assert widths == pytest.approx([max(LEAST_BAR, BAR * value / max(values)) for value in values], abs=0.1)
    said = [one.text for one in root.findall(f"{SVG}text")]
    assert sentence_of(advice).split(". ")[0] in said
    assert "electricity *" in said
    assert any("* Electricity is unknown and not counted." in one for one in said)


def test_a_name_never_becomes_markup(advice):
    ways = tuple(replace(way, name=f"</text><script>{way.name}") for way in advice.options)
    root = ElementTree.fromstring(card_svg(replace(advice, options=ways)))
    assert {element.tag for element in root.iter()} == {f"{SVG}{tag}" for tag in ("svg", "rect", "text")}


def test_small_money_is_said_in_cents():
    assert [coins(dollars) for dollars in (0.0, 0.004, 0.0101, 0.42, 0.997, 9.551, 234.4)] == [
        "$0.00",
        "under 1 cent",
        "1 cent",
        "42 cents",
        "$1.00",
        "$9.55",
        "$234",
    ]
