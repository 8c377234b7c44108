import pytest

from dtfm_lab.extensions.course import checks


@pytest.fixture(autouse=True)
def same_cases(monkeypatch, own_progress):
    """Readers' functions are tried on the same random cases in every test run."""
    monkeypatch.setattr(checks, "cases_seed", 0)
