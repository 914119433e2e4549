"""Which GPUs `--devices` means."""

from __future__ import annotations

import os

import pytest

from cufall_py.devices import Device, select, show_only
from cufall_py.errors import UsageError

DEVICES = [
    Device(0, "GPU-aaaa1111-0000-0000-0000-000000000000", "A"),
    Device(1, "GPU-aaaa2222-0000-0000-0000-000000000000", "B"),
    Device(2, "GPU-bbbb3333-0000-0000-0000-000000000000", "C"),
    Device(10, "GPU-cccc4444-0000-0000-0000-000000000000", "D"),
]


@pytest.mark.parametrize(
    ("asked", "ordinals"),
    [
        ("all", [0, 1, 2, 10]),
        ("0", [0]),
        ("10", [10]),
        ("0,2", [0, 2]),
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("0-2", [0, 1, 2]),
        ("10,1-2", [10, 1, 2]),
        ("GPU-bbbb3333-0000-0000-0000-000000000000", [2]),
        ("GPU-bbbb", [2]),
        ("gpu-AAAA2", [1]),
        ("GPU-cccc4444,0", [10, 0]),
    ],
)
def test_gpus_are_chosen_in_the_order_they_are_named(asked: str, ordinals: list[int]) -> None:
    assert [device.ordinal for device in select(DEVICES, asked)] == ordinals


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("3", "--devices 3: no such GPU"),
        ("1,7", "--devices 7: no such GPU"),
        ("-1", "--devices -1: no such GPU"),
        ("GPU-dddd", "--devices GPU-dddd: no such GPU"),
        ("²", "--devices ²: no such GPU"),
        ("ALL", "--devices ALL: no such GPU"),
        ("0;1", "--devices 0;1: no such GPU"),
        ("GPU-aaaa", "--devices GPU-aaaa: fits more than one GPU"),
        ("0,0", "GPU 0 is named twice"),
        ("0-1,1", "GPU 1 is named twice"),
        ("1-3", "--devices 3: no such GPU"),
        ("2-1", "--devices 2-1: must go up"),
        ("2,GPU-bbbb", "GPU 2 is named twice"),
        ("", "--devices (empty): no such GPU"),
        ("0,", "--devices (empty): no such GPU"),
        (",", "--devices (empty): no such GPU"),
    ],
)
def test_what_names_no_gpu_or_one_twice_is_usage(asked: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        select(DEVICES, asked)
    assert said in str(error.value)


def test_the_refusal_tells_which_gpus_there_are() -> None:
    with pytest.raises(UsageError, match="10 \\(GPU-cccc4444"):
        select(DEVICES, "4")


def test_all_of_none_is_none() -> None:
    assert select([], "all") == []


def test_a_device_survives_json() -> None:
    device = Device(1, "GPU-1", "A", "0000:01:00.0", 132, "GH100", 3)
    assert Device(**device.to_json()) == device
    assert device.of_chip("GB100") == Device(1, "GPU-1", "A", "0000:01:00.0", 132, "GB100", 3)


@pytest.mark.parametrize(
    ("shown", "ordinal", "then"),
    [(None, 3, "3"), ("", 0, "0"), ("2,0", 1, "0"), ("GPU-aa,GPU-bb", 0, "GPU-aa"), ("MIG-x", 0, "MIG-x")],
)
def test_a_worker_is_shown_its_own_gpu_alone(
    monkeypatch: pytest.MonkeyPatch, shown: str | None, ordinal: int, then: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown or "")
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert show_only(Device(ordinal, "GPU-x", "GPU")) == 0
    assert os.environ["CUDA_VISIBLE_DEVICES"] == then
