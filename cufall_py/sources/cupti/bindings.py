"""PM sampling over cupti-python's raw calls: what is done on a GPU; its host side is in host.py.

Every struct, buffer and name array is made once and reused. The two calls made for each sample
(its times, its values) read arrays of ready structs, one a sample, so the loop does nothing but call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import cupti.cupti as c
import numpy as np
from numpy.typing import NDArray

from .host import Host, Names, begin, call, chip_of, end, named, params_of, struct_size, translated
from .protocol import Config, CuptiError, Decoded

_FULL = int(c.PmSamplingDecodeStopReason.COUNTER_DATA_FULL)
_TIME = int(c.PmSamplingTriggerMode.GPU_TIME_INTERVAL)
_SYSCLK = int(c.PmSamplingTriggerMode.GPU_SYSCLK_INTERVAL)
_LATEST = int(c.PmSamplingHardwareBufferAppendMode.KEEP_LATEST)
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
        self._host = Host()

    def enable(self) -> str:
        self.disable()
        self._use_profiler()
        chip = chip_of(self._device)
        enabled = call("PmSamplingEnable", c.pm_sampling_enable, device_index=self._device)
        self._object, self._chip = enabled.p_pm_sampling_object, chip
        self._available = self._availability()
        return self._chip

    def known(self, counter: str) -> bool:
        host = Host(self._chip)
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
        self._host = Host(self._chip, self._available.ctypes.data)
        self._names = Names(counters)
        self._config_image = self._host.config_image(counters)
        return self._host.passes(self._config_image)

    def clock(self, counter: str) -> str:
        return self._host.properties(counter)[1]

    def configure(self, config: Config) -> None:
        call(
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
        call("PmSamplingStart", c.pm_sampling_start, p_pm_sampling_object=self._object)
        self._running = True

    def decode(self) -> Decoded:
        overflow = False
        try:
            c.pm_sampling_counter_data_image_initialize(self._reset.ptr)
            c.pm_sampling_decode_data(self._decode.ptr)
        except c.cuptiError as error:
            failure = translated("PmSamplingDecodeData", error)
            if failure.status != "OUT_OF_MEMORY":
                raise failure from None
            overflow = True
        c.pm_sampling_get_counter_data_info(self._info.ptr)
        samples = int(self._info.num_completed_samples)
        try:
            deque(map(c.profiler_host_evaluate_to_gpu_values, self._evaluations[:samples]), 0)
        except c.cuptiError as error:
            raise translated("EvaluateToGpuValues", error) from None
        full = self._decode.decode_stop_reason == _FULL
        return Decoded(samples, *self._span(samples), full, overflow or bool(self._decode.overflow))

    def read_times(self, samples: int) -> None:
        self._read_times(self._infos[:samples])

    def constants(self, names: Sequence[str]) -> list[float]:
        if not names:
            return []
        with named("PmSamplingCounterDataImageInitialize"):
            c.pm_sampling_counter_data_image_initialize(self._reset.ptr)
        wanted = Names(names)
        out = np.full(len(names), np.nan)
        call(
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
                call("PmSamplingStop", c.pm_sampling_stop, p_pm_sampling_object=handle)
        finally:
            if handle:
                call("PmSamplingDisable", c.pm_sampling_disable, p_pm_sampling_object=handle)

    def close(self) -> None:
        try:
            self.disable()
        finally:
            if self._is_user:
                self._is_user = False
                BoundPm._users -= 1
                if BoundPm._users == 0:
                    end()

    def _span(self, samples: int) -> tuple[int, int]:
        if not samples:
            return 0, 0
        self._read_times((self._infos[0], self._infos[samples - 1]))
        return self._starts[0], self._ends[samples - 1]

    def _read_times(self, infos: Iterable[int]) -> None:
        try:
            deque(map(c.pm_sampling_counter_data_get_sample_info, infos), 0)
        except c.cuptiError as error:
            raise translated("PmSamplingCounterDataGetSampleInfo", error) from None

    def _use_profiler(self) -> None:
        if self._is_user:
            return
        if BoundPm._users == 0:
            begin()
        BoundPm._users += 1
        self._is_user = True

    def _availability(self) -> NDArray[np.uint8]:
        function = c.pm_sampling_get_counter_availability
        sized = call("GetCounterAvailability", function, device_index=self._device)
        image = np.zeros(sized.counter_availability_image_size, np.uint8)
        call(
            "GetCounterAvailability",
            function,
            device_index=self._device,
            counter_availability_image_size=image.size,
            p_counter_availability_image=image.ctypes.data,
        )
        return image

    def _make_image(self, samples: int) -> None:
        size = call(
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
        self._reset = params_of(
            c.pm_sampling_counter_data_image_initialize,
            p_pm_sampling_object=self._object,
            counter_data_size=self._image.size,
            p_counter_data=self._image.ctypes.data,
        )
        self._decode = params_of(c.pm_sampling_decode_data, p_pm_sampling_object=self._object, **image)
        self._info = params_of(c.pm_sampling_get_counter_data_info, **image)
        self.values = np.zeros((samples, self._names.count))
        self._structs: list[NDArray[Any]] = []
        self._evaluations = self._evaluation_structs(image)
        self._infos = self._info_structs(image)

    def _evaluation_structs(self, image: dict[str, int]) -> list[int]:
        structs = np.zeros(len(self.values), c.profiler_host_evaluate_to_gpu_values_params_dtype)
        structs["struct_size"] = struct_size(c.profiler_host_evaluate_to_gpu_values)
        structs["p_host_object"] = self._host.object
        structs["range_index"] = np.arange(len(structs))
        structs["pp_metric_names"] = self._names.address
        structs["num_metrics"] = self._names.count
        structs["p_metric_values"] = _row_addresses(self.values)
        return self._filled(structs, image)

    def _info_structs(self, image: dict[str, int]) -> list[int]:
        structs = np.zeros(len(self.values), c.pm_sampling_counter_data_get_sample_info_params_dtype)
        structs["struct_size"] = struct_size(c.pm_sampling_counter_data_get_sample_info)
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


def _row_addresses(array: NDArray[Any]) -> NDArray[np.int64]:
    return array.ctypes.data + array.strides[0] * np.arange(len(array), dtype=np.int64)
