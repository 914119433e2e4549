"""What `--help`, the man page and a shell's completion tell: options in groups, and command lines that work."""

from __future__ import annotations

from collections.abc import Iterable

import click

GROUPS = {
    "Sampling": (
        *("source", "devices", "metrics", "denominator", "no_denominator", "raw", "full_scale"),
        *("frame_us", "sample_us", "decode_us", "rotate", "duration_sec"),
    ),
    "Output": (
        *("view", "width", "no_labels", "color", "no_flush", "force"),
        *("csv_path", "as_json", "json_path", "markdown", "junit", "parquet", "html", "trace", "svg"),
    ),
    "Recording": ("output", "record", "warmup_sec", "cooldown_sec"),
    "Ceiling": (
        *("ceiling", "model", "active_params", "weight_bytes", "kv_bytes"),
        *("batch", "context", "phase", "tp"),
    ),
    "Servers": ("pid", "port", "roles", "api_key"),
    "Load": ("drive", "requests", "prompt_tokens", "output_tokens", "model_name"),
    "Judging": ("require", "result", "annotate"),
    "Comparison": ("new", "fail_if", "min_effect"),
    "Hardware": ("device", "chip", "trigger", "sysclk_cycles", "buffer_samples", "hw_buffer_mb"),
}
"""Heading to the parameters below it, in this order."""
OTHERS = "Other options"
"""The last heading, of every option that has none."""
EXAMPLES = {
    "How busy the tensor pipes are, in the counters of the engineer who asked for cufall": (
        "cufall --devices all --metric sm__pipe_tensor_cycles_active.avg \\\n"
        "       --denominator gr__cycles_elapsed.max --color --hw-buffer-mb 250 --frame-us 50000"
    ),
    "A hundred frames a second, each shown as it ends": "cufall --frame-us 10000 --decode-us 10000",
    "Ten seconds as CSV": "cufall --csv - --duration-sec 10 > run.csv",
    "Why the tensor pipe is not busy: four metrics that are cheap together": (
        "cufall --metric tensor --metric sm --metric gr --metric dram"
    ),
    "What else can be measured": "cufall metrics tensor",
}
"""What a command line is for, to the line."""


def grouped(params: Iterable[click.Parameter]) -> dict[str, list[click.Parameter]]:
    """Heading to options, the headings of GROUPS first; those of no group come last. Empty groups are left out."""
    options = {param.name: param for param in params if param.param_type_name == "option"}
    groups = {title: [options.pop(name) for name in names if name in options] for title, names in GROUPS.items()}
    return {title: found for title, found in {**groups, OTHERS: [*options.values()]}.items() if found}


def write_options(params: Iterable[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """A section for each group; one alone is called Options."""
    groups = grouped(params)
    for title, found in groups.items():
        records = [record for param in found if (record := param.get_help_record(ctx))]
        with formatter.section(title if len(groups) > 1 else "Options"):
            formatter.write_dl(records)


def write_examples(formatter: click.HelpFormatter) -> None:
    with formatter.section("Examples"):
        for purpose, line in EXAMPLES.items():
            formatter.write_text(f"{purpose}:")
            for part in line.splitlines():
                formatter.write(f"{'':{formatter.current_indent + 2}}{part}\n")
