"""What tests of published numbers share."""

from functools import cache

import pytest

from dtfm_lab.extensions.published.paper import table


@pytest.fixture(scope="session", autouse=True)
def entries_chosen_once():
    """Entries of DT-FM's table take a second each; its own tests and those of its source ask for the same ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "outcome", cache(table.outcome))
        yield
