"""Engines that listen on this machine, and the processes behind a port: by /proc alone.

Of what this user may look at: sockets of other users' processes have no process here.
"""

from __future__ import annotations

import os
import re
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from cufall_py.processes import parent_of

from .fetch import EndpointProblem
from .page import NoMetrics
from .reading import Reading
from .scraper import scrape

PROC = Path("/proc")
LISTENS = "0A"
"""TCP_LISTEN in /proc/net/tcp."""
PROBE_S = 0.5
AT_ONCE = 16


@dataclass(frozen=True)
class Listener:
    """A port that processes listen on. `host`: the address by which it is reached from here, the first of `hosts`."""

    host: str
    port: int
    pids: tuple[int, ...]
    hosts: tuple[str, ...]

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


@dataclass(frozen=True)
class Found:
    """An engine that answered. `pids`: those that listen and all that descend from them."""

    listener: Listener
    reading: Reading
    pids: tuple[int, ...]


def engines() -> list[Found]:
    """The engines that listen here, by port. Asks each port once for the pages that may be there (known.PATHS).

    No key is sent, for it would go to whoever listens: an engine that wants one is not found, and is named by its URL.
    """
    there = listeners()
    with ThreadPoolExecutor(AT_ONCE, "cufall-probe") as pool:
        readings = list(pool.map(_probe, there))
    below = _children(PROC)
    return [
        Found(listener, reading, descendants(listener.pids, below))
        for listener, reading in zip(there, readings, strict=True)
        if reading
    ]


def listeners(proc: Path = PROC) -> list[Listener]:
    """Ports that processes which may be looked at listen on, in order; each once, unless others listen on the same port
    of another address."""
    sockets = dict(_listening(proc))
    pids: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for pid, inode in _open_sockets(proc):
        if inode in sockets:
            host, port = sockets[inode]
            pids[port][host].add(pid)
    return [
        Listener(hosts[0], port, tuple(sorted(own)), tuple(hosts))
        for port, by_host in sorted(pids.items())
        for hosts, own in _apart(by_host)
    ]


def behind(port: int, proc: Path = PROC, hosts: Collection[str] = ()) -> tuple[int, ...]:
    """The processes that listen on a port and all that descend from them; empty if none may be looked at.

    `hosts`: of those the ones that listen on one of these addresses, if there are any.
    """
    there = [listener for listener in listeners(proc) if listener.port == port]
    named = [listener for listener in there if {*hosts} & {*listener.hosts}]
    own = [pid for listener in named or there for pid in listener.pids]
    return descendants(own, _children(proc))


def _apart(by_host: Mapping[str, set[int]]) -> list[tuple[list[str], set[int]]]:
    """Addresses, IPv4 first, with the processes that listen there; those that share one are together."""
    groups: list[tuple[list[str], set[int]]] = []
    for host in sorted(by_host, key=lambda host: (":" in host, host)):
        shared = [group for group in groups if group[1] & by_host[host]]
        groups = [group for group in groups if group not in shared]
        hosts, pids = [one for group in shared for one in group[0]], (group[1] for group in shared)
        groups.append(([*hosts, host], by_host[host].union(*pids)))
    return groups


def ports_of(pid: int) -> list[Listener]:
    """The ports that a process or any of its descendants listens on."""
    family = set(descendants([pid], _children(PROC)))
    return [listener for listener in listeners() if family & set(listener.pids)]


def descendants(pids: Iterable[int], children: Mapping[int, Iterable[int]]) -> tuple[int, ...]:
    """These processes and all below them, in order. `children`: of each process its own."""
    found, left = set[int](), list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, ())
    return tuple(sorted(found))


def _probe(listener: Listener) -> Reading | None:
    try:
        return scrape(listener.url, limit_s=PROBE_S)
    except (EndpointProblem, NoMetrics):
        return None


def _listening(proc: Path) -> Iterator[tuple[str, tuple[str, int]]]:
    """Inode, and where one reaches it, of each listening socket of this network namespace."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue  # a kernel without IPv6
        for words in map(str.split, lines):
            if len(words) > 9 and words[3] == LISTENS:
                address, _, port = words[1].partition(":")
                yield words[9], (_reached(address), int(port, 16))


def _reached(address: str) -> str:
    """The kernel's hexadecimal address as one to connect to: what listens on all is reached by the loopback."""
    raw = struct.pack(f"={len(address) // 8}I", *(int(address[k : k + 8], 16) for k in range(0, len(address), 8)))
    found = IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw)
    if found.is_unspecified:
        return "127.0.0.1" if found.version == 4 else "::1"
    return str(found)


def _open_sockets(proc: Path) -> Iterator[tuple[int, str]]:
    for pid in _pids(proc):
        for link in _links(proc / str(pid) / "fd"):
            if found := re.fullmatch(r"socket:\[(\d+)\]", link):
                yield pid, found[1]


def _links(folder: Path) -> Iterator[str]:
    """Where those point that can be read: a file may be closed, a process end, or it is somebody else's."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(folder / name)
        except OSError:
            continue


def _children(proc: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for pid in _pids(proc):
        found[parent_of(pid, proc)].append(pid)
    return found


def _pids(proc: Path) -> list[int]:
    return sorted(int(path.name) for path in proc.iterdir() if path.name.isdigit())
