"""`--fail-if` and `--min-effect`: what they take, and what they say of what they do not."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from cufall_py.analysis.limits import STATISTICS, Change, Limit, effects, limit
from cufall_py.errors import UsageError


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tensor.mean -5%", Limit("tensor", "mean", "", Change(0.05, "%", -1))),
        (" tensor.hmma.p95   +.5pp ", Limit("tensor.hmma", "p95", "", Change(0.005, "pp", 1))),
        ("sm__cycles_active.avg.mean -0%", Limit("sm__cycles_active.avg", "mean", "", Change(0.0, "%", -1))),
        ("tensor.idle_share[prefill] +2pp", Limit("tensor", "idle_share", "prefill", Change(0.02, "pp", 1))),
        ('tensor.p5["a ] b"] -1.5%', Limit("tensor", "p5", "a ] b", Change(0.015, "%", -1))),
        ("tensor.p50[batch 16] -1%", Limit("tensor", "p50", "batch 16", Change(0.01, "%", -1))),
    ],
)
def test_what_is_taken(text: str, wanted: Limit) -> None:
    assert limit(text) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be METRIC.STAT CHANGE"),
        ("tensor -5%", "must be METRIC.STAT CHANGE"),
        ("tensor.mean", "must be METRIC.STAT CHANGE"),
        ("tensor.mean[a -5%", "must be METRIC.STAT CHANGE"),
        ("tensor.p99 -5%", "no statistic p99; there are mean, p5, p50, p95, idle_share"),
        ("tensor.mean 5%", r"is more of it too much \(\+5%\), or less \(-5%\)"),
        ("tensor.mean -5", "-5 is no change"),
        ("tensor.mean -0,5%", "-0,5% is no change"),
        ("tensor.mean -nan%", "-nan% is no change"),
        ("tensor.mean -1e3%", "-1e3% is no change"),
        ("tensor.mean[ ] -5%", "the brackets hold no region"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        limit(text)


NAMES = st.sampled_from(["tensor", "tensor.hmma", "sm__cycles_active.avg"])


@given(NAMES, st.sampled_from(STATISTICS), st.integers(0, 5000), st.sampled_from(["%", "pp"]), st.sampled_from([-1, 1]))
def test_a_limit_reads_back_as_it_is_told(metric: str, statistic: str, size: int, unit: str, sign: int) -> None:
    wanted = Limit(metric, statistic, "a", Change(size / 100 / 100, unit, sign))
    again = limit(str(wanted))
    assert (again.metric, again.statistic, again.region, again.most.sign) == (metric, statistic, "a", sign)
    assert again.most.size == pytest.approx(size / 100 / 100)


def test_an_effect_replaces_the_default_of_its_unit() -> None:
    assert effects([]) == {"%": 0.015, "pp": 0.01}
    assert effects(["2%"]) == {"%": 0.02, "pp": 0.01}
    assert effects(["0%", "1pp"]) == {"%": 0.0, "pp": 0.01}


@pytest.mark.parametrize("text", ["", "5", "-1%", "nan%", "1 %", "9999999%"])
def test_an_effect_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--min-effect"):
        effects([text])
