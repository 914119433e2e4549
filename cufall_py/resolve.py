"""From what was asked for (`--metric`, `--denominator`, `--raw`, `--full-scale`) to a MetricSet."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .errors import UsageError
from .metrics import TIME, Metric, MetricSet
from .presets import SHORT_NAMES, family, in_verdict_set, table, verified
from .verified import Verification

UNVERIFIED = "not verified on hardware"
ROLLUPS = ("avg", "sum", "min", "max")
A_SECOND = 1e-9
"""The peak of what is counted over nanoseconds and told a second."""


@dataclass(frozen=True)
class Wanted:
    """The question, in the user's words. `full_scale` 0: by unit. Of `metrics` those that are `optional` are read where
    the chip's verdict set has them, and absent elsewhere."""

    metrics: tuple[str, ...] = ("tensor",)
    denominator: str = ""
    raw: bool = False
    full_scale: float = 0.0
    optional: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[str, ...]:
        """The metrics that are not optional."""
        return tuple(name for name in self.metrics if name not in self.optional)

    def with_optional(self, names: Sequence[str]) -> Wanted:
        """What is asked for, and these where they are to be had."""
        added = tuple(name for name in names if name not in self.metrics)
        return replace(self, metrics=(*self.metrics, *added), optional=(*self.optional, *added))


def check(wanted: Wanted) -> None:
    """Refuse what can be refused without knowing the chip. Raises UsageError."""
    if isinstance(wanted.metrics, str) or not wanted.metrics:
        raise UsageError(f'metrics {wanted.metrics!r}: must be one or more names, as in ("tensor",)')
    for name in wanted.metrics:
        if name not in SHORT_NAMES:
            _check_counter(name, "--metric")
    if wanted.denominator:
        _check_counter(wanted.denominator, "--denominator")
        if all(name in SHORT_NAMES for name in wanted.metrics):
            raise UsageError(
                f"--denominator goes with a metric given by its CUPTI name; {wanted.metrics[0]} is of its peak"
            )


def resolve(wanted: Wanted, chip: str) -> MetricSet:
    """The counters to read on this chip and the metrics made of them, peaks still unknown.

    Raises UsageError for a short name the chip has no counter for, or if it has none for any.
    """
    check(wanted)
    metrics = tuple(_metric(name, wanted, chip) for name in dict.fromkeys(wanted.metrics))
    counters = [name for m in metrics for name in (*m.counters, m.elapsed) if name != TIME]
    if wanted.denominator:
        counters.append(wanted.denominator)
    if not counters:
        raise UsageError(f"{', '.join(wanted.metrics)}: cufall knows no counters of chip {chip} for any of these")
    return MetricSet(tuple(dict.fromkeys(counters)), metrics)


def check_one_pass(metrics: MetricSet, passes: int, chip: str) -> None:
    """Raises UsageError for a set that needs more passes than the one that can be sampled."""
    if passes != 1:
        raise UsageError(
            f"{' + '.join(m.asked for m in metrics.metrics)} need {passes} passes on {chip}, "
            "one can be sampled; ask for fewer metrics at a time (cufall record --rotate takes them in turn)"
        )


def is_elapsed(counter: str) -> bool:
    return "cycles_elapsed" in counter


def unit_of(counter: str) -> str:
    """The hardware unit a counter is of: `sm` of `TPC.TriageCompute.sm__cycles_active.avg`."""
    return counter.split("__")[0].split(".")[-1]


def elapsed_of(counter: str) -> str:
    """The elapsed counter of a counter's own unit, and so of its own clock."""
    unit = unit_of(counter)
    return "gr__cycles_elapsed.max" if unit == "gr" else f"{unit}__cycles_elapsed.avg"


