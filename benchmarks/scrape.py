"""What reading one page of a large inference server costs, beside what the parser alone takes for all of it.

    python benchmarks/scrape.py [ENGINES [HISTOGRAMS]]

Needs no GPU. The page is a vLLM's of some data-parallel engines, with further histograms that no table names.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cufall_py.engines.page import read
from tests import pages

TIMES = 10


def page(engines: int, histograms: int) -> str:
    served = pages.vllm(engines)
    for n in range(histograms):
        for engine in range(engines):
            for _ in range(3):
                served.observe(f"vllm:other_{n}_seconds", 0.5, model_name="m", engine=str(engine), stage=str(n))
    return served.text


def cpu_ms(work: Callable[[], object]) -> float:
    """Of one call, the mean of several; the first is not counted."""
    work()
    begun = time.process_time()
    for _ in range(TIMES):
        work()
    return (time.process_time() - begun) / TIMES * 1e3


def main() -> None:
    engines, histograms = (int(word) for word in [*sys.argv[1:], *("8", "120")[len(sys.argv) - 1 :]])
    text = page(engines, histograms)
    print(f"{len(text) / 1e3:.0f} kB, {text.count(chr(10))} lines of {engines} engines")
    print(f"read:             {cpu_ms(lambda: read(text, pages.moment(0))):.1f} ms of a core")
    print(f"all of it parsed: {cpu_ms(lambda: list(text_string_to_metric_families(text))):.1f} ms of a core")


if __name__ == "__main__":
    main()
