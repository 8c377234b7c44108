"""``dtfm-lab lab --app``: mistakes are said before anything is served. What it serves is looked at in tests/browser."""

import importlib.util

import pytest


def test_a_network_that_nobody_knows_is_refused(shell):
    pytest.importorskip("voila", reason="the page needs voila")
    status, _, line = shell("lab", "--app", "atlantis", "--no-browser")
    assert status == 2
    assert "'atlantis'" in line
    assert "lecture-hall" in line


def test_without_voila_it_says_what_to_install(shell, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    status, _, line = shell("lab", "--app")
    assert status == 2
    assert "pip install 'dtfm_lab[app]'" in line


def test_a_port_is_a_number_of_a_port(shell):
    status, _, line = shell("lab", "--app", "--port", "70000")
    assert status == 2
    assert "70000 is not in the range 1<=x<=65535" in line


@pytest.mark.parametrize("ip", ["203.0.113.5", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_refused(shell, ip):
    pytest.importorskip("voila", reason="the page needs voila")
    status, _, line = shell("lab", "--app", "lecture-hall", "--no-browser", "--ip", ip)
    assert status == 2
    assert line.count("\n") == 1
    assert f"no page can be served on '{ip}'" in line
    assert "wanted an address of this machine" in line


def test_what_a_visitor_draws_is_kept_for_nobody_else():
    pytest.importorskip("voila", reason="the page needs voila")
    from dtfm_lab.cli.app import notebook_of

    (cell,) = notebook_of("worldwide")["cells"]
    assert cell["source"].endswith("lab.Lab('worldwide', autosave=False)")


def test_how_long_a_kernel_waits_is_a_number_of_seconds(shell, monkeypatch):
    pytest.importorskip("voila", reason="the page needs voila")
    monkeypatch.setenv("DTFM_LAB_AWAY_S", "soon")
    status, _, line = shell("lab", "--app", "lecture-hall", "--no-browser")
    assert status == 2
    assert "DTFM_LAB_AWAY_S is 'soon'; wanted seconds from 1 to 86400" in line
