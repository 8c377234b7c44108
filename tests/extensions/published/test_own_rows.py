"""Numbers of one's own: a file is read or refused in one line, its rows are planned and simulated as any other."""

import json
from dataclasses import replace

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.extensions.published.own import band_of, read_rows

HEAD = "setting,quantity,published,unit,network,job,n_stages,n_replicas,global_batch,microbatch,efficiency,band\n"


def file_of(folder, *lines, head=HEAD, name="mine.csv"):
    path = folder / name
    path.write_text("# measured on a Tuesday\n" + head + "".join(f"{line}\n" for line in lines))
    return path


def row(setting="a", quantity="iteration", published="1", unit="s", efficiency="", band="10%", replicas=2):
    return f"{setting},{quantity},{published},{unit},lecture-hall,small,2,{replicas},16,1,{efficiency},{band}"


def test_a_row_is_what_the_public_functions_predict(tmp_path):
    path = file_of(tmp_path, row())
    (found,) = lab.reproduce(own=path)
    job = lab.load_job("small", n_stages=2, n_replicas=2, global_batch=16, microbatch=1)
    plan = lab.plan("lecture-hall", job, steps=4, seed=0)
    assert found.predicted == lab.simulate(plan).iteration_s
    assert "n_stages 2" in found.assumptions


def test_units_are_the_same_number_said_otherwise(tmp_path):
    lines = [
        row("s"),
        row("ms", unit="ms"),
        row("samples", "throughput", unit="samples/s"),
        row("a GPU", "throughput", unit="samples/s a GPU"),
    ]
    seconds, ms, samples, a_gpu = (each.predicted for each in lab.reproduce(own=file_of(tmp_path, *lines)))
    assert ms == pytest.approx(1000 * seconds)
    assert samples == pytest.approx(16 / seconds)
    assert a_gpu == pytest.approx(samples / 4)


def test_what_is_fitted_never_saw_its_own_row(tmp_path):
    (first, _) = lab.reproduce(
        own=file_of(tmp_path, row("a", published="2", efficiency="fit"), row("b", efficiency="fit"))
    )
    (moved, _) = lab.reproduce(
        own=file_of(tmp_path, row("a", published="3", efficiency="fit"), row("b", efficiency="fit"))
    )
    assert first.predicted == moved.predicted == pytest.approx(1, rel=1e-3)  # the same setting as b, which took 1 s
    assert "fitted to 1 other" in first.fitted


def test_a_json_file_says_the_same_as_a_table(tmp_path):
    table = lab.reproduce(own=file_of(tmp_path, row()))
    names = HEAD.strip().split(",")
    listed = dict(zip(names, row().split(","), strict=True)) | {"n_stages": 2, "published": 1.0, "efficiency": None}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"rows": [listed]}))
    assert lab.reproduce(own=path).rows[0].predicted == table.rows[0].predicted


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (row(quantity="speed"), r"mine.csv, row 1, column quantity: no quantity named 'speed'"),
        (row(published="-3"), r"row 1, column published: '-3'; wanted a number above 0"),
        (row(unit="fortnights"), r"row 1, column unit: no unit named 'fortnights'"),
        (row(band="wide"), r"row 1, column band: band is 'wide'; wanted such as 3%"),
        (row(efficiency="7"), r"row 1, column efficiency: '7'; wanted more than 0 and at most 1"),
        (row(efficiency="fit"), r"row 1, column efficiency: fit, of no other row"),
        (row(replicas=3.5), r"row 1, columns .*n_replicas is 3.5; wanted a whole number"),
        (row(replicas="many"), r"row 1, column n_replicas: 'many'; wanted a number"),
        (row(replicas=8), r"mine.csv, row 1: .*16"),
        (row().replace("lecture-hall", "mars"), r"row 1, column network: .*mars"),
        (row() + ",7", r"row 1 has not as many values as there are columns"),
        (row(setting=""), r"row 1, column setting: nothing; wanted a value"),
        (row().replace("lecture-hall", "") + ",A100,256.5,1,1,", r"gpus is '256.5'; wanted a whole number"),
        (row().replace("lecture-hall", "") + ",A100,1e12,1,1,", r"gpus is 1000000000000; wanted at most"),
        (
            row().replace("small,2,2", "gpt3-xl,,") + ",,,,,listed",
            r"rank_map is listed, without n_stages or n_replicas",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_row_and_column(tmp_path, line, message):
    extra = ",gpu,gpus,inside_gbps,between_gbps,rank_map\n"
    head = HEAD.strip() + extra if line.count(",") == HEAD.count(",") + extra.count(",") else HEAD
    with pytest.raises(FileError, match=message):
        lab.reproduce(own=file_of(tmp_path, line, head=head))


def test_a_column_and_a_record_that_are_none_are_refused_in_a_line(tmp_path):
    with pytest.raises(FileError, match="row 1: no column named 'sharing'; did you mean 'sharding'"):
        read_rows(file_of(tmp_path, row() + ",zero-1", head=HEAD.strip() + ",sharing\n"))
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"message_bytes": [1.0], "rows": [{"case": "a"}]}))
    with pytest.raises(FileError, match=r"mine\.json"):
        lab.reproduce(own=path)


