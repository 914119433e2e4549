"""CUPTI's host side: what the tables of a chip say, and what to read of it. Needs a driver, but takes no GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cupti.cupti as c
import numpy as np
from numpy.typing import NDArray

from cufall_py.errors import LibraryProblem

from .protocol import CuptiError

LEAST_CUDA = 13_000


def begin() -> None:
    """Set up the profiler state of the process, which every call here needs.

    Raises OSError where no driver is, LibraryProblem for one that CUPTI 13 does not go with.
    """
    cuda, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if version.value < LEAST_CUDA:
        major, minor = version.value // 1000, version.value % 1000 // 10
        raise LibraryProblem(f"this driver is of CUDA {major}.{minor}; CUPTI 13 needs one of CUDA 13.0, 580 or newer")
    cuda.cuInit(0)
    call("ProfilerInitialize", c.profiler_initialize)


def end() -> None:
    call("ProfilerDeInitialize", c.profiler_deinitialize)


def chip_of(device: int) -> str:
    """CUPTI's name of the chip of a GPU, by CUDA ordinal."""
    return str(call("DeviceGetChipName", c.device_get_chip_name, device_index=device).p_chip_name)


class Host:
    """A profiler host object of a chip: makes config images and evaluates samples."""

    def __init__(self, chip: str = "", availability: int = 0) -> None:
        self.object = 0
        if chip:
            self.object = call(
                "ProfilerHostInitialize",
                c.profiler_host_initialize,
                profiler_type=int(c.ProfilerType.PM_SAMPLING),
                p_chip_name=chip,
                p_counter_availability_image=availability,
            ).p_host_object

    def close(self) -> None:
        if self.object:
            handle, self.object = self.object, 0
            call("ProfilerHostDeinitialize", c.profiler_host_deinitialize, p_host_object=handle)

    def base_metrics(self, kind: str) -> list[str]:
        """Names without rollup; `kind` is a member of CUPTI's MetricType."""
        told = call(
            "GetBaseMetrics",
            c.profiler_host_get_base_metrics,
            p_host_object=self.object,
            metric_type=int(c.MetricType[kind]),
        )
        return _texts(told.pp_metric_names, told.num_metrics)

    def properties(self, metric: str) -> tuple[str, str]:
        """Description and dim_unit."""
        told = call(
            "GetMetricProperties",
            c.profiler_host_get_metric_properties,
            p_host_object=self.object,
            p_metric_name=metric,
        )
        return str(told.p_description or ""), str(told.p_dim_unit or "")

    def config_image(self, counters: Sequence[str]) -> NDArray[np.uint8]:
        names = Names(counters)
        call(
            "ConfigAddMetrics",
            c.profiler_host_config_add_metrics,
            p_host_object=self.object,
            pp_metric_names=names.address,
            num_metrics=names.count,
        )
        size = call(
            "GetConfigImageSize", c.profiler_host_get_config_image_size, p_host_object=self.object
        ).config_image_size
        image = np.zeros(size, np.uint8)
        call(
            "GetConfigImage",
            c.profiler_host_get_config_image,
            p_host_object=self.object,
            p_config_image=image.ctypes.data,
            config_image_size=size,
        )
        return image

    @staticmethod
    def passes(image: NDArray[np.uint8]) -> int:
        return int(
            call(
                "GetNumOfPasses",
                c.profiler_host_get_num_of_passes,
                p_config_image=image.ctypes.data,
                config_image_size=image.size,
            ).num_of_passes
        )


class BoundTables:
    """See tables.HostTables. One process has it for all its life, so nothing is given back."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._hosts: dict[str, Host] = {}
        begin()

    def chips(self) -> list[str]:
        told = call("GetSupportedChips", c.profiler_host_get_supported_chips)
        return _texts(told.pp_chip_names, told.num_chips)

    def chip_here(self, gpu: int = 0) -> str:
        return chip_of(gpu)

    def base_metrics(self, chip: str, kind: str) -> list[str]:
        return self._host(chip).base_metrics(kind)

    def properties(self, chip: str, metric: str) -> tuple[str, str]:
        return self._host(chip).properties(metric)

    def passes(self, chip: str, counters: Iterable[str]) -> int:
        host = Host(chip)  # what was added to a host's config stays there
        try:
            return host.passes(host.config_image(tuple(counters)))
        finally:
            host.close()

    def _host(self, chip: str) -> Host:
        if chip not in self._hosts:
            self._hosts[chip] = Host(chip)
        return self._hosts[chip]


class Names:
    """A C array of names that lives as long as this object."""

    def __init__(self, names: Sequence[str]) -> None:
        self._array = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
        self.address = ctypes.addressof(self._array)
        self.count = len(names)


def _texts(address: int, count: int) -> list[str]:
    """A C array of strings."""
    if not address or not count:
        return []
    return [(text or b"").decode() for text in (ctypes.c_char_p * count).from_address(address)]


def params_of(function: Callable[..., Any], **fields: Any) -> Any:
    params = getattr(c, _stem(function) + "Params")()
    params.struct_size = struct_size(function)
    for name, value in fields.items():
        setattr(params, name, value)
    return params


def call(label: str, function: Callable[..., Any], **fields: Any) -> Any:
    params = params_of(function, **fields)
    with named(label):
        function(params.ptr)
    return params


@contextmanager
def named(label: str) -> Iterator[None]:
    try:
        yield
    except c.cuptiError as error:
        raise translated(label, error) from None


def translated(label: str, error: Any) -> CuptiError:
    return CuptiError(label, c.Result(error.status).name.removeprefix("ERROR_"))


def _stem(function: Callable[..., Any]) -> str:
    # profiler_deinitialize takes ProfilerDeInitializeParams
    stem = "".join(part.capitalize() for part in function.__name__.split("_"))
    return {"ProfilerDeinitialize": "ProfilerDeInitialize"}.get(stem, stem)


def struct_size(function: Callable[..., Any]) -> int:
    return int(getattr(c, function.__name__.upper() + "_PARAMS_STRUCT_SIZE"))
