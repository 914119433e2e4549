"""The grammar of requirements, and what is made of them on a summary that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cufall_py.analysis.summary import Subject, Summarizer, Summary
from cufall_py.errors import UsageError
from cufall_py.judgements import HELD, MISSED, NOT_MEASURABLE, check, exit_code, judge
from cufall_py.metrics import Metric
from cufall_py.requirements import Requirement, parse
from cufall_py.spans import Span
from tests.helpers import EPOCH, MS, SECOND, metric, steady, tensor_set

COUNTER = "sm__pipe_tensor_cycles_active.avg"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tensor.mean >= 30%", ("tensor", "mean", None, None, ">=", 0.3)),
        ("tensor.mean>=0.3", ("tensor", "mean", None, None, ">=", 0.3)),
        ("  pcie.rx.p99 < .5 ", ("pcie.rx", "p99", None, None, "<", 0.5)),
        (f"{COUNTER}.max <= 1e-1", (COUNTER, "max", None, None, "<=", 0.1)),
        ("coverage > 99.5%", ("", "coverage", None, None, ">", 0.995)),
        ("tensor.longest_idle_s < 2.5", ("tensor", "longest_idle_s", None, None, "<", 2.5)),
        ("tensor.below_1[prefill] < 5%", ("tensor", "below_1", "prefill", None, "<", 0.05)),
        ("tensor.min [ gpu=0-3+5 , prefill ] > 0", ("tensor", "min", "prefill", (0, 1, 2, 3, 5), ">", 0.0)),
        ("tensor.p5[gpu=1+1-2] > 0%", ("tensor", "p5", None, (1, 2), ">", 0.0)),
        ("tensor.mean[group=all] > 1%", ("tensor", "mean", None, None, ">", 0.01)),
        ('coverage["a b, \\"c\\\\]=",gpu=7] >= 1', ("", "coverage", 'a b, "c\\]=', (7,), ">=", 1.0)),
        ("verdict.cuda_core_bound[decode] < 10%", ("verdict", "cuda_core_bound", "decode", None, "<", 0.1)),
        ("launches.mean >= 5000", ("launches", "mean", None, None, ">=", 5000.0)),
        ("tensor.mean[préfill] >= 30%", ("tensor", "mean", "préfill", None, ">=", 0.3)),
    ],
)
def test_what_can_be_required(text: str, parts: tuple[object, ...]) -> None:
    r = parse(text)
    assert (r.metric, r.statistic, r.region, r.gpus, r.operator, r.limit) == parts
    assert r.text == text.strip()


@pytest.mark.parametrize(
    ("text", "at", "told"),
    [
        ("", 0, "expected a quantity"),
        ("tensor", 0, "unknown quantity tensor"),
        ("tensr.mean > 1%", 0, "unknown metric tensr; did you mean tensor?"),
        ("verdikt.idle > 1%", 0, "there are coverage, verdict.CLASS, generation_tokens_per_s,"),
        ("verdict.cuda-core-bound > 1%", 8, "no verdict cuda; did you mean cuda_core_bound?"),
        ("verdict.memory > 1%", 8, "no verdict memory; did you mean memory_bound?"),
        ("verdict.zzz > 1%", 8, "no verdict zzz; there are idle, launch_bound,"),
        ("verdict.idle > 2", 15, "a ratio is 0 to 1"),
        ("launches.mean > 5%", 17, "so much a second"),
        ("generation_token_per_s > 5", 0, "did you mean generation_tokens_per_s?"),
        ("tensor.maen > 1%", 7, "unknown statistic maen; there are mean, min, max, p1 to p99, below_1"),
        ("tensor.p0 > 1%", 7, "unknown statistic p0"),
        ("tensor.p100 > 1%", 7, "unknown statistic p100"),
        ("tensor.mean", 11, "expected one of >= > <= <"),
        ("tensor.mean = 1%", 12, "expected one of"),
        ("tensor.mean > ", 14, "expected a number"),
        ("tensor.mean > nan", 14, "expected a number"),
        ("tensor.mean > inf", 14, "expected a number"),
        ("tensor.mean > 1e999", 14, "must be a finite number"),
        ("tensor.mean > 0,5", 15, "nothing may follow the number; a decimal point is a dot"),
        ("tensor.mean > 30 %x", 18, "nothing may follow"),
        ("tensor.mean > 30", 14, 'a ratio is 0 to 1, or 0% to 100%; did you mean "30%"?'),
        ("tensor.mean > 130%", 14, "a ratio is 0 to 1"),
        ("tensor.mean > -1", 14, "a ratio is 0 to 1"),
        ("coverage > 99", 11, 'did you mean "99%"?'),
        ("tensor.longest_idle_s < 5%", 25, "longest_idle_s has a unit, and is no percent"),
        ("tensor.mean[] > 1%", 12, "expected a region"),
        ("tensor.mean[a,b] > 1%", 14, "a second region; one is enough"),
        ("tensor.mean[gpu=0,gpu=1] > 1%", 18, "a second gpu"),
        ("tensor.mean[a > 1%", 14, "expected , or ]"),
        ('tensor.mean["a > 1%', 12, "this quote has no end"),
        ("tensor.mean[gpu=x] > 1%", 16, "expected numbers of GPUs"),
        ("tensor.mean[gpu=3-1] > 1%", 16, "must go up"),
        ("tensor.mean[gpu=0-99999] > 1%", 16, "from 0 to 65534 at most"),
        (f"tensor.mean[gpu={'9' * 5000}] > 1%", 16, "must go up"),
        ("tensor.mean[group=ranks] > 1%", 18, "no group ranks; there is all (--group), of servers prefill and decode"),
        ("tokens_per_s[running=8..32] > 1", 22, "a range is written with -, as in 8-16"),
        ("tensor.mean[group=decode,group=decode] > 1%", 25, "a second role; one is enough"),
        ("tensor.p50[running=12-20] > 1%", 0, "only tensor.mean is known"),
        ("tensor.mean[a=b] > 1%", 12, "unknown selector a="),
        ("tensor.mean > 1% and more", 17, "nothing may follow"),
    ],
)
def test_what_cannot_points_at_the_character(text: str, at: int, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text)
    message, shown, caret = str(error.value).split("\n")
    assert message.startswith("--require: ") and told in message and message.endswith(f"(character {at + 1})")
    assert (shown, caret) == (f"  {text}", f"  {'':{at}}^")
    assert error.value.exit_code == 2


def test_the_caret_stands_right_below_wide_characters_and_controls() -> None:
    with pytest.raises(UsageError) as error:
        parse('tensor.mean["解\x1b码" > 1%')
    _, shown, caret = str(error.value).split("\n")
    assert (shown, caret) == ('  tensor.mean["解?码" > 1%', f"  {'':{20}}^")


@given(st.text(max_size=40))
def test_no_text_is_anything_but_a_requirement_or_a_usage_error(text: str) -> None:
    for tried in (text, f"tensor.mean[{text}] > 1%", f"tensor.mean > {text}"):
        try:
            assert isinstance(parse(tried), Requirement)
        except UsageError as error:
            assert len(str(error).split("\n")) == 3


@given(st.text(min_size=1, max_size=20))
def test_any_name_of_a_region_can_be_quoted(name: str) -> None:
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    assert parse(f'coverage["{quoted}"] > 1%').region == name


def known(regions: dict[str, list[Span]] | None = None) -> Summary:
    """Two GPUs for a second: tensor at 50 % and at 20 %."""
    summarizer = Summarizer([Subject(0, "H200", tensor_set()), Subject(3, "H200", tensor_set())], regions or {})
    for gpu, ratio in enumerate((0.5, 0.2)):
        summarizer.add(gpu, steady(EPOCH, MS, 1000, ratio), np.full(1000, np.nan), np.full(1000, np.nan))
    return summarizer.summary()


def outcomes(text: str, summary: Summary) -> list[tuple[int, str]]:
    return [(j.gpu, j.outcome) for j in judge(parse(text), summary)]


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("tensor.mean >= 20%", HELD, HELD),
        ("tensor.mean > 20%", HELD, MISSED),
        ("tensor.mean <= 50%", HELD, HELD),
        ("tensor.mean < 50%", MISSED, HELD),
        ("tensor.p50 >= 0.5", HELD, MISSED),
        ("tensor.min[gpu=0] > 90%", MISSED, None),
        ("tensor.max[gpu=3] < 21%", None, HELD),
        ("tensor.longest_idle_s < 0.1", HELD, HELD),
        ("coverage >= 1", HELD, HELD),
        ("dram.mean < 1", NOT_MEASURABLE, NOT_MEASURABLE),
        ("tensor.mean[never] > 0", NOT_MEASURABLE, NOT_MEASURABLE),
    ],
)
def test_it_must_hold_on_each_selected_gpu(text: str, first: str | None, second: str | None) -> None:
    assert outcomes(text, known()) == [(gpu, o) for gpu, o in ((0, first), (3, second)) if o]


def test_without_a_region_it_is_judged_in_the_command() -> None:
    summary = known({"command": [(EPOCH, EPOCH + SECOND // 2)]})
    (judgement, _) = judge(parse("tensor.mean > 1%"), summary)
    assert (judgement.region, judgement.samples, judgement.coverage) == ("command", 500, 1.0)
    assert judge(parse("tensor.mean > 1%"), known())[0].region == ""


@pytest.mark.parametrize(("count", "outcome"), [(20, HELD), (19, NOT_MEASURABLE)])
def test_fewer_than_20_whole_samples_are_no_measurement(count: int, outcome: str) -> None:
    """The region has half a sample more at either side: those are not whole."""
    summary = known({"short": [(EPOCH + MS // 2, EPOCH + (count + 1) * MS + MS // 2)]})
    for quantity in ("tensor.mean", "coverage"):
        judgement = judge(parse(f"{quantity}[short,gpu=0] > 0"), summary)[0]
        assert (judgement.outcome, judgement.samples) == (outcome, count)
        assert math.isnan(judgement.value) == (outcome == NOT_MEASURABLE)


def test_exit_codes() -> None:
    summary = known()
    held, missed, unknown = (judge(parse(text), summary) for text in ("coverage > 0", "coverage < 0", "dram.p5 > 0"))
    assert [exit_code(j) for j in (held, missed, unknown, held + missed, held + missed + unknown, [])] == [
        0,
        3,
        4,
        3,
        4,
        0,
    ]


PLAIN = Metric("a__b.avg", "a__b.avg/c__d.sum", ("a__b.avg",), "c__d.sum", peak=1.0, bounded=False, plain=True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tensor.mean[gpu=1] > 1%", "no GPU 1; there are 0, 3"),
        (f"{COUNTER}.mean > 3", "is a ratio, 0 to 1"),
        ("a__b.avg.mean > 3%", "a__b.avg is a plain quotient here, no percent"),
        ("a__b.avg.idle_share > 0.5", "a__b.avg is a plain quotient here, no percent"),
    ],
)
def test_what_cannot_be_asked_of_this_recording(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check(parse(text), [0, 3], [metric(label=COUNTER), PLAIN])


def test_what_can_be() -> None:
    for text in ("a__b.avg.mean > 3", f"{COUNTER}.mean > 30%", "dram.mean > 3%", "tensor.mean[gpu=3+0] > 1%"):
        check(parse(text), [0, 3], [metric(label=COUNTER), PLAIN])
