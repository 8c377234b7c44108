"""``dtfm-lab lab``: the kernel that it offers, and the page of ``--app``."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel

from dtfm_lab.cli import machine

LOADED = "('dtfm_lab.widgets' in __import__('sys').modules, 'dtfm_lab' in globals())"


def test_a_kernel_of_the_lab_has_loaded_it_before_the_first_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(machine.JUPYTER))
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        answer = client.execute_interactive("", user_expressions={"loaded": LOADED}, timeout=60, store_history=False)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert answer["content"]["user_expressions"]["loaded"]["data"]["text/plain"] == "(True, False)"


def test_jupyterlab_does_not_cover_the_lab_with_its_news(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = pytest.importorskip("jupyterlab_server.settings_utils", reason="reads settings as JupyterLab does")
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "")
    monkeypatch.setenv("JUPYTER_PATH", "")
    monkeypatch.setattr(os, "execv", lambda *_: None)
    machine.open_lab.callback(())
    schemas = Path(sys.prefix, "share", "jupyter", "lab", "schemas")
    found, _ = settings.get_settings("none", str(schemas), str(tmp_path), "@jupyterlab/apputils-extension:notification")
    assert found["schema"]["properties"]["fetchNews"]["default"] == "false", "it is not asked for"


# ``dtfm-lab lab --app``: mistakes are said before anything is served. What it serves is looked at in tests/browser


def test_a_network_that_nobody_knows_is_refused(refuses):
    pytest.importorskip("voila", reason="the page needs voila")
    line = refuses("'atlantis'", "lab", "--app", "atlantis", "--no-browser")
    assert "lecture-hall" in line


def test_without_voila_it_says_what_to_install(refuses, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refuses("pip install 'dtfm_lab[app]'", "lab", "--app")


def test_a_port_is_a_number_of_a_port(refuses):
    refuses("70000 is not in the range 1<=x<=65535", "lab", "--app", "--port", "70000")


@pytest.mark.parametrize("ip", ["203.0.113.5", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_refused(refuses, ip):
    pytest.importorskip("voila", reason="the page needs voila")
    line = refuses(f"no page can be served on '{ip}'", "lab", "--app", "lecture-hall", "--no-browser", "--ip", ip)
    assert "wanted an address of this machine" in line


def test_what_visitors_draw_is_kept_in_a_folder_of_the_page(tmp_path):
    pytest.importorskip("voila", reason="the page needs voila")
    from dtfm_lab.cli.app import notebook_of

    (cell,) = notebook_of("worldwide", tmp_path)["cells"]
    assert cell["source"].endswith(f"lab.Lab('worldwide', autosave=Path('{tmp_path}'))")


def test_how_long_a_kernel_waits_is_a_number_of_seconds(refuses, monkeypatch):
    pytest.importorskip("voila", reason="the page needs voila")
    monkeypatch.setenv("DTFM_LAB_AWAY_S", "soon")
    refuses("DTFM_LAB_AWAY_S is 'soon'; wanted seconds from 1 to 86400", "lab", "--app", "lecture-hall", "--no-browser")
