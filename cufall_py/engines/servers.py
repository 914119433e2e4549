"""Which servers are meant: by their addresses, a port or a process, or those that listen on this machine."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cufall_py.errors import CufallError, UsageError

from .fetch import Endpoint, EndpointProblem, endpoint, public
from .find import PROC, Listener, behind, engines, listeners, ports_of
from .page import NoMetrics
from .scraper import scrape


@dataclass(frozen=True)
class Server:
    """One inference server. `role`: prefill or decode, where somebody said so. `pids`: its processes, empty where they
    may not be looked at; `here`: whether its address is one of this machine's. `given`: the address with a login or
    query, where it has one, which is asked and never shown or kept."""

    url: str
    role: str = ""
    pids: tuple[int, ...] = ()
    here: bool = True
    given: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """What is asked."""
        return self.given or self.url


def servers(urls: Sequence[str], pid: int | None, port: int | None, roles: Mapping[str, str]) -> list[Server]:
    """Those that are named, or all that listen here if none is. `roles`: URL to role; each is a server, too.

    Raises UsageError for what names none, CufallError where none is found.
    """
    named = dict.fromkeys([*urls, *roles])
    if bool(named) + (pid is not None) + (port is not None) > 1:
        raise UsageError("URL, --pid and --port each name the servers; one of them is enough")
    if pid is not None:
        return _of_process(pid)
    if port is not None:
        return [_of_port(port)]
    if not named:
        return _listening()
    places: dict[Endpoint, str] = {}
    for url in named:
        places.setdefault(endpoint(url), url)  # one server, however its address is spelled
    role_at = {endpoint(url): role for url, role in roles.items()}
    return [replace(at(url), role=role_at.get(place, "")) for place, url in places.items()]


def at(url: str) -> Server:
    """The server at an address, with its processes if it runs here. Raises UsageError for what is no address."""
    where = endpoint(url)
    addresses = _addresses(where.host)
    here = any(_can_be_bound(family, address) for family, address in addresses)
    hosts = [str(address[0]) for _, address in addresses]
    shown = public(url)
    return Server(
        shown, pids=behind(where.port, hosts=hosts) if here else (), here=here, given=url if url != shown else ""
    )


def _addresses(host: str) -> list[tuple[int, tuple[object, ...]]]:
    """Of a host: family and address; none if nobody knows it."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [(family, address) for family, *_, address in found]


def _can_be_bound(family: int, address: tuple[object, ...]) -> bool:
    """As only an address of this machine can."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address[0], 0))
        except OSError:
            return False
        return True


def _of_port(port: int) -> Server:
    if not 0 < port < 1 << 16:
        raise UsageError(f"--port {port}: must be a whole number from 1 to 65535")
    there = [listener for listener in listeners() if listener.port == port]
    if len(there) > 1:
        urls = " and ".join(listener.url for listener in there)
        raise UsageError(f"--port {port}: several listen there, {urls}; name the one that is meant")
    return Server(there[0].url if there else f"http://127.0.0.1:{port}", pids=behind(port))


def _of_process(pid: int) -> list[Server]:
    """The ports of a process and its descendants that have an engine's metrics."""
    if pid < 1:
        raise UsageError(f"--pid {pid}: must be a whole number above 0")
    if not (PROC / str(pid)).exists():
        raise CufallError(f"there is no process {pid} here")
    ports = ports_of(pid)
    found = [Server(one.url, pids=behind(one.port, hosts=one.hosts)) for one in ports if _has_metrics(one)]
    if not found:
        heard = f"it listens on {', '.join(str(one.port) for one in ports)}" if ports else "it listens on no port"
        raise CufallError(f"process {pid} has no page of an engine's metrics ({heard}); name the address instead")
    return found


def _has_metrics(listener: Listener) -> bool:
    try:
        scrape(listener.url)
    except (EndpointProblem, NoMetrics):
        return False
    return True


def _listening() -> list[Server]:
    found = [Server(one.listener.url, pids=one.pids) for one in engines()]
    if not found:
        raise CufallError(
            "no inference server with metrics listens on this machine; name its address, as in cufall attach "
            "http://127.0.0.1:8000"
        )
    return found
