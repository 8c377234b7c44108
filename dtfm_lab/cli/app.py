"""Serves the Lab as a web page, without a notebook. Voila serves it and starts a kernel for each visitor."""

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
from dtfm_lab.domain.network import shortened
from dtfm_lab.files.reading import reason_of
from dtfm_lab.runtime.client.preload import IDLE_VARIABLE
from dtfm_lab.runtime.protocol.locks import AT_ONCE_VARIABLE, FOLDER_VARIABLE

TEMPLATES = Path(__file__).parent / "page"
TITLE = "dtfm lab: train one model on many machines far apart"
NAME = "dtfm_lab"
EXTENSIONS = (
    "@jupyter-widgets/jupyterlab-manager",
    "@voila-dashboards/widgets-manager8",
    "anywidget",
    "jupyterlab-plotly",
)
"""JupyterLab extensions that the page loads. Other extensions need parts of JupyterLab that Voila does not have."""

AWAY_VARIABLE = "DTFM_LAB_AWAY_S"
"""Environment variable that sets how many seconds an idle kernel waits for its page to come back before it ends. The
default is ``AWAY_S``."""
AWAY_S = 180
OUTPUT_S = 60
"""Maximum seconds that Voila waits for the output of the lab's cell after it has run. Voila's default of 4 s is too
short when many pages open at the same time: it then serves a page without a lab."""


def serve(network: str | None, *, ip: str, port: int, runs: int, listening: Callable[[str], None]) -> None:
    """Serve the Lab on this network, or on a blank canvas if None, until interrupted. The kernels end with the server.

    ``listening`` is called once, with the address to open, which contains the token that the server requires. If the
    port is taken, a nearby one is used. At most ``runs`` runs of visitors compute at once; further ones wait. Raises
    LabError if ``ip`` is not an address of this machine, or if ``AWAY_VARIABLE`` is not 1 to 86400 seconds.

    By default torch is loaded only when a visitor runs something, because it takes 200 MB per visitor. Set the
    environment variable ``IDLE_VARIABLE`` to load it earlier.
    """
    # Checked before the server starts, for a line that says what to do.
    _check_address(ip)
    waits_s = _away_s()
    os.environ.setdefault(IDLE_VARIABLE, "0")  # keeps torch out of memory until a visitor runs something
    os.environ[AT_ONCE_VARIABLE] = str(runs)
    with tempfile.TemporaryDirectory(prefix="dtfm-lab-") as folder:
        # Kernels inherit it, so that all visitors' runs wait in one queue.
        os.environ.setdefault(FOLDER_VARIABLE, os.path.join(folder, "runs"))
        notebook = Path(folder) / f"{NAME}.ipynb"
        notebook.write_text(json.dumps(notebook_of(network, Path(folder, "kept"))))
        page = LabPage(listening)
        page.initialize([
            str(notebook),
            "--token",
            f"--Voila.ip={ip}",
            f"--Voila.port={port}",
            "--Voila.log_level=ERROR",
            f"--MappingKernelManager.cull_idle_timeout={waits_s}",
            # often enough that an idle kernel is ended at most a twelfth of the wait too late
            f"--MappingKernelManager.cull_interval={max(1, waits_s // 12)}",
            f"--VoilaExecutor.iopub_timeout={OUTPUT_S}",
            *(f"--VoilaConfiguration.extension_allowlist={name}" for name in EXTENSIONS),
        ])  # fmt: skip
        if hasattr(signal, "SIGHUP"):  # when the terminal is closed, kernels and files end as after Ctrl-C
            signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
        page.start()


def _check_address(ip: str) -> None:
    try:
        probes = bind_sockets(0, ip)
    except (OSError, UnicodeError) as error:
        raise LabError(
            f"no page can be served on {ip!r} ({reason_of(error)}); wanted an address of this machine"
        ) from None
    for probe in probes:
        probe.close()


def _away_s() -> int:
    said = os.environ.get(AWAY_VARIABLE, str(AWAY_S))
    if not said.isdecimal() or not 1 <= int(said) <= 86400:
        raise LabError(f"environment variable {AWAY_VARIABLE} is {shortened(said)}; wanted seconds from 1 to 86400")
    return int(said)


def notebook_of(network: str | None, kept: Path) -> dict[str, object]:
    """Return the notebook that is served, with one cell, as JSON.

    A kernel starts in the notebook's temporary folder, so the cell changes to the server's folder.

    Each visitor's work is saved in a separate file in the folder ``kept``, for as long as the server runs.
    """
    lines = ["import os", "from pathlib import Path", f"os.chdir({os.getcwd()!r})", "import dtfm_lab as lab"]
    source = "\n".join([*lines, f"lab.Lab({network!r}, autosave=Path({str(kept)!r}))"])
    code: dict[str, object] = {"cell_type": "code", "id": "lab", "metadata": {}, "execution_count": None, "outputs": []}
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": python, "title": TITLE}
    return {"cells": [code | {"source": source}], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


class LabPage(Voila):  # type: ignore[misc]  # voila has no types
    """Voila with this package's template. Voila's own template loads fonts from other machines."""

    def __init__(self, listening: Callable[[str], None]) -> None:
        super().__init__()
        self._listening = listening

    def setup_template_dirs(self) -> None:
        super().setup_template_dirs()
        self.template_paths.insert(0, str(TEMPLATES))
        self.voila_configuration.prelaunch_hook = _give_cookie

    def launch_browser(self) -> None:
        """Report the address. Voila's method would open a file that loads fonts and lacks the token."""
        self._listening(self.display_url)


def _give_cookie(visit: RequestHandler, **_: object) -> None:
    """Set the XSRF cookie. Without it, the server refuses a closing page's request to end its kernel."""
    visit.xsrf_token  # noqa: B018  tornado sets the cookie when this property is read
