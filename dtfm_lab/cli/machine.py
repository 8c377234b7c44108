"""Commands about this machine: what it can do, and the lab in a browser."""

import importlib.util
import os
import sys
import webbrowser
from pathlib import Path

import click

from dtfm_lab import lab
from dtfm_lab.cli.doctor import described, doctor_facts
from dtfm_lab.cli.options import cli, json_option
from dtfm_lab.cli.terminal import err, out, print_host_notes, print_json
from dtfm_lab.domain.errors import MissingExtra
from dtfm_lab.domain.extension import extensions
from dtfm_lab.files.workspaces import link_of, state_from_link

FIRST = "00_tour.ipynb"
"""Name of the notebook that the lab opens."""
HAS_LESSONS = "course" in extensions()
"""True if the course is installed. Lessons ask questions that the course checks; without it, their first cell fails."""


@cli.command()
@json_option
def doctor(as_json: bool) -> None:
    """Show what this machine can run, and what it lacks."""
    facts = doctor_facts()
    if as_json:
        return print_json(facts)
    for key, value in described(facts).items():
        out.print(f"{key:>12}  {value}")


@cli.command(
    "lab",
    help=f"Open JupyterLab{' on the first lesson' if HAS_LESSONS else ''}. ARGUMENTS after -- go to JupyterLab.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def open_lab(arguments: tuple[str, ...]) -> None:
    """Replace this process with JupyterLab."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingExtra("the lab needs jupyterlab, which is not installed: pip install 'dtfm_lab[lab]'")
    where = where_to_open(Path.cwd(), checkout=Path(__file__).parents[2]) if HAS_LESSONS else []
    # JupyterLab refuses to run as root without this; a container has no other user
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(JUPYTER), os.environ.get("JUPYTER_PATH")]))
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        filter(None, [str(JUPYTER), os.environ.get("JUPYTER_CONFIG_PATH")])
    )
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *where, *as_root, *arguments])


def where_to_open(folder: Path, *, checkout: Path) -> list[str]:
    """Return JupyterLab's options that open the first lesson.

    The lesson is looked up in ``folder``, then in ``checkout``. Empty if neither has it.
    """
    start = Path("notebooks") / FIRST
    if (folder / FIRST).exists():
        return [f"--LabApp.default_url=/lab/tree/{FIRST}"]
    if (checkout / start).exists():
        return [f"--ServerApp.root_dir={checkout}", f"--LabApp.default_url=/lab/tree/{start.as_posix()}"]
    return []


JUPYTER = Path(__file__).with_name("jupyter")
"""Folder with Jupyter's data and configuration for the lab.

Its kernel loads the lab at its start, so that the first cell does not wait for it. Its default settings keep JupyterLab
from asking whether to show news, in a dialog that would cover the lab. Your own settings take precedence.
"""
PORT_HELP = "Port to listen on, or one near it if it is taken."
PORT = click.option("--port", type=click.IntRange(1, 65535), default=8866, show_default=True, help=PORT_HELP)
BROWSER = click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page in a browser.")


@cli.command("lab --app")
@click.argument("network", required=False)
@click.option("--ip", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 lets others visit.")
@PORT
@BROWSER
@click.option(
    "--runs",
    type=click.IntRange(1),
    help="Maximum number of real runs at once; others wait. By default one per four cores.",
)
def serve_app(network: str | None, ip: str, port: int, browser: bool, runs: int | None) -> None:
    """Serve the lab as a web page, without JupyterLab, until Ctrl-C.

    The page opens NETWORK, a name or a file, or a blank canvas. Each visitor gets their own kernel.

    \b
        dtfm-lab lab --app lecture-hall
        dtfm-lab lab --app --ip 0.0.0.0 --no-browser   # for others, too
    """
    if network is not None:
        print_host_notes(lab.load_topology(network))  # read here, so that an unknown name is reported in the terminal
    _serve(network, "", ip, port, browser, runs)


@cli.command("open")
@click.argument("link")
@PORT
@BROWSER
def open_link(link: str, port: int, browser: bool) -> None:
    """Open the lab from LINK, which *Copy link* made.

    Serves it as a web page until Ctrl-C. A link holds the network, job, plan and tab. The address before its # is
    ignored, so a link from another machine works too.

    \b
        dtfm-lab open 'http://127.0.0.1:8866/#dtfm-lab=...'
    """
    _serve(None, link_of(state_from_link(link)), "127.0.0.1", port, browser, None)


def _serve(network: str | None, link: str, ip: str, port: int, browser: bool, runs: int | None) -> None:
    """Serve the app until interrupted. ``link``, the part of a shared link from # on, is appended to the address that
    is opened. Empty for no link."""
    if importlib.util.find_spec("voila") is None:
        raise MissingExtra("the page needs voila, which is not installed: pip install 'dtfm_lab[app]'")
    from dtfm_lab.cli import app

    def listening(address: str) -> None:
        shown = address if browser else f"{address}{link}"  # a link is long
        err.print(f"the lab is at {shown} (Ctrl-C ends it)", soft_wrap=True, highlight=False)
        if browser:
            webbrowser.open(f"{address}{link}")

    app.serve(network, ip=ip, port=port, runs=runs or max(1, (os.cpu_count() or 1) // 4), listening=listening)
