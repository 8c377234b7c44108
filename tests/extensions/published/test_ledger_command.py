"""dtfm-lab reproduce: published numbers and one's own beside predictions; its exit status says whether all agree."""

import json

import pytest
from click.testing import CliRunner

from dtfm_lab.cli import cli

HEAD = "setting,quantity,published,network,job,n_stages,n_replicas,global_batch,microbatch,band,note\n"
ROW = "my cluster,iteration,{seconds},lecture-hall,small,2,2,16,1,10%,on a Tuesday\n"


@pytest.fixture(scope="module")
def seconds(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "mine.csv"
    path.write_text(HEAD + ROW.format(seconds=1))
    return json.loads(invoked("--own", path, "--json").stdout)["rows"][0]["predicted"]


def invoked(*arguments):
    return CliRunner().invoke(cli, ["reproduce", *map(str, arguments)])


@pytest.mark.parametrize(("times", "status"), [(1.0, 0), (2.0, 1)])
def test_strict_fails_where_a_row_leaves_its_band(tmp_path, seconds, times, status):
    path = tmp_path / "mine.csv"
    path.write_text(HEAD + ROW.format(seconds=times * seconds))
    assert invoked("--own", path).exit_code == 0
    assert invoked("--own", path, "--strict").exit_code == status


def test_a_miss_is_told_with_its_note(tmp_path, seconds):
    path = tmp_path / "mine.csv"
    path.write_text(HEAD + ROW.format(seconds=2 * seconds))
    told = invoked("--own", path).stdout
    assert "my cluster, iteration −50.0 %: on a Tuesday" in told
    assert "0 of 1 rows inside" in told


@pytest.mark.parametrize("ending", ["html", "md", "csv", "json"])
def test_the_ledger_is_written(tmp_path, seconds, ending):
    path, written = tmp_path / "mine.csv", tmp_path / f"ledger.{ending}"
    path.write_text(HEAD + ROW.format(seconds=2 * seconds))
    assert invoked("--own", path, "-o", written).exit_code == 0
    assert "my cluster" in written.read_text()


def test_mistakes_are_refused(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(HEAD + ROW.format(seconds=1))
    assert "no source of published numbers named 'gossip'" in str(invoked("gossip").exception)
    assert "wanted one of .html, .md, .csv, .json" in str(invoked("--own", path, "-o", tmp_path / "x.txt").exception)


def test_the_help_lists_the_sources():
    assert "zero-bubble-memory" in invoked("--help").stdout


def test_rows_without_measurements_are_sealed_and_opened(tmp_path, seconds):
    rows, sealed, measured = (tmp_path / name for name in ("rows.csv", "sealed.json", "measured.csv"))
    rows.write_text(HEAD.replace("published,", "") + ROW.replace("{seconds},", ""))
    told = invoked("--blind", rows, "-o", sealed)
    assert json.loads(sealed.read_text())["sha256"] in told.stdout
    measured.write_text(f"setting,quantity,published\nmy cluster,iteration,{seconds}\n")
    told = invoked("--open", sealed, measured).stdout
    assert "1 measured numbers. New clusters: 0 of 1 outside their bands" in told
    assert "wanted one of them" in str(invoked("sailor", "--blind", rows).exception)
