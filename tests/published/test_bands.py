"""The rule of bands: it covers every class and quantity, and the file that states it is never edited."""

from hashlib import sha256
from importlib.resources import files

import pytest

from dtfm_lab.published import QUANTITIES, Band, sources
from dtfm_lab.published.evidence import Evidence, band_by_rule, rule
from dtfm_lab.published.tables import numbers

SHA256 = "6238004f03dbf2117bf6e4862c57da4940675a411b506c34c97e2d769dc7347b"
"""Of the file as it was before the predictions that it judges. It stands; what leaves a band is a miss."""


def test_the_file_of_bands_is_the_one_that_was_stated_before():
    text = (files("dtfm_lab.published") / "data" / "bands.csv").read_bytes()
    assert sha256(text).hexdigest() == SHA256


def test_every_class_and_quantity_has_one_band():
    assert set(rule()) == {(evidence, quantity) for evidence in Evidence for quantity in QUANTITIES}


def test_what_is_said_as_seconds_or_as_a_rate_gets_one_verdict():
    for evidence in Evidence:
        seconds, rate = band_by_rule(evidence, "iteration"), band_by_rule(evidence, "throughput")
        for ratio in (0.7, 0.84, 0.92, 0.96, 1.0, 1.04, 1.09, 1.19, 1.3):
            assert seconds.holds(1.0, ratio) == rate.holds(1.0, 1 / ratio)


def test_a_band_of_shares_is_in_the_unit_of_the_row():
    assert band_by_rule(Evidence.PURE, "utilisation") == Band.within(0.05)
    assert band_by_rule(Evidence.PURE, "utilisation", "%") == Band.within(5)


def test_held_out_rows_are_listed_and_not_in_the_data():
    held_out = [(name, each.n) for name, source in sources.items() for each in source.omitted if each.held_out]
    assert held_out == [("sailor", 14), ("vtrain", 47)]
    assert {line["model"] for line in numbers("vtrain_multi.csv")} == {"3.6B", "18.4B", "175B"}


@pytest.mark.parametrize("evidence", Evidence)
def test_only_what_never_saw_its_source_is_hard(evidence):
    assert evidence.hard == (evidence in ("pure", "transferred"))
