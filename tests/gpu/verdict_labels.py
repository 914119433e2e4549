"""What labelled loads came to: their frames in a recording, against the classes that were expected of them.

    python tests/gpu/verdict_labels.py verdict-loads.cufall [--held-out] [--thin FILE.cufall]

prints the confusion table of docs/verdict.md and a line for each load. A third of the loads is held out: without
--held-out nothing of it is shown. --thin writes a recording of a part of each load, for tests/data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]
import numpy as np  # noqa: E402

from cufall_py.analysis.decision_table import CLASSES  # noqa: E402
from cufall_py.analysis.verdict import NONE, Verdicts, missing_names, rivals  # noqa: E402
from cufall_py.analysis.verdict_frames import FrameTotals, frame_totals, means_of  # noqa: E402
from cufall_py.analysis.verdict_scopes import FRAME_NS  # noqa: E402
from cufall_py.analysis.verdict_windows import evidence_of, verdicts_of  # noqa: E402
from cufall_py.copying import Copy  # noqa: E402
from cufall_py.metrics import MetricSet  # noqa: E402
from cufall_py.recorded_metrics import Picker, Recorded  # noqa: E402
from cufall_py.recording import RecordingWriter  # noqa: E402
from cufall_py.recording_reader import Recording  # noqa: E402
from cufall_py.report import verdict_metrics  # noqa: E402
from cufall_py.samples import Samples  # noqa: E402
from cufall_py.spans import Span  # noqa: E402

EXPECTED = Path(__file__).with_name("verdict_expected.json")
THIRD = 3
WANTED = 0.95
LAUNCH_BOUND, UNKNOWN = "launch-bound", "unknown"
THIN_S = 0.3


@dataclass(frozen=True)
class Expected:
    """`classes`: the likeliest first; any of them is right. A load with one is pure."""

    classes: tuple[str, ...]
    why: str

    @property
    def pure(self) -> bool:
        return len(self.classes) == 1


def expected(path: Path = EXPECTED) -> dict[str, Expected]:
    loads = json.loads(path.read_text())["loads"]
    return {name: Expected(tuple(load["expect"]), load["why"]) for name, load in loads.items()}


def held_out(names: Iterable[str]) -> tuple[str, ...]:
    """Every third in alphabetical order."""
    return tuple(sorted(names)[THIRD - 1 :: THIRD])


@dataclass(frozen=True)
class Labelled:
    """The frames wholly inside a load: the share in each class and of each runner-up, and each metric's mean (0..1).

    `missing`: what the unknown ones lacked.
    """

    frames: int
    shares: dict[str, float]
    runners_up: dict[str, float]
    means: dict[str, float]
    missing: tuple[str, ...]

    def right(self, wanted: Expected) -> float:
        """The share in a class that was expected; without a count of launches, launch-bound is unknown."""
        classes = set(wanted.classes)
        if LAUNCH_BOUND in classes and "launches" in self.missing:
            classes.add(UNKNOWN)
        return sum(self.shares.get(name, 0.0) for name in classes)

    def holds(self, wanted: Expected) -> bool:
        return self.frames > 0 and self.right(wanted) >= WANTED


def labelled(path: Path) -> dict[str, Labelled]:
    """Each region of a recording of one GPU."""
    recording = Recording(path)
    metrics = verdict_metrics(Recorded(recording.opened[0]))
    samples = Samples.join(batch for _, batch in recording.batches())
    return {
        name: of_load(samples, metrics, [(region.start_ns, region.end_ns) for region in regions])
        for name, regions in recording.regions().items()
    }


def of_load(samples: Samples, metrics: MetricSet, spans: list[Span]) -> Labelled:
    """Of the frames wholly inside any of the spans."""
    frames = FrameTotals.join([inside(frame_totals(samples, metrics, FRAME_NS), span) for span in spans])
    verdicts, means = verdicts_of(frames, metrics), means_of(whole(frames), metrics) if len(frames) else {}
    runners_up, _ = rivals(evidence_of(frames, metrics), verdicts.classes)
    return Labelled(
        len(frames),
        _shares(verdicts.names()),
        _shares(CLASSES[k] if k != NONE else "" for k in runners_up),
        {name: float(mean[0]) for name, mean in means.items()},
        _missing(verdicts),
    )


def inside(frames: FrameTotals, span: Span) -> FrameTotals:
    """Those that begin and end within it."""
    starts_ns = frames.numbers * frames.frame_ns
    first, last = np.searchsorted(starts_ns, [span[0], span[1] - frames.frame_ns + 1])
    return frames[slice(int(first), max(int(first), int(last)))]


def whole(frames: FrameTotals) -> FrameTotals:
    """Their sum as one."""
    return FrameTotals.join([replace(frames, numbers=np.zeros_like(frames.numbers))])


def _shares(names: Iterable[str]) -> dict[str, float]:
    counts = Counter(names)
    return {name: count / counts.total() for name, count in counts.most_common() if name}


def _missing(verdicts: Verdicts) -> tuple[str, ...]:
    return missing_names(int(np.bitwise_or.reduce(verdicts.missing, initial=np.uint32(0))))


# what is written of it ----------------------------------------------------------------------------------


def figures(load: Labelled, wanted: Expected) -> dict[str, object]:
    """For the report of the GPU tests."""
    return {"expected": wanted.classes, "right": load.right(wanted), **asdict(load)}


def confusion(loads: Mapping[str, Labelled], wanted: Mapping[str, Expected]) -> Iterator[str]:
    """Markdown: a row for each class that was expected first, a column for each that was found; mean percent of frames.

    Each load counts the same.
    """
    found = [name for name in CLASSES if any(load.shares.get(name) for load in loads.values())]
    yield f"| expected | loads | {' | '.join(f'`{name}`' for name in found)} |"
    yield "|---|---|" + "---|" * len(found)
    for row in CLASSES:
        of_row = [load for name, load in loads.items() if wanted[name].classes[0] == row]
        if of_row:
            means = [sum(load.shares.get(name, 0.0) for load in of_row) / len(of_row) for name in found]
            yield f"| `{row}` | {len(of_row)} | {' | '.join(f'{100 * mean:.1f}' if mean else '' for mean in means)} |"


def listing(loads: Mapping[str, Labelled], wanted: Mapping[str, Expected]) -> Iterator[str]:
    """Markdown: a row for each load, with its means in percent."""
    shown = list(dict.fromkeys(name for load in loads.values() for name in load.means))
    yield f"| load | expected | found, % of frames | {' | '.join(f'`{name}`' for name in shown)} |"
    yield "|---|---|---|" + "---|" * len(shown)
    for name, load in sorted(loads.items()):
        classes = ", ".join(f"{of} {100 * share:.0f}" for of, share in load.shares.items()) or "no frame"
        mark = "" if load.holds(wanted[name]) else " **missed**"
        means = " | ".join(_mean(of, load.means.get(of)) for of in shown)
        yield f"| {name} | {' or '.join(wanted[name].classes)} | {classes}{mark} | {means} |"


def _mean(name: str, mean: float | None) -> str:
    if mean is None or np.isnan(mean):
        return ""
    return f"{mean:.0f}" if name == "launches" else f"{100 * mean:.2g}"


def thin(path: Path, target: Path) -> None:
    """Of each load THIN_S from its middle, on whole frames."""
    recording = Recording(path)
    regions = recording.regions()
    spans = sorted(middle((region.start_ns, region.end_ns)) for of in regions.values() for region in of)
    sets = [opened.metrics for opened in recording.opened]
    pickers = [Picker(metrics, metrics) for metrics in sets]
    writer = RecordingWriter(target, recording.opened, recording.plan, force=True, live=False)
    copy = Copy(writer, sets, pickers, spans, regions)
    for item in recording.items():
        copy.add(getattr(item, "gpu", None), item)
    copy.close(spans[-1][1])


def middle(span: Span) -> Span:
    """At most THIN_S from its middle, rounded to frames."""
    half_ns = min(int(THIN_S * 1e9), span[1] - span[0]) // 2
    centre_ns = (span[0] + span[1]) // 2
    start_ns = -(-(centre_ns - half_ns) // FRAME_NS) * FRAME_NS
    return start_ns, max(start_ns + FRAME_NS, (centre_ns + half_ns) // FRAME_NS * FRAME_NS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Labelled loads against what was expected of them")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--held-out", action="store_true", help="Show the held-out third, too.")
    parser.add_argument("--thin", type=Path, help="Write a part of each load to this recording.")
    options = parser.parse_args()
    if options.thin:
        thin(options.recording, options.thin)
        return
    wanted = expected()
    shown = set(wanted) if options.held_out else set(wanted) - set(held_out(wanted))
    loads = {name: load for name, load in labelled(options.recording).items() if name in shown}
    print("\n".join([*confusion(loads, wanted), "", *listing(loads, wanted)]))


if __name__ == "__main__":
    main()
