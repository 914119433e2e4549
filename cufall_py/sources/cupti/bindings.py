"""PM sampling over cupti-python's raw calls: the only module that imports `cupti`.

Every struct, buffer and name array is made once and reused. The two calls made for each sample
(its times, its values) read arrays of ready structs, one a sample, so the loop does nothing but call.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cupti.cupti as c
import numpy as np
from numpy.typing import NDArray

from cufall_py.errors import LibraryProblem

from .protocol import Config, CuptiError, Decoded

_FULL = int(c.PmSamplingDecodeStopReason.COUNTER_DATA_FULL)
_TIME = int(c.PmSamplingTriggerMode.GPU_TIME_INTERVAL)
_SYSCLK = int(c.PmSamplingTriggerMode.GPU_SYSCLK_INTERVAL)
_LATEST = int(c.PmSamplingHardwareBufferAppendMode.KEEP_LATEST)
LEAST_CUDA = 13_000
_OLDEST = int(c.PmSamplingHardwareBufferAppendMode.KEEP_OLDEST)


class BoundPm:
    """PM sampling of the GPU with CUDA ordinal `device`; see protocol.Pm."""

    _users = 0
    """Profiler state is the process's: set up by the first user, torn down by the last, for with one GPU's
    `Collector.disable()` the sampling of all others ends in a segmentation fault."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._object = 0
        self._is_user = False
        self._running = False
        self._host = _Host()

    def enable(self) -> str:
        self.disable()
        self._use_profiler()
        chip = _call("DeviceGetChipName", c.device_get_chip_name, device_index=self._device).p_chip_name
        enabled = _call("PmSamplingEnable", c.pm_sampling_enable, device_index=self._device)
        self._object, self._chip = enabled.p_pm_sampling_object, str(chip)
        self._available = self._availability()
        return self._chip

    def known(self, counter: str) -> bool:
        host = _Host(self._chip)
        try:
            host.config_image([counter])
        except CuptiError:
            return False
        finally:
            host.close()
        return True

    def schedule(self, counters: Sequence[str]) -> int:
        # with the availability image CUPTI refuses a counter whose unit is not there; without it such a
        # counter starts, and silences all others
        self._host.close()
        self._host = _Host(self._chip, self._available.ctypes.data)
        self._names = _Names(counters)
        self._config_image = self._host.config_image(counters)
        return self._host.passes(self._config_image)

    def clock(self, counter: str) -> str:
        return self._host.dimension(counter)

    def configure(self, config: Config) -> None:
        _call(
            "PmSamplingSetConfig",
            c.pm_sampling_set_config,
            p_pm_sampling_object=self._object,
            config_size=self._config_image.size,
            p_config=self._config_image.ctypes.data,
            hardware_buffer_size=config.buffer_bytes,
            sampling_interval=config.interval,
            trigger_mode=_TIME if config.time_trigger else _SYSCLK,
            hw_buffer_append_mode=_LATEST if config.keep_latest else _OLDEST,
        )
        self._make_image(config.image_samples)
        self._prepare(config.image_samples)

    def start(self) -> None:
        _call("PmSamplingStart", c.pm_sampling_start, p_pm_sampling_object=self._object)
        self._running = True

    def decode(self) -> Decoded:
        overflow = False
        try:
            c.pm_sampling_counter_data_image_initialize(self._reset.ptr)
            c.pm_sampling_decode_data(self._decode.ptr)
        except c.cuptiError as error:
            failure = _translated("PmSamplingDecodeData", error)
            if failure.status != "OUT_OF_MEMORY":
                raise failure from None
            overflow = True
        c.pm_sampling_get_counter_data_info(self._info.ptr)
        samples = int(self._info.num_completed_samples)
        try:
            deque(map(c.profiler_host_evaluate_to_gpu_values, self._evaluations[:samples]), 0)
        except c.cuptiError as error:
            raise _translated("EvaluateToGpuValues", error) from None
        full = self._decode.decode_stop_reason == _FULL
        return Decoded(samples, *self._span(samples), full, overflow or bool(self._decode.overflow))

    def read_times(self, samples: int) -> None:
        self._read_times(self._infos[:samples])

    def constants(self, names: Sequence[str]) -> list[float]:
        if not names:
            return []
        with _named("PmSamplingCounterDataImageInitialize"):
            c.pm_sampling_counter_data_image_initialize(self._reset.ptr)
        wanted = _Names(names)
        out = np.full(len(names), np.nan)
        _call(
            "EvaluateToGpuValues",
            c.profiler_host_evaluate_to_gpu_values,
            p_host_object=self._host.object,
            p_counter_data_image=self._image.ctypes.data,
            counter_data_image_size=self._image.size,
            range_index=0,
            pp_metric_names=wanted.address,
            num_metrics=len(names),
            p_metric_values=out.ctypes.data,
        )
        return [float(value) for value in out]

    def disable(self) -> None:
        self._host.close()
        running, self._running = self._running, False
        handle, self._object = self._object, 0
        try:
            if running:
                _call("PmSamplingStop", c.pm_sampling_stop, p_pm_sampling_object=handle)
        finally:
            if handle:
                _call("PmSamplingDisable", c.pm_sampling_disable, p_pm_sampling_object=handle)

    def close(self) -> None:
        try:
            self.disable()
        finally:
            if self._is_user:
                self._is_user = False
                BoundPm._users -= 1
                if BoundPm._users == 0:
                    _call("ProfilerDeInitialize", c.profiler_deinitialize)

    def _span(self, samples: int) -> tuple[int, int]:
        if not samples:
            return 0, 0
        self._read_times((self._infos[0], self._infos[samples - 1]))
        return self._starts[0], self._ends[samples - 1]

    def _read_times(self, infos: Iterable[int]) -> None:
        try:
            deque(map(c.pm_sampling_counter_data_get_sample_info, infos), 0)
        except c.cuptiError as error:
            raise _translated("PmSamplingCounterDataGetSampleInfo", error) from None

    def _use_profiler(self) -> None:
        if self._is_user:
            return
        if BoundPm._users == 0:
            _start_driver()
            _call("ProfilerInitialize", c.profiler_initialize)
        BoundPm._users += 1
        self._is_user = True

    def _availability(self) -> NDArray[np.uint8]:
        function = c.pm_sampling_get_counter_availability
        sized = _call("GetCounterAvailability", function, device_index=self._device)
        image = np.zeros(sized.counter_availability_image_size, np.uint8)
        _call(
            "GetCounterAvailability",
            function,
            device_index=self._device,
            counter_availability_image_size=image.size,
            p_counter_availability_image=image.ctypes.data,
        )
        return image

    def _make_image(self, samples: int) -> None:
        size = _call(
            "PmSamplingGetCounterDataSize",
            c.pm_sampling_get_counter_data_size,
            p_pm_sampling_object=self._object,
            p_metric_names=self._names.address,
            num_metrics=self._names.count,
            max_samples=samples,
        ).counter_data_size
        self._image = np.zeros(size, np.uint8)

    def _prepare(self, samples: int) -> None:
        image = {"p_counter_data_image": self._image.ctypes.data, "counter_data_image_size": self._image.size}
        self._reset = _params(
            c.pm_sampling_counter_data_image_initialize,
            p_pm_sampling_object=self._object,
            counter_data_size=self._image.size,
            p_counter_data=self._image.ctypes.data,
        )
        self._decode = _params(c.pm_sampling_decode_data, p_pm_sampling_object=self._object, **image)
        self._info = _params(c.pm_sampling_get_counter_data_info, **image)
        self.values = np.zeros((samples, self._names.count))
        self._structs: list[NDArray[Any]] = []
        self._evaluations = self._evaluation_structs(image)
        self._infos = self._info_structs(image)

    def _evaluation_structs(self, image: dict[str, int]) -> list[int]:
        structs = np.zeros(len(self.values), c.profiler_host_evaluate_to_gpu_values_params_dtype)
        structs["struct_size"] = _struct_size(c.profiler_host_evaluate_to_gpu_values)
        structs["p_host_object"] = self._host.object
        structs["range_index"] = np.arange(len(structs))
        structs["pp_metric_names"] = self._names.address
        structs["num_metrics"] = self._names.count
        structs["p_metric_values"] = _row_addresses(self.values)
        return self._filled(structs, image)

    def _info_structs(self, image: dict[str, int]) -> list[int]:
        structs = np.zeros(len(self.values), c.pm_sampling_counter_data_get_sample_info_params_dtype)
        structs["struct_size"] = _struct_size(c.pm_sampling_counter_data_get_sample_info)
        structs["p_pm_sampling_object"] = self._object
        structs["sample_index"] = np.arange(len(structs))
        self.start_ns = structs["start_timestamp"]
        self.end_ns = structs["end_timestamp"]
        self._starts, self._ends = self.start_ns.data, self.end_ns.data
        return self._filled(structs, image)

    def _filled(self, structs: NDArray[Any], image: dict[str, int]) -> list[int]:
        for field, value in image.items():
            structs[field] = value
        self._structs.append(structs)
        return [int(address) for address in _row_addresses(structs)]


