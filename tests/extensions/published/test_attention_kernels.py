"""The speed of fused attention beside kernels that others measured."""

import pytest

from dtfm_lab.costs import efficiency
from dtfm_lab.costs.efficiency import PRODUCTS, peak_of
from dtfm_lab.domain.network import Device
from dtfm_lab.extensions.published.row import numbers

B200 = PRODUCTS["B200"]


def test_the_speed_follows_the_published_kernels():
    """The B200's from the table; an A100's needs no kernel of its own, as what is masked makes up for its speed."""
    for line in numbers("attention_kernels.csv"):
        gpu, tokens = line["gpu"], int(line["tokens"])
        if tokens < 4096:
            continue
        seconds = 2 / float(line["forward_tflop_per_s"]) + 5 / float(line["backward_tflop_per_s"])
        peak = peak_of(Device(name="one", gpu=gpu), "bf16") / 1e12
        if gpu == "B200":
            found = B200.fused.most * tokens / (tokens + B200.fused.half_length)
            assert found == pytest.approx(7 / seconds / peak, rel=0.08)
        elif gpu == "A100":
            assert PRODUCTS[gpu].most * efficiency.UNMASKED == pytest.approx(7 / seconds / peak, rel=0.08)
