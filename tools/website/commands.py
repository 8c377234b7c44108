"""The reference of the command line, made from the commands themselves."""

from __future__ import annotations

import click

from dtfm_lab.cli import cli
from tools.website.notebooks import fenced


def page() -> str:
    """Every command: how it is called, what it does, and its options."""
    parts = [
        "# Every command",
        "As `dtfm-lab COMMAND --help` says it. What people do with them: [the command line](../docs/command-line.md).",
    ]
    top = click.Context(cli, info_name="dtfm-lab")
    for name in sorted(cli.known):
        command = cli.imported(name)
        assert command is not None, name
        context = click.Context(command, info_name=name, parent=top)
        usage = " ".join(["dtfm-lab", name, *command.collect_usage_pieces(context)])
        parts += [f"## {name}", fenced(usage, "text"), _plain(command.help or "")]
        records = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
        rows = [f"| `{_cell(option)}` | {_cell(said)} |" for option, said in records]
        parts.append("\n".join(["| option | what it does |", "| --- | --- |", *rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _plain(text: str) -> str:
    return text.replace("\b", "").replace("<", "&lt;").strip()