def _metric(name: str, wanted: Wanted, chip: str) -> Metric:
    if name in wanted.optional and not in_verdict_set(name, chip):
        return absent(name)
    metric = _preset(name, chip) if name in SHORT_NAMES else _counter(name, wanted.denominator)
    if metric.unit:
        return (
            replace(metric, peak=metric.peak * wanted.full_scale, plain=False, unit="") if wanted.full_scale else metric
        )
    if wanted.full_scale and not metric.rate:
        return replace(metric, elapsed=_asked_elapsed(metric, wanted), peak=wanted.full_scale, bounded=False)
    if wanted.raw and not metric.rate:
        return replace(metric, elapsed=_asked_elapsed(metric, wanted), peak=1.0, bounded=False, plain=True)
    return metric


def _asked_elapsed(metric: Metric, wanted: Wanted) -> str:
    return metric.elapsed if metric.label in SHORT_NAMES else wanted.denominator or metric.elapsed


def _preset(name: str, chip: str) -> Metric:
    if not table(chip):
        raise UsageError(
            f"{name}: cufall knows no counters of chip {chip}; name CUPTI's own with --metric "
            "(they are in NVIDIA's documentation of that chip)"
        )
    recipe = table(chip)[name]
    if isinstance(recipe, str):
        raise UsageError(f"{name} is not to be had on {chip}: {recipe}")
    if recipe.unit:
        return Metric(name, name, recipe.counters, TIME, peak=A_SECOND, bounded=False, plain=True, unit=recipe.unit)
    return Metric(name, name, recipe.counters, recipe.elapsed, recipe.peak_of)


def absent(name: str) -> Metric:
    """A metric that this GPU has no counters for."""
    return Metric(name, name, (), TIME, peak=1.0)


def _counter(name: str, denominator: str) -> Metric:
    asked = f"{name}/{denominator}" if denominator else name
    rollup, *submetric = name.split("__", 1)[1].split(".")[1:]
    if submetric or rollup not in ROLLUPS:
        percent = (submetric or [rollup])[0].startswith("pct")
        return Metric(
            name,
            asked,
            (name,),
            TIME,
            peak=100.0 if percent else 1.0,
            bounded=percent,
            plain=not percent,
            rate=True,
        )
    if denominator and not is_elapsed(denominator):
        return Metric(name, asked, (name,), denominator, peak=1.0, bounded=False, plain=True)
    return Metric(name, asked, (name,), elapsed_of(name), (name,))


def _check_counter(name: str, flag: str) -> None:
    if "," in name:
        raise UsageError(f"{flag} {name}: one name at a time; give {flag} again for the next")
    if name in SHORT_NAMES:
        raise UsageError(f"{flag} {name}: needs a CUPTI counter, such as sm__cycles_elapsed.avg")
    if "__" not in name:
        close = difflib.get_close_matches(name, SHORT_NAMES, 1)
        hint = f"; did you mean {close[0]}?" if close else f" (short names: {', '.join(SHORT_NAMES)})"
        raise UsageError(f"{flag} {name}: neither a short name nor a CUPTI counter{hint}")
    parts = name.split("__", 1)[1].split(".")
    if len(parts) < 2 or parts[1] not in (*ROLLUPS, "ratio", "pct"):
        raise UsageError(f"{flag} {name}: needs a rollup, as in {name}.avg or {name}.sum")
    if "peak_sustained" in parts:
        raise UsageError(f"{flag} {name}: is a constant of the chip, nothing to sample")


def chip_note(wanted: Wanted, chip: str, here: Sequence[Verification] = ()) -> str:
    """One line about short names that nobody has checked on this chip, or only `cufall verify` here; empty if there
    are none."""
    read = [n for n in wanted.metrics if n not in wanted.optional or in_verdict_set(n, chip)]
    unsure = [n for n in read if n in SHORT_NAMES and not verified(n, chip)]
    words = {n: next((found.words() for found in here if n in found.metrics), UNVERIFIED) for n in unsure}
    groups = {said: [n for n in unsure if words[n] == said] for said in words.values()}
    return "; ".join(f"{', '.join(names)} on {family(chip) or chip}: {said}" for said, names in groups.items())
