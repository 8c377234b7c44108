"""The command ``dtfm-lab``: the lab from the shell. With ``--json`` a command prints one JSON object on standard
output.

Exit statuses: 0, done. 1, the run failed or the output cannot be written. 2, the input is wrong, explained in one line
on standard error. 130, interrupted.
"""

import io
import sys
from typing import NoReturn

import click

from dtfm_lab.cli import (  # noqa: F401  their commands join the group
    machine,
    networks,
    plans,
    predictions,
    runs,
)
from dtfm_lab.cli.options import cli, no_such_option
from dtfm_lab.domain.errors import LabError, RunError


def main() -> NoReturn:
    """Run the console script. An error becomes one line on standard error and an exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without é in its encoding still gets its line
    try:
        cli.main(standalone_mode=False)
        status = 0
    except click.exceptions.Exit as stop:
        status = stop.exit_code
    except click.exceptions.NoArgsIsHelpError as wanted:
        click.echo(wanted.ctx.get_help())
        status = 0
    except click.NoSuchOption as error:
        status = _print_error(no_such_option(error), 2)
    except click.ClickException as error:
        status = _print_error(error.format_message(), 2)
    except RunError as error:
        status = _print_error(str(error), 1)
    except LabError as error:
        status = _print_error(str(error), 2)
    except (click.Abort, KeyboardInterrupt):
        # Shells report 128 + the signal's number, and Ctrl-C is signal 2.
        status = _print_error("stopped", 130)
    except BrokenPipeError:
        # A reader such as `head` stopped reading. Close stderr, so that Python does not complain at exit that it cannot
        # flush.
        sys.stderr.close()
        status = 0
    except OSError as error:
        status = _print_error(f"output cannot be written: {error.strerror or error}", 1)
    sys.exit(status)


def _print_error(message: str, status: int) -> int:
    click.echo(f"dtfm-lab: {' '.join(message.split())}", err=True)
    return status
