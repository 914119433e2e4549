"""Attaching from a program: to inference servers with the GPUs that they use, or to GPUs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from . import server_gpus
from .attachment import METRICS, Attachment
from .engines.servers import Server, servers
from .plan import Plan
from .resolve import Wanted
from .saying import Say

SAMPLE_US = 10_000
SCRIPT = "script:"


def attach(
    *urls: str,
    pid: int | None = None,
    port: int | None = None,
    roles: Mapping[str, str] = {},
    devices: str = "",
    metrics: Sequence[str] = METRICS,
    frame_us: int = 100_000,
    sample_us: int = SAMPLE_US,
    source: str = "auto",
    key: str = "",
    record: str | Path = "",
    say: Say = lambda line: None,
) -> Attachment:
    """Attach to inference servers: at these addresses, of a process, on a port, or all that listen on this machine.

    `devices`: their GPUs, as `--devices` has them; empty: those on which NVML lists processes of the servers. `roles`:
    URL to prefill or decode. `key`: the API key that clients send. All else as the options of `cufall attach`.

    Raises UsageError, and CufallError where no server or none of its GPUs is found.
    """
    plan = _plan(metrics, frame_us, sample_us, source)
    found = servers(urls, pid, port, roles)
    gpus, plan = with_gpus(found, devices, plan, say)
    return Attachment(found, plan, gpus=gpus, key=key, record=record, say=say)


def attach_gpus(
    devices: str = "all",
    *,
    metrics: Sequence[str] = METRICS,
    frame_us: int = 100_000,
    sample_us: int = SAMPLE_US,
    source: str = "auto",
    record: str | Path = "",
    say: Say = lambda line: None,
) -> Attachment:
    """Attach to GPUs, as `--devices` has them, beside no server: in a training loop or a benchmark.

    All else as `attach`. Raises UsageError for what cannot be, SourceError when no selected GPU can be sampled.
    """
    plan = replace(_plan(metrics, frame_us, sample_us, source), devices=devices)
    return Attachment([], plan, record=record, say=say)


def _plan(metrics: Sequence[str], frame_us: int, sample_us: int, source: str) -> Plan:
    wanted = Wanted((metrics,) if isinstance(metrics, str) else tuple(metrics))
    return Plan(wanted=wanted, frame_us=frame_us, sample_us=min(sample_us, frame_us), source=source)


def with_gpus(
    found: Sequence[Server],
    devices: str,
    plan: Plan,
    say: Say = lambda line: None,
    users: Callable[[], server_gpus.Users] = server_gpus.users,
) -> tuple[list[list[str]], Plan]:
    """The UUIDs of each server's GPUs, empty where they are named by `devices` alone, and the plan that samples them.

    Scripted GPUs have no processes: all of them are meant. Raises CufallError where a server's are not known.
    """
    if devices or plan.source.startswith(SCRIPT):
        return [[] for _ in found], replace(plan, devices=devices or "all")
    gpus = server_gpus.gpus_of(found, say, users)
    every = dict.fromkeys(uuid for own in gpus for uuid in own)
    return gpus, replace(plan, devices=",".join(every))