def _start_driver() -> None:
    """Raises LibraryProblem for a driver that CUPTI 13 does not go with."""
    cuda, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if version.value < LEAST_CUDA:
        major, minor = version.value // 1000, version.value % 1000 // 10
        raise LibraryProblem(f"this driver is of CUDA {major}.{minor}; CUPTI 13 needs one of CUDA 13.0, 580 or newer")
    cuda.cuInit(0)


class _Host:
    """A profiler host object of a chip: makes config images and evaluates samples."""

    def __init__(self, chip: str = "", availability: int = 0) -> None:
        self.object = 0
        if chip:
            self.object = _call(
                "ProfilerHostInitialize",
                c.profiler_host_initialize,
                profiler_type=int(c.ProfilerType.PM_SAMPLING),
                p_chip_name=chip,
                p_counter_availability_image=availability,
            ).p_host_object

    def close(self) -> None:
        if self.object:
            handle, self.object = self.object, 0
            _call("ProfilerHostDeinitialize", c.profiler_host_deinitialize, p_host_object=handle)

    def dimension(self, counter: str) -> str:
        return str(
            _call(
                "GetMetricProperties",
                c.profiler_host_get_metric_properties,
                p_host_object=self.object,
                p_metric_name=counter,
            ).p_dim_unit
        )

    def config_image(self, counters: Sequence[str]) -> NDArray[np.uint8]:
        names = _Names(counters)
        _call(
            "ConfigAddMetrics",
            c.profiler_host_config_add_metrics,
            p_host_object=self.object,
            pp_metric_names=names.address,
            num_metrics=names.count,
        )
        size = _call(
            "GetConfigImageSize", c.profiler_host_get_config_image_size, p_host_object=self.object
        ).config_image_size
        image = np.zeros(size, np.uint8)
        _call(
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
            _call(
                "GetNumOfPasses",
                c.profiler_host_get_num_of_passes,
                p_config_image=image.ctypes.data,
                config_image_size=image.size,
            ).num_of_passes
        )


