"""Which GPUs an inference server computes on: its processes among those that NVML lists for each GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from .engines.servers import Server
from .errors import CufallError
from .saying import Say

Users = Mapping[str, Collection[int]]
"""Numbers of the processes that compute on each GPU, by UUID."""
UNKNOWN = "which GPUs the server uses is not known"


def users() -> Users:
    """As NVML lists them; in a container it may give the host's numbers. Raises CufallError where NVML does not."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(k) for k in range(pynvml.nvmlDeviceGetCount())]
        return {
            pynvml.nvmlDeviceGetUUID(handle): [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
            for handle in handles
        }
    except pynvml.NVMLError as error:
        raise CufallError(f"{UNKNOWN}: NVML says {error}; --devices names them") from None


def gpus_of(
    servers: Sequence[Server], say: Say = lambda line: None, list_users: Callable[[], Users] = users
) -> list[list[str]]:
    """The UUIDs of each server's GPUs.

    Where a server runs here, the only GPU of the machine is its own, even if it is not on the list, which is said.
    Raises CufallError where they are not known.
    """
    there = list_users()
    found = []
    for server in servers:
        gpus = [uuid for uuid, pids in there.items() if {*server.pids} & {*pids}]
        if not gpus and not (server.here and len(there) == 1):
            raise CufallError(f"{UNKNOWN}: {_why(server)}; --devices names them")
        if not gpus:
            say(f"{UNKNOWN}: {_why(server)}; it is taken to be the only one here")
        found.append(gpus or [*there])
    return found


def _why(server: Server) -> str:
    if not server.here:
        return f"{server.url} is no address of this machine"
    if not server.pids:
        return f"no process behind {server.url} may be looked at here (it is another user's, or in another container)"
    numbers = ", ".join(map(str, server.pids))
    return f"no GPU lists a process of {server.url} ({numbers}; in a container NVML may have the host's numbers)"
