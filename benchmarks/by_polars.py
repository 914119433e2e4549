"""The statistics of `cufall report` by polars, of its Parquet export: `python benchmarks/by_polars.py FILE OUT.json`.

Of each GPU and of all, of everything alone: verdicts, regions, longest idle times and the shares of straddling samples
are left out, which is to polars's advantage.
"""

from __future__ import annotations

import json
import sys

import polars as pl

IN_ALL = "all"
COUNTERS = {
    "tensor": ("sm__pipe_tensor_cycles_active_realtime.avg", "sm__cycles_elapsed.avg", 4),
    "sm": ("sm__cycles_active.avg", "sm__cycles_elapsed.avg", 1),
    "dram": ("dram__bytes_read.sum+dram__bytes_write.sum", "dram__cycles_elapsed.avg", 1504),
}
LENGTH = pl.col("end_ns") - pl.col("start_ns")


def statistics() -> list[pl.Expr]:
    readings = [(pl.col(name) * LENGTH).sum().alias(name) for name in ("sm_mhz", "power_w")]
    figures = [pl.len().alias("samples"), LENGTH.sum().alias("covered_ns"), *readings]
    for name, (top, bottom, peak) in COUNTERS.items():
        value = pl.col(f"ratio.{name}")
        counted = sum(_sum(counter) for counter in top.split("+"))
        low = {"idle_share": 0.001, "below_1": 0.01, "below_10": 0.1}
        shares = {**{share: value < limit for share, limit in low.items()}, "above_90": value > 0.9}
        figures += [
            (counted / (peak * _sum(bottom))).alias(f"{name}.mean"),
            ((value * LENGTH).sum() / LENGTH.sum()).alias(f"{name}.time_mean"),
            value.min().alias(f"{name}.min"),
            value.max().alias(f"{name}.max"),
            *(value.quantile(p / 100).alias(f"{name}.p{p}") for p in (1, 5, 25, 50, 75, 95, 99)),
            *((LENGTH.filter(held).sum() / LENGTH.sum()).alias(f"{name}.{share}") for share, held in shares.items()),
        ]
    return figures


def _sum(counter: str) -> pl.Expr:
    return pl.col(counter).cast(pl.Float64).sum()


def main() -> None:
    source, out = sys.argv[1:]
    frame = pl.scan_parquet(source)
    by_gpu = frame.group_by("gpu").agg(statistics()).sort("gpu")
    found = [query.collect() for query in (by_gpu, frame.select(statistics()))]
    with open(out, "w") as file:
        json.dump({"gpus": found[0].to_dicts(), IN_ALL: found[1].to_dicts()[0]}, file)


if __name__ == "__main__":
    main()
