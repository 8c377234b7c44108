"""A broken file of your own rows is refused in one line."""

from test_reading import refuses_broken_csv

from dtfm_lab.extensions.published.own import read_rows


def test_broken_csv_is_refused_in_one_line(tmp_path):
    refuses_broken_csv(read_rows, tmp_path / "rows.csv", "setting,unit")
