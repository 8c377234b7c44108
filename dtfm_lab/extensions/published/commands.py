"""The command that predicts what others measured, and compares the two."""

import sys

import click

from dtfm_lab.cli.options import completing, file_option, json_option, listing
from dtfm_lab.cli.terminal import out, print_json, print_report, print_rows, row_progress
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.report import as_markdown
from dtfm_lab.extensions.published import blind as blind_tests
from dtfm_lab.extensions.published import regret as choices
from dtfm_lab.extensions.published.api import Row, sources
from dtfm_lab.extensions.published.ledger import check_ending, number, report_of
from dtfm_lab.extensions.published.nanotron import read_sweep
from dtfm_lab.extensions.published.reproducing import reproduce as reproduced
from dtfm_lab.files.reading import write_text


@click.command(cls=listing("Sources", sources))
@click.argument("names", nargs=-1, metavar="[SOURCE]...", shell_complete=completing(sources))
@click.option(
    "--own",
    type=click.Path(dir_okay=False),
    help="A CSV or JSON file of your own rows; docs/how-far-to-trust-it.md has its columns.",
)
@click.option(
    "--blind",
    type=click.Path(dir_okay=False),
    help="A file of rows without measurements. Predicts them and seals the predictions with a hash (-o sealed.json).",
)
@click.option(
    "--open",
    "opened",
    nargs=2,
    type=click.Path(dir_okay=False),
    metavar="SEALED MEASURED",
    help="A sealed file and the measurements of its rows: check its hash and compare the two.",
)
@click.option(
    "--regret",
    is_flag=False,
    flag_value="",
    type=click.Path(dir_okay=False),
    metavar="[SWEEP]",
    help="Choose among measured configurations, and say how fast the choice was. Uses the Ultra-Scale Playbook's "
    "sweep, or your CSV file with the same columns.",
)
@click.option("--strict", is_flag=True, help="Exit with status 1 if a row is outside its band and not a known miss.")
@file_option("-o", "--output", help="Write the ledger to this file: .html, .md, .csv or .json.")
@json_option
def reproduce(
    names: tuple[str, ...],
    own: str | None,
    blind: str | None,
    opened: tuple[str, str] | None,
    regret: str | None,
    strict: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Compare each number that others published with our prediction.

    Predicts all sources, some by name, or the rows of your own file. Blind tests predict rows whose measurements only
    you have.
    """
    if sum((bool(names or own), bool(blind), bool(opened), regret is not None)) > 1:
        raise LabError("sources or --own, --blind, --open and --regret are given together; wanted one of them")
    if regret is not None:
        return _choose(regret or None, output, as_json)
    if blind is not None:
        return _seal(blind, output, as_json)
    # Checked now, since predicting all rows takes minutes.
    if output is not None:
        check_ending(output)
    if opened is not None:
        ledger = blind_tests.opened(*opened)
    else:
        with row_progress("reproduce", _described) as show:
            ledger = reproduced(*names, own=own, progress=show)
    if output is not None:
        ledger.save(output)
    if as_json:
        print_json(ledger.to_dict())
    else:
        print_report(report_of(ledger, rows=True))
    if ledger.stopped:
        # The status of shells after Ctrl-C.
        sys.exit(130)
    # For scripts that check the lab itself.
    if strict and ledger.failures:
        sys.exit(1)
    return None


def _choose(path: str | None, output: str | None, as_json: bool) -> None:
    """Print, and write to ``output``, the measured speed of the configurations that are chosen by prediction."""
    n_rows = len(read_sweep(*filter(None, [path])))
    with row_progress("reproduce", lambda row: row.one.setting, "rows", n_rows) as show:
        found = choices.regret(path, progress=show)
    if output is not None:
        write_text(output, as_markdown(choices.report_of(found)))
    if as_json:
        return print_json(found.to_dict())
    return print_report(choices.report_of(found))


def _described(row: Row) -> str:
    return f"{row.source}: {row.setting}, {row.quantity} {row.ratio:.3f}"


def _seal(path: str, output: str | None, as_json: bool) -> None:
    """Predict rows without measurements, print the predictions and their hash, and write them sealed."""
    sealed = blind_tests.seal(path)
    if output is not None:
        blind_tests.save_sealed(sealed, output)
    if as_json:
        return print_json(sealed)
    lines = []
    for one in sealed["content"]["predictions"]:
        between = " to ".join(map(number, one["interval"] or ()))
        lines.append((one["setting"], one["quantity"], f"{number(one['predicted'])} {one['unit']}", between))
    print_rows(("setting", "quantity", "predicted", "90 % interval"), lines)
    out.print(f"sha256 {sealed['sha256']}")
