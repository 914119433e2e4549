"""Attaching from a program: to inference servers with the GPUs that they use, or to GPUs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from . import server_gpus
from .attachment import METRICS, Attachment
from .engines.servers import Server, servers
from .errors import UsageError
from .plan import Plan
from .requirements import ROLES
from .resolve import Wanted
from .saying import Say

SAMPLE_US = 10_000
SHARED = (
    "which server uses which of these GPUs is not known, so that beside each stand those that are no other's; name "
    "them, as in --as decode=URL --group decode=4-7"
)


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
    groups: Mapping[str, Sequence[int]] = {},
    key: str = "",
    record: str | Path = "",
    say: Say = lambda line: None,
) -> Attachment:
    """Attach to inference servers: at these addresses, of a process, on a port, or all that listen on this machine.

    `devices`: their GPUs, as `--devices` has them; empty: those on which NVML lists processes of the servers. `roles`:
    URL to prefill or decode; `groups`: CUDA ordinals of the GPUs of the servers with such a role. `key`: the API key
    that clients send. All else as the options of `cufall attach`.

    Raises UsageError, and CufallError where no server or none of its GPUs is found.
    """
    plan = _plan(metrics, frame_us, sample_us, source)
    found = servers(urls, pid, port, roles)
    gpus, plan = with_gpus(found, devices, plan, say, groups=groups)
    return Attachment(found, plan, gpus=gpus, key=key, record=record, say=say)


class Session(Attachment):
    """GPUs, as `--devices` has them, beside no server: in a training loop, a benchmark or a notebook.

    All else as `attach`. Raises UsageError for what cannot be, SourceError when no selected GPU can be sampled.
    """

    def __init__(
        self,
        devices: str = "all",
        *,
        metrics: Sequence[str] = METRICS,
        frame_us: int = 100_000,
        sample_us: int = SAMPLE_US,
        source: str = "auto",
        record: str | Path = "",
        say: Say = lambda line: None,
    ) -> None:
        plan = replace(_plan(metrics, frame_us, sample_us, source), devices=devices)
        super().__init__([], plan, record=record, say=say)


def _plan(metrics: Sequence[str], frame_us: int, sample_us: int, source: str) -> Plan:
    wanted = Wanted((metrics,) if isinstance(metrics, str) else tuple(metrics))
    return Plan(wanted=wanted, frame_us=frame_us, sample_us=min(sample_us, frame_us), source=source)


def with_gpus(
    found: Sequence[Server],
    devices: str,
    plan: Plan,
    say: Say = lambda line: None,
    users: Callable[[], server_gpus.Users] = server_gpus.users,
    groups: Mapping[str, Sequence[int]] = {},
) -> tuple[list[list[str]], Plan]:
    """Each server's GPUs, by UUID or CUDA ordinal, empty where they are named by `devices` alone, and the plan that
    samples them. `groups`: the ordinals of those of the servers with a role.

    Scripted GPUs have no processes: all of them are meant. Raises CufallError where a server's are not known,
    UsageError for a role in `groups` that none has.
    """
    _check_roles(found, groups)
    named = [[str(gpu) for gpu in groups.get(server.role, ())] for server in found]
    if devices or plan.scripted:
        if len(found) > 1 and not all(named):
            say(SHARED)
        return named, replace(plan, devices=devices or "all")
    others = [server for server, own in zip(found, named, strict=True) if not own]
    listed = iter(server_gpus.gpus_of(others, say, users) if others else ())
    gpus = [own or next(listed) for own in named]
    every = dict.fromkeys(gpu for own in gpus for gpu in own)
    return gpus, replace(plan, devices=",".join(every))


def _check_roles(found: Sequence[Server], groups: Mapping[str, Sequence[int]]) -> None:
    for role in ROLES:
        if role in groups and not any(server.role == role for server in found):
            raise UsageError(f"--group {role}: no server has this role; --as {role}=URL names one")