class _Names:
    """A C array of names that lives as long as this object."""

    def __init__(self, names: Sequence[str]) -> None:
        self._array = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
        self.address = ctypes.addressof(self._array)
        self.count = len(names)


def _row_addresses(array: NDArray[Any]) -> NDArray[np.int64]:
    return array.ctypes.data + array.strides[0] * np.arange(len(array), dtype=np.int64)


def _params(function: Callable[..., Any], **fields: Any) -> Any:
    params = getattr(c, _stem(function) + "Params")()
    params.struct_size = _struct_size(function)
    for name, value in fields.items():
        setattr(params, name, value)
    return params


def _call(label: str, function: Callable[..., Any], **fields: Any) -> Any:
    params = _params(function, **fields)
    with _named(label):
        function(params.ptr)
    return params


@contextmanager
def _named(label: str) -> Iterator[None]:
    try:
        yield
    except c.cuptiError as error:
        raise _translated(label, error) from None


def _translated(label: str, error: Any) -> CuptiError:
    return CuptiError(label, c.Result(error.status).name.removeprefix("ERROR_"))


def _stem(function: Callable[..., Any]) -> str:
    # profiler_deinitialize takes ProfilerDeInitializeParams
    stem = "".join(part.capitalize() for part in function.__name__.split("_"))
    return {"ProfilerDeinitialize": "ProfilerDeInitialize"}.get(stem, stem)


def _struct_size(function: Callable[..., Any]) -> int:
    return int(getattr(c, function.__name__.upper() + "_PARAMS_STRUCT_SIZE"))
