import pytest

from dtfm_lab.course import checks


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    """No test writes into the progress of whoever runs it."""
    monkeypatch.setenv("DTFM_LAB_PROGRESS", str(tmp_path / "progress"))
    monkeypatch.setenv("DTFM_LAB_READER", "ada")


@pytest.fixture(autouse=True)
def same_cases(monkeypatch):
    """Readers' functions are tried on the same random cases in every test run."""
    monkeypatch.setattr(checks, "cases_seed", 0)
