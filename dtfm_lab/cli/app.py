"""The Lab alone as a page, without a notebook around it: Voila serves it, and starts a kernel for each visitor."""

import json
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from tornado.netutil import bind_sockets
from tornado.web import RequestHandler
from voila.app import Voila

from dtfm_lab.domain.errors import LabError

TEMPLATES = Path(__file__).parent / "page"
TITLE = "dtfm_lab"
EXTENSIONS = (
    "@jupyter-widgets/jupyterlab-manager",
    "@voila-dashboards/widgets-manager8",
    "anywidget",
    "jupyterlab-plotly",
)
"""Extensions of JupyterLab that the page loads; others need parts of JupyterLab that Voila does not have."""
IDLE_S, LOOK_EVERY_S = 600, 60
"""A kernel without messages from a page is ended after IDLE_S; a page that is closed ends its own at once."""


def serve(network: str | None, *, ip: str, port: int, listening: Callable[[str], None]) -> None:
    """Serve the Lab on this network, a blank canvas if None, until interrupted; kernels end with it.

    ``listening`` is called once, with the address to open, which holds the token that lets a visitor in.
    Where the port is taken, one near it is. Raises a LabError where ``ip`` is no address of this machine.
    """
    _refuse_unusable(ip)
    with tempfile.TemporaryDirectory(prefix="dtfm-lab-") as folder:
        notebook = Path(folder) / f"{TITLE}.ipynb"
        notebook.write_text(json.dumps(notebook_of(network)))
        page = LabPage(listening)
        page.initialize([
            str(notebook),
            "--token",
            f"--Voila.ip={ip}",
            f"--Voila.port={port}",
            "--Voila.log_level=ERROR",
            f"--MappingKernelManager.cull_idle_timeout={IDLE_S}",
            f"--MappingKernelManager.cull_interval={LOOK_EVERY_S}",
            *(f"--VoilaConfiguration.extension_allowlist={name}" for name in EXTENSIONS),
        ])  # fmt: skip
        if hasattr(signal, "SIGHUP"):  # a terminal that is closed: kernels and files end as after Ctrl-C
            signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
        page.start()


def _refuse_unusable(ip: str) -> None:
    try:
        probes = bind_sockets(0, ip)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise LabError(f"no page can be served on {ip!r} ({why}); wanted an address of this machine") from None
    for probe in probes:
        probe.close()


def notebook_of(network: str | None) -> dict[str, object]:
    """One cell. Kernels begin in the notebook's folder, but a visitor's files belong where the server was started.

    Nothing is saved unasked: visitors share that folder, and one would be offered what another drew.
    """
    source = f"import os\nos.chdir({os.getcwd()!r})\nimport dtfm_lab as lab\nlab.Lab({network!r}, autosave=False)"
    code: dict[str, object] = {"cell_type": "code", "id": "lab", "metadata": {}, "execution_count": None, "outputs": []}
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [code | {"source": source}],
        "metadata": {"kernelspec": python, "title": TITLE},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


class LabPage(Voila):  # type: ignore[misc]  # voila has no types
    """Voila under a template of ours: its own asks other machines for fonts."""

    def __init__(self, listening: Callable[[str], None]) -> None:
        super().__init__()
        self._listening = listening

    def setup_template_dirs(self) -> None:
        super().setup_template_dirs()
        self.template_paths.insert(0, str(TEMPLATES))
        self.voila_configuration.prelaunch_hook = _give_cookie

    def launch_browser(self) -> None:
        """Voila would first open a file that asks for fonts, without the token."""
        self._listening(self.display_url)


def _give_cookie(visit: RequestHandler, **_: object) -> None:
    """Without this cookie a page that is closed may not end its kernel; tornado sends it when asked what it is."""
    visit.xsrf_token  # noqa: B018  asking for it is what sends it
