"""The command that prints the schema of a file format, for editors."""

import json

import click

from dtfm_lab.cli.options import cli, json_option, output_option
from dtfm_lab.cli.terminal import err, print_json, print_rows
from dtfm_lab.files.reading import write_text
from dtfm_lab.lab.schemas import FORMATS, schema


@cli.command("show --schema")
@click.argument("format_name", metavar="[FORMAT]", required=False)
@output_option
@json_option
def print_schema(format_name: str | None, output: str | None, as_json: bool) -> None:
    """Print the JSON Schema of a file FORMAT, such as topology or job; all formats without one.

    Editors with a YAML language server complete a file whose first line is
    "# yaml-language-server: $schema=topology.schema.json", once -o has written that file beside it.
    """
    if format_name is not None:
        text = json.dumps(schema(format_name), indent=1) + "\n"
        if output is None:
            return click.echo(text, nl=False)
        write_text(output, text)
        return err.print(f"wrote {output}")
    if output is not None:
        raise click.UsageError("-o needs a FORMAT")
    if as_json:
        told = [{"format": name, "title": each.title, "endings": list(each.endings)} for name, each in FORMATS.items()]
        return print_json({"formats": told})
    rows = [(name, ", ".join(each.endings), each.title) for name, each in FORMATS.items()]
    print_rows(("format", "endings", "what it holds"), rows)
