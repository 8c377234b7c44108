"""The reference of the command line, made from the commands themselves."""

from __future__ import annotations

from inspect import cleandoc

import click

from dtfm_lab.cli import cli
from tools.website.notebooks import fenced


def sections() -> str:
    """Return a section for each command: how it is called, what it does, and its options."""
    parts = []
    top = click.Context(cli, info_name="dtfm-lab")
    for name in sorted(cli.known):
        command = cli.imported(name)
        assert command is not None, name
        context = click.Context(command, info_name=name, parent=top)
        usage = " ".join(["dtfm-lab", name, *command.collect_usage_pieces(context)])
        parts += [f"### {name}", fenced(usage, "text"), _plain(command.help or "")]
        records = [
            record
            for each in command.get_params(context)
            if (record := each.get_help_record(context)) and record[1] and each.name != "help"
        ]
        rows = [f"| `{_cell(option)}` | {_cell(said)} |" for option, said in records]
        if rows:
            parts.append("\n".join(["| option | what it does |", "| --- | --- |", *rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _plain(text: str) -> str:
    return cleandoc(text).replace("\b\n", "").replace("\b", "").replace("<", "&lt;").strip()
