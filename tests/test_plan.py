"""What the sampling options mean together."""

from __future__ import annotations

import json

import pytest

from cufall_py.errors import UsageError
from cufall_py.plan import LIMITS, RECORD_BYTES, Plan, checked
from cufall_py.resolve import Wanted

MIB = 1 << 20


def test_by_default_a_frame_has_four_samples() -> None:
    assert Plan().sample_ns == 25_000_000
    assert Plan(frame_us=10_000).sample_ns == 2_500_000
    assert Plan(frame_us=10_000, sample_us=1000).sample_ns == 1_000_000


@pytest.mark.parametrize("sample_us", [5, 10, 20, 100, 1000, 25_000, 100_000])
@pytest.mark.parametrize("decode_us", [1000, 10_000, 200_000, 10_000_000])
def test_the_hardware_buffer_is_decoded_before_it_is_full(sample_us: int, decode_us: int) -> None:
    plan = Plan(sample_us=sample_us, frame_us=1_000_000, decode_us=decode_us)
    assert plan.buffer_bytes <= 64 * MIB
    assert plan.decode_ns / plan.sample_ns * RECORD_BYTES <= plan.buffer_bytes / 2 or plan.decode_ns == plan.sample_ns
    assert plan.sample_ns <= plan.decode_ns <= max(1000 * decode_us, plan.sample_ns)
    assert plan.image_samples > plan.decode_ns / plan.sample_ns


def test_a_buffer_that_was_asked_for_is_taken() -> None:
    assert Plan(hw_buffer_mb=250).buffer_bytes == 250 * MIB


def test_a_plan_survives_its_pipe() -> None:
    plan = Plan(wanted=Wanted(("tensor", "dram"), full_scale=2.5), devices="0,1", sample_us=100)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize("name", LIMITS)
def test_a_number_out_of_range_names_its_flag_and_range(name: str) -> None:
    least, most = LIMITS[name]
    for value in (least - 1, most + 1):
        if value:
            with pytest.raises(UsageError, match=rf"--{name.replace('_', '-')} .*{least} to {most}"):
                checked(Plan(**{"frame_us": 60_000_000, name: value}))


def test_a_sample_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(UsageError, match="--sample-us 20000: must be at most --frame-us, 10000"):
        checked(Plan(sample_us=20_000, frame_us=10_000))
