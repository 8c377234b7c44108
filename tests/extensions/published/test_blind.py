"""Blind predictions: sealed with a hash before anybody measures, opened against measurements, refused if touched."""

import json

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError
from dtfm_lab.extensions.published import own_predictions
from dtfm_lab.extensions.published.blind import opened, save_sealed, seal
from dtfm_lab.extensions.published.row import document
from dtfm_lab.planning import evaluate

HEAD = (
    "setting,quantity,gpu,gpus,inside_gbps,between_gbps,n_layers,d_model,n_heads,vocab_size,seq_len,tensor_parallel,"
    "n_stages,n_replicas,global_batch,microbatch,checkpointing,attention,dtype,rank_map\n"
)
ROW = "{name},{quantity},A100,16,1200,800,4,1024,16,50257,512,4,2,2,8,{microbatch},block,unfused,fp16,listed\n"


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    lines = [ROW.format(name=f"mb {n}", quantity="iteration", microbatch=n) for n in (1, 2)]
    path.write_text(HEAD + "".join(lines) + ROW.format(name="mb 1", quantity="memory", microbatch=1))
    return path


@pytest.fixture
def sealed(rows, tmp_path):
    return save_sealed(seal(rows), tmp_path / "sealed.json")


def measured_file(folder, *lines):
    path = folder / "measured.csv"
    path.write_text("setting,quantity,published\n" + "".join(f"{line}\n" for line in lines))
    return path


def test_what_is_sealed_is_what_an_own_row_is_predicted_as(rows, sealed, tmp_path):
    ledger = opened(sealed, measured_file(tmp_path, "mb 1,iteration,1", "mb 2,iteration,1", "mb 1,memory,9"))
    own = tmp_path / "own.csv"
    head, *lines = rows.read_text().splitlines()
    own.write_text("\n".join([f"{head},published", *(f"{line},1" for line in lines)]))
    assert [row.predicted for row in ledger] == [row.predicted for row in lab.reproduce(own=own)]
    with pytest.raises(FileError, match="column published: 1; wanted none, to predict the row blind"):
        seal(own)
    assert [(row.setting, row.published) for row in ledger] == [("mb 1", 1), ("mb 2", 1), ("mb 1", 9)]
    assert ledger.headline.startswith("3 measured numbers. New clusters: ")


def test_the_same_rows_are_sealed_alike_but_for_the_hour(rows):
    first, second = (seal(rows)["content"] for _ in range(2))
    assert first["predictions"] == second["predictions"]
    assert first["rows_sha256"] == second["rows_sha256"]


@pytest.mark.parametrize("touch", [lambda data: data["content"]["predictions"][0].update(predicted=1.0),
                                   lambda data: data["content"].update(made_at="1999-01-01T00:00:00+00:00"),
                                   lambda data: data.update(sha256="0" * 64)])  # fmt: skip
def test_a_sealed_file_that_was_touched_is_refused(sealed, tmp_path, touch):
    data = json.loads(sealed.read_text())
    touch(data)
    sealed.write_text(json.dumps(data))
    with pytest.raises(FileError, match="is not what was sealed"):
        opened(sealed, measured_file(tmp_path, "mb 1,iteration,1"))


@pytest.mark.parametrize(
    ("unit", "lines", "complaint"),
    [
        (",unit", ["mb 1,iteration,1,ms"], "row 1, column unit: ms; wanted s, as sealed"),
        ("", ["mb 1,iteration,1", "mb 1,iteration,2"], "mb 1, iteration stands 2 times; wanted it once"),
        ("", ["mb 3,iteration,1"], "measures no row"),
    ],
)
def test_measurements_that_do_not_fit_are_refused(sealed, tmp_path, unit, lines, complaint):
    path = measured_file(tmp_path, *lines)
    path.write_text(path.read_text().replace("published", f"published{unit}", 1))
    with pytest.raises(FileError, match=complaint):
        opened(sealed, path)


def test_what_was_not_measured_and_what_was_not_sealed_is_said(sealed, tmp_path):
    (source,) = opened(sealed, measured_file(tmp_path, "mb 1,iteration,1", "mb 3,iteration,1")).sources
    said = "1 of 3 sealed predictions measured; not measured: mb 2 iteration, mb 1 memory; "
    assert source.title.endswith(said + "measured, but not sealed: mb 3 iteration")


def test_rows_that_stand_twice_and_what_is_no_path_are_not_sealed(rows):
    rows.write_text(rows.read_text() + ROW.format(name="mb 1", quantity="memory", microbatch=1))
    with pytest.raises(FileError, match="mb 1, memory stands 2 times"):
        seal(rows)
    with pytest.raises(FileError, match="file is 3; wanted a path"):
        seal(3)


def test_a_sealed_row_keeps_its_band_its_share_and_the_ranks_that_a_search_chose(rows, monkeypatch):
    found = [3, 2, 1, 0]
    monkeypatch.setattr(own_predictions, "best_plan", lambda network, job, **_: evaluate(network, job, rank_map=found))
    head, line, *_ = rows.read_text().splitlines()
    rows.write_text(f"{head},band\n{line.removesuffix('listed')},3%\n{line.replace('mb 1', 'b')},\n")
    placed, listed = seal(rows)["content"]["predictions"]
    assert (placed["band"], listed["band"]["high"]) == ({"low": 0.97, "high": 1.03, "absolute": False}, 1.1)
    assert placed["rank_map"] == found
    assert "rank_map" not in listed
    assert any("of the peak" in said for said in placed["assumptions"])


def test_records_in_sailors_format_are_predicted_blind(tmp_path):
    packaged = document("sailor.json")
    record = dict(packaged["rows"][0])
    measured = {name: record.pop(name) for name in list(record) if name.startswith(("measured_", "sailor_predicts_"))}
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(packaged | {"rows": [record]}))
    sealed = save_sealed(seal(path), tmp_path / "sealed.json")
    with pytest.raises(FileError, match="no measured_iteration_s"):
        lab.reproduce(own=path)
    told = tmp_path / "measured.json"
    told.write_text(json.dumps(packaged | {"rows": [record | measured]}))
    with pytest.raises(FileError, match="holds a measurement"):
        seal(told)
    assert [row.predicted for row in opened(sealed, told)] == [row.predicted for row in lab.reproduce(own=told)][:2]
