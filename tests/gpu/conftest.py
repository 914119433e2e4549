"""One process of loads for all tests, and a skip with its reason where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import measure


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU with open counters")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = measure.missing()
    for item in items:
        if missing and item.get_closest_marker("gpu") and "gpu" in item.path.parts:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def ncu() -> dict[tuple[str, int], dict[str, float]]:
    """Nsight Compute's reading of one launch of each product; taken first, while nobody samples."""
    return measure.ncu_products()


@pytest.fixture(scope="session")
def loads() -> Iterator[measure.Loads]:
    """Known work on the GPU."""
    running = measure.GpuLoads()
    yield running
    running.close()
