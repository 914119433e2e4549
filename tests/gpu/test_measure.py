"""The measuring itself, against readings that are known; needs no GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cufall_py.metrics import Metric, MetricSet
from cufall_py.samples import Samples

from . import measure

DATA = Path(__file__).parents[1] / "data" / "ncu-products.csv"


def test_ncu_csv_gives_each_product_in_order() -> None:
    found = measure.launches(DATA.read_text().splitlines())
    keys = [(kind, size) for kind in measure.KINDS for size in measure.SIZES]
    assert len(found) == len(keys)
    by_key = dict(zip(keys, found, strict=True))
    assert by_key["bf16", 8192][measure.TENSOR_SUM] == 1_090_519_040
    assert by_key["bf16", 8192][measure.TENSOR_PCT] == pytest.approx(93.13)
    assert by_key["fp64", 8192][measure.TENSOR_SUM] == 17_179_869_184
    for values in found:
        assert values[measure.TENSOR_SUM] == pytest.approx(132 * values[measure.TENSOR_AVG], rel=1e-5)


def test_kernels_of_one_product_are_summed() -> None:
    lines = [line for line in DATA.read_text().splitlines() if line.startswith('"')]
    product = next(line for line in lines[2:] if "at::" not in line)
    single = measure.launches([*lines[:2], product])[0]
    double = measure.launches([*lines[:2], product, product])
    assert len(double) == 1
    assert double[0][measure.TENSOR_SUM] == 2 * single[measure.TENSOR_SUM]
    assert double[0][measure.TENSOR_PCT] == single[measure.TENSOR_PCT]


def test_a_window_takes_samples_by_their_share() -> None:
    edges = np.arange(11, dtype=np.int64) * 100
    values = np.stack([np.full(10, 40.0), np.full(10, 100.0)], axis=1)
    metrics = MetricSet(("a", "e"), (Metric("tensor", "tensor", ("a",), "e", peak=4.0),))
    found = measure.window(Samples(edges[:-1], edges[1:], values), metrics, 150, 425)
    assert found.covered_ns == pytest.approx(275)
    assert found.totals["a"] == pytest.approx(110)
    assert found.percent() == pytest.approx(10)
