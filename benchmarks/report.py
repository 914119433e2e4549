"""Tables for docs/benchmarks.md from what run.py wrote: `python benchmarks/report.py OUT.json > tables.md`."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Figures = dict[str, Any]


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(head), *(list(map(str, row)) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else float("nan")


def middle(values: list[float]) -> float:
    return statistics.median(values) if values else float("nan")


def worker_cpu(found: Figures) -> str:
    """A row a spelling and cadence; CPU in % of a core."""
    rows = []
    for key, r in entries(found):
        counter, sample_us, decode_us = key.split()
        floors, workers = [f["cpu_pct"] for f in r["floor"] if f], r["worker"]
        rows.append(
            (
                f"`{counter}`",
                f"{1000 / int(sample_us):g} kHz / {int(decode_us) // 1000} ms",
                ", ".join(f"{f:.2f}" for f in floors) or "-",
                ", ".join(f"{w['cpu_pct']:.2f}" for w in workers),
                ", ".join(f"{x:.2f}" for x in r["ratios"]) + f": {r['ratio']:.2f}x" if "ratio" in r else "-",
                f"{statistics.median(w['decode_us'] for w in workers) / 1000:.2f}",
                f"{sum(w['lost'] for w in workers)}",
                f"{sum(w['late'] for w in workers)} ({max(w['latest_ms'] for w in workers):.1f} ms)",
            )
        )
    head = ("counter", "samples / decode", "floor %", "worker %", "ratios: median", "ms a decode", "lost", "late")
    return table(head, rows)


def memory(r: Figures) -> str:
    rows = [(f"floor, {r['buffer_mb']} MB buffer", r["floor_mb"] or "-", "-", "-")]
    for what, key in ((f"worker, {r['buffer_mb']} MB buffer", "worker_mb"), ("worker, defaults", "default_mb")):
        rows.append((what, f"{r[key]['most']:.0f}", f"{r[key]['now']:.0f}", f"{r[key]['own']:.0f}"))
    return table(("MiB resident", "most", "now", "its own (not shared)"), rows)


def whole_cost(found: Figures) -> str:
    rows = [
        (key, f"{r['cpu_pct']:.2f}", ", ".join(f"{p:.2f}" for p in r["by_process_pct"])) for key, r in entries(found)
    ]
    return table(("`cufall > file`", "% of a core", "reader, supervisor, worker"), rows)


def frame_age(found: Figures) -> str:
    rows = [
        (key, r["rows"], f"{r['p50_ms']:.1f}", f"{r['p95_ms']:.1f}", f"{r['max_ms']:.1f}") for key, r in entries(found)
    ]
    said = [
        f"{key}: the first {r['left_out_s']:g} s is left out ({r['left_out']} frames, at most "
        f"{r['left_out_max_ms']:.1f} ms old)."
        for key, r in entries(found)
        if "left_out" in r
    ]
    return "\n\n".join((table(("age of a frame when read, ms", "frames", "p50", "p95", "most"), rows), *said))


def first_frame(r: Figures) -> str:
    bare = middle(r["import_s"])
    rows = []
    for what, ours, floor in (
        ("defaults", "defaults_s", "floor_s"),
        ("10 ms frames and decodes", "per_frame_s", "floor_per_frame_s"),
    ):
        bar = middle(r[floor]) + bare + 0.6
        rows.append((what, f"{middle(r[ours]):.2f}", f"{middle(r[floor]):.2f}", f"{bare:.2f}", f"{bar:.2f}"))
    head = ("first row, s (medians)", "cufall", "floor's first value", "bare `import cupti`", "bar")
    return (
        table(head, rows) + f"\n\n`cufall --help`: {r['help']['median_s']:.3f} s (median of {len(r['help']['s'])}), "
        f"of numpy and rich it loads {r['help']['heavy_modules']}."
    )


def losses(found: Figures) -> str:
    rows = []
    for key, r in entries(found):
        memories = [m["now"] for m in r["memory_mb"]]
        rows.append(
            (
                key,
                f"{r['span_s']:.1f}",
                r["got"],
                r["lost"],
                f"{100 * r['accounted']:.3f} %",
                r["late_decodes"],
                f"{r['latest_ms']:.1f}",
                r["absurd"],
                r["duplicate"],
                r["rebuilt"],
                f"{r['cpu_pct']:.2f}",
                f"{memories[0]:.0f}, {middle(memories):.0f}, {memories[-1]:.0f}",
            )
        )
    head = (
        "sample",
        "s",
        "got",
        "lost",
        "accounted for",
        "late decodes",
        "latest ms",
        "absurd",
        "duplicate",
        "re-timed",
        "worker %",
        "MiB first, median, last",
    )
    return table(head, rows)


def idle(found: Figures) -> str:
    return clocks([("idle, " + state, found[state]) for state in ("before", "during", "after")])


def target(found: Figures) -> str:
    rows = [(key, f"{r['per_s']['off']:.1f}", *ratio(r)) for key, r in entries(found) if "ratio" in r]
    loaded = [(f"{key}, {state}", m) for key, r in entries(found) for state, m in r.get("clocks", {}).items()]
    return table(("load", "per s, off", *RATIO), rows) + clocks(loaded)


def verdicts(found: Figures) -> str:
    return whole_cost(found["cost"]) + "\n\n" + target({"decode in a graph": found["target"]})


def two(found: Figures) -> str:
    rows = [
        (key, n, f"{gpu['cpu_pct']:.2f}", gpu.get("late", 0), gpu.get("lost", "-"), gpu.get("overflow", "-"))
        for key, r in entries(found)
        for n, gpu in enumerate(r["gpus"])
        if gpu
    ]
    reader = ", ".join(f"{key}: {r['reader_cpu_pct']:.2f}" for key, r in entries(found) if "reader_cpu_pct" in r)
    return table(("", "GPU", "% of a core", "late", "lost", "overflows"), rows) + f"\n\nreader %: {reader}"


def target_floor(found: Figures) -> str:
    """cufall and the floor, each against the stretches without either around it."""
    off = f"{mean(found['rates']['off']):.1f}"
    rows = [(f"GEMM, {key}", off, *ratio(found[key])) for key in ("cufall", "floor") if found[key]]
    return table(("load", "per s, off", *RATIO), rows) + clocks(list(found["clocks"].items()))


RATIO = ("on / off", "95 % interval", "half-width", "holds 1")


def ratio(r: Figures) -> tuple[str, ...]:
    holds = "yes" if r["low"] <= 1 <= r["high"] else "**no**"
    return f"{r['ratio']:.4f}", f"{r['low']:.4f} to {r['high']:.4f}", f"{r['half_width_pct']:.2f} %", holds


def clocks(states: list[tuple[str, Figures]]) -> str:
    """A table after an empty line; nothing where NVML read nothing."""
    rows = [
        (what, f"{m['sm_mhz']:.0f}", f"{m['memory_mhz']:.0f}", f"P{m['p_state']:.0f}", f"{m['power_w']:.1f}")
        for what, m in states
        if m
    ]
    return "\n\n" + table(("state", "SM MHz", "memory MHz", "P-state", "W"), rows) if rows else ""


def eight(found: Figures) -> str:
    rows = [
        (
            key,
            r["frames"],
            r["late"],
            r["thin"],
            f"{r['age_p95_ms']:.0f}, {r['age_max_ms']:.0f}",
            f"{r['reader_cpu_pct']:.1f}",
            f"{r['workers_cpu_pct']:.1f}",
            r["lost"],
        )
        for key, r in entries(found)
    ]
    head = ("burn a decode", "frames", "late", "not covered", "age p95, most ms", "reader %", "workers %", "lost")
    return f"{found['cores']} cores.\n\n" + table(head, rows)


def timeline(found: Figures) -> str:
    rows = [
        (key, f"{r['reader_cpu_pct']:.2f}", f"{r['drawings_per_s']:.1f}", f"{r['bytes_per_s'] / 1000:.1f}")
        for key, r in entries(found)
    ]
    return table(("eight scripted GPUs", "reader % of a core", "drawings a second", "kB a second"), rows)


def entries(found: Figures) -> list[tuple[str, Figures]]:
    return [(key, value) for key, value in found.items() if isinstance(value, dict)]


SECTIONS: dict[str, tuple[str, Callable[[Figures], str]]] = {
    "worker_cpu": ("A worker against the floor", worker_cpu),
    "whole_cost": ("All of cufall", whole_cost),
    "frame_age": ("Age of a frame when written", frame_age),
    "first_frame": ("First frame", first_frame),
    "memory": ("Memory", memory),
    "losses_fast": ("Samples lost, faster than 1 kHz", losses),
    "losses": ("Samples lost", losses),
    "idle": ("An idle GPU", idle),
    "target": ("The target", target),
    "target_floor": ("The target, beside the floor", target_floor),
    "two": ("Two GPUs", two),
    "eight": ("Eight GPUs (scripted)", eight),
    "timeline": ("Drawing eight GPUs", timeline),
    "verdicts": ("What verdicts take", verdicts),
}


def main(path: str) -> None:
    found = json.loads(Path(path).read_text())
    print(", ".join(f"{key}: {value}" for key, value in found["machine"].items()))
    for key, (title, section) in SECTIONS.items():
        if key in found:
            body = "failed:\n\n" + found[key]["error"] if "error" in found[key] else section(found[key])
            print(f"\n### {title}\n\n{body}")


if __name__ == "__main__":
    main(sys.argv[1])
