"""Missions about when to decentralise: what wins them, and what does not."""

from mission_cases import assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab


def test_break_even_price():
    assert_won_by_its_answer("break-even-price")
    right, given = worked_answer("break-even-price"), lab.missions.given("break-even-price")
    assert_not_won("break-even-price", right * given.cities_devices, because="all devices")
    assert_not_won("break-even-price", right * given.cities_s / given.hall_s, because="take longer")
    assert_not_won("break-even-price", given.hall_price, 0.0)


def test_dollars_by_hand():
    assert_won_by_its_answer("dollars-by-hand")

    def in_seconds(price_per_hour, n_devices, iteration_s, tokens):
        return 1e9 / tokens * iteration_s * n_devices * price_per_hour

    def of_one_device(price_per_hour, n_devices, iteration_s, tokens):
        return 1e9 / tokens * iteration_s / 3600 * price_per_hour

    assert_not_won("dollars-by-hand", in_seconds, because="3600")
    assert_not_won("dollars-by-hand", of_one_device, because="one device")
    assert_not_won("dollars-by-hand", lambda *numbers: 20.0)
    assert_not_won("dollars-by-hand", lambda price: price, because="raised TypeError")
    assert_not_won("dollars-by-hand", lambda *numbers: None, because="returned None")


def test_cities_win():
    assert_won_by_its_answer("cities-win")
    given = lab.missions.given("cities-win")
    alone = lab.plan(given.cities, "gpt3-xl", objective="price", seed=0, steps=1)
    assert_not_won("cities-win", alone, because="tokens a second")
    grid = [[f"{city}-{i}" for i in range(4)] for city in ("Oregon", "Virginia", "London", "Frankfurt")]
    four = {"n_stages": 4, "n_replicas": 4, "microbatch": 1}
    for changed, because in (
        ({"global_batch": 4096, "schedule": "gpipe"}, "does not fit"),
        ({"global_batch": 256, "schedule": "1f1b"}, "tokens a second"),
        ({"global_batch": 8192}, "at most 4096"),
        ({"global_batch": 1024, "synchronise_every": 64}, "synchronise_every"),
        ({"global_batch": 4096, "compression": "int8"}, "compression"),
    ):
        plan = lab.evaluate(given.cities, lab.load_job("gpt3-xl", **(four | changed)), stages=grid)
        assert_not_won("cities-win", plan, because=because)