def test_an_efficiency_that_is_typed_leaves_the_headline(tmp_path):
    given, own = lab.reproduce(own=file_of(tmp_path, row("a", efficiency="0.3"), row("b")))
    assert (given.evidence, given.hard, own.hard) == ("fitted", False, True)
    assert any("of the peak" in said for said in own.assumptions)


def test_bands_are_read_as_they_are_written():
    assert [str(band_of(text)) for text in ("3%", "±3%", "1.3x", "+-0.05", "0.9 to 1.2")] == [
        "±3 %",
        "±3 %",
        "0.769 to 1.3 times",
        "±0.05",
        "0.9 to 1.2 times",
    ]


@pytest.fixture(scope="module")
def plans():
    jobs = [lab.load_job("small", n_stages=s, n_replicas=d, global_batch=16, microbatch=1) for s, d in ((2, 2), (4, 1))]
    return [lab.plan("lecture-hall", job, steps=1, seed=0) for job in jobs]


def test_an_efficiency_is_found_again(plans):
    measured = [(plan, lab.simulate(plan, efficiency=0.25).iteration_s) for plan in plans]
    calibration = lab.published.calibrate(measured)
    assert calibration.efficiency == pytest.approx(0.25, rel=1e-3)
    assert calibration.mean_error == pytest.approx(0, abs=1e-3)
    assert lab.simulate(plans[0], efficiency=calibration).iteration_s == pytest.approx(measured[0][1], rel=1e-3)
    assert set(calibration.by("gpu")) == {calibration.rows[0].gpu}
    alone = lab.published.calibrate(measured[:1])
    assert alone.mean_error is None
    assert "judged on none" in alone.sentence


@pytest.mark.parametrize(
    ("given", "message"),
    [([], "no measured rows"), ([3], "row 1 is 3; wanted a measured Trace"), ([("a", 1)], "wanted a measured Trace")],
)
def test_what_is_no_measurement_is_refused(given, message):
    with pytest.raises(LabError, match=message):
        lab.published.calibrate(given)


def test_a_simulated_trace_and_an_impossible_time_are_refused(plans):
    with pytest.raises(LabError, match="row 1 is a simulated trace"):
        lab.published.calibrate([lab.simulate(plans[0])])
    with pytest.raises(LabError, match=r"wanted at least the .* at the peak"):
        lab.published.calibrate([(plans[0], 1e-9)])
    with pytest.raises(LabError, match="by is 'colour'"):
        lab.published.calibrate([(plans[0], 100.0)]).by("colour")


def measured_as(plan, share):
    """A trace as if measured, whose devices reach this share of their peak."""
    trace = lab.simulate(plan, efficiency=share)
    return replace(trace, context=replace(trace.context, source="measured", runs_on="cuda"))


def test_the_time_that_a_run_computed_gives_its_efficiency(plans):
    traces = [measured_as(plan, 0.3) for plan in plans]
    calibration = lab.published.calibrate(traces)
    assert calibration.efficiency == pytest.approx(0.3)
    assert calibration.mean_error == pytest.approx(0, abs=1e-9)


def test_a_row_may_give_its_gpus_and_the_shape_of_its_model(tmp_path):
    head = (
        "setting,quantity,published,gpu,gpus,gpus_a_host,inside_gbps,between_gbps,n_layers,d_model,n_heads,vocab_size,"
        "seq_len,tensor_parallel,n_stages,n_replicas,global_batch,microbatch,checkpointing,rank_map\n"
    )
    shaped = "a,iteration,1,A100,16,8,1200,800,4,1024,16,50257,512,4,2,2,8,1,block,listed"
    (row,) = read_rows(file_of(tmp_path, shaped, head=head))
    assert len(row.topology) == 16
    assert (row.job.modelled().n_blocks, row.job.modelled().seq_len, row.job.tensor_parallel) == (4, 512, 4)
    throughput = shaped.replace("iteration", "throughput").replace("a,", "b,", 1)
    held = [
        shaped.replace("a,iteration,1,A100,16", f"{t},memory,1,A100,{4 * t}").replace(",4,2,2,8,", f",{t},2,2,8,")
        for t in (4, 2)
    ]
    seconds, rate, four, two = lab.reproduce(own=file_of(tmp_path, shaped, throughput, *held, head=head))
    assert rate.predicted == pytest.approx(8 * 512 / seconds.predicted)
    assert four.predicted < two.predicted  # of each GPU of a group
    with pytest.raises(FileError, match="columns vocab_size: nothing; wanted values"):
        read_rows(file_of(tmp_path, shaped.replace("50257", ""), head=head))
    with pytest.raises(FileError, match=r"n_layers is '4.5'; wanted a whole number"):
        read_rows(file_of(tmp_path, shaped.replace("800,4,", "800,4.5,"), head=head))
    with pytest.raises(FileError, match="column between_gbps: nothing"):
        read_rows(file_of(tmp_path, shaped.replace(",800,", ",,"), head=head))


def test_too_many_rows_and_a_name_too_long_for_a_file_are_refused_in_a_line(tmp_path):
    with pytest.raises(FileError, match=r"mine.csv has 2,001 rows; wanted at most 2,000"):
        read_rows(file_of(tmp_path, "\n".join([row()] * 2001)))
    with pytest.raises(FileError, match=r"row 1, column network: no topology named .*xxx"):
        read_rows(file_of(tmp_path, row().replace("lecture-hall", "x" * 400)))
