"""dtfm-lab guesses: a reader's own, and a class's."""

import json

import pytest
from click.testing import CliRunner

import dtfm_lab as lab
from dtfm_lab.cli import cli


@pytest.fixture(autouse=True)
def a_class(tmp_path, monkeypatch):
    monkeypatch.setenv("DTFM_LAB_PROGRESS", str(tmp_path / "progress"))
    for reader, said in (("barbara", 40), ("ada", 12)):
        monkeypatch.setenv("DTFM_LAB_READER", reader)
        lab.guess("cost", "What does chance cost?", 49.5, "s").guess(said)
        lab.missions.export(tmp_path / "class")
    return tmp_path


def test_a_reader_sees_their_own_and_a_teacher_the_class(a_class):
    own = CliRunner().invoke(cli, ["guesses", "--json"])
    assert [row["guess"] for row in json.loads(own.stdout)["guesses"]] == [12]
    whole = CliRunner().invoke(cli, ["guesses", str(a_class / "class"), "-o", str(a_class / "guesses.svg")])
    assert "26 s" in whole.stdout
    assert "1 of 2 within a factor of 2" in whole.stdout
    assert (a_class / "guesses.svg").read_text().startswith("<svg")


def test_a_folder_without_files_is_refused_in_a_line(a_class):
    (a_class / "empty").mkdir()
    refused = CliRunner().invoke(cli, ["guesses", str(a_class / "empty")])
    assert "no file of a reader's progress" in str(refused.exception)
