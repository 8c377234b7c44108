"""Systems without a model: each a line with a source, none that has a model."""

import re

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.systems import NOT_MODELLED, strategies


@pytest.mark.parametrize(("name", "reason"), NOT_MODELLED.items())
def test_a_reason_ends_with_its_source(name, reason):
    assert re.search(r"\([A-Z][^()]* \d{4}[^()]*\)$", reason)
    assert name.casefold() not in strategies


def test_who_asks_for_one_is_told_why_it_has_no_model():
    with pytest.raises(LabError, match="skip stages"):
        lab.strategies("lecture-hall", "tiny", systems="skippipe")
