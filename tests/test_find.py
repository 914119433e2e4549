"""Engines that listen on this machine, by real sockets and processes, and by /proc directories made up here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cufall_py.engines.find import behind, descendants, engines, listeners, ports_of
from tests import pages
from tests.endpoints import answer, serving, stalls
from tests.scripted import ROOT, environment

SERVER = """
import socket, subprocess, sys
listening = socket.create_server(("127.0.0.1", 0))
child = subprocess.Popen([sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(listening.getsockname()[1], child.pid, flush=True)
sys.stdin.read()
child.communicate()
"""


@contextmanager
def server_with_a_child() -> Iterator[tuple[int, int, int]]:
    """The port, the process that listens on it, and its child that does not."""
    words = [sys.executable, "-c", SERVER]
    with subprocess.Popen(
        words, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        port, child = map(int, running.stdout.readline().split())
        yield port, running.pid, child
        running.communicate()


def test_an_engine_that_listens_here_is_found_and_what_is_none_is_not() -> None:
    with serving(answer(pages.vllm().text)) as engine, serving(answer("node_load1 3\n")), serving(stalls(3)):
        found = {one.listener.port: one for one in engines()}
        assert found[engine.port].reading.engine.name == "vLLM"
        assert found[engine.port].listener.url == engine.url
        assert os.getpid() in found[engine.port].pids
        assert "Authorization" not in engine.requests[0]


def test_both_families_are_seen() -> None:
    with serving(b"", host="::1") as six, serving(b"", host="127.0.0.1") as four:
        urls = {listener.url for listener in listeners()}
        assert {six.url, four.url} <= urls


def test_the_processes_behind_a_port_are_those_that_listen_and_their_children() -> None:
    with server_with_a_child() as (port, pid, child):
        assert behind(port) == tuple(sorted((pid, child)))
        assert [listener.pids for listener in listeners() if listener.port == port] == [(pid,)]
        assert [listener.port for listener in ports_of(pid)] == [port]
        assert port in [listener.port for listener in ports_of(os.getpid())]
        assert ports_of(child) == []


def test_nobody_behind_a_port_that_nobody_listens_on() -> None:
    with serving(b"") as server:
        pass
    assert behind(server.port) == ()


def made_up(root: Path, tcp: str, tcp6: str | None, processes: dict[int, tuple[int, list[int]]]) -> Path:
    """A /proc: for each process its parent and the inodes of its sockets."""
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    (root / "net").mkdir()
    (root / "net" / "tcp").write_text(head + tcp)
    if tcp6 is not None:
        (root / "net" / "tcp6").write_text(head + tcp6)
    for pid, (parent, inodes) in processes.items():
        (root / str(pid) / "fd").mkdir(parents=True)
        (root / str(pid) / "stat").write_text(f"{pid} (a ) b (c) S {parent} 1 1")
        for number, inode in enumerate(inodes):
            (root / str(pid) / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
        (root / str(pid) / "fd" / "99").symlink_to("/dev/null")
    return root


def line(address: str, port: int, inode: int, state: str = "0A") -> str:
    return (
        f"   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0  0 {inode} 1 0\n"
    )


LOOPBACK, ANY, ANY6, LOOPBACK6 = "0100007F", "00000000", "0" * 32, "00000000000000000000000001000000"
little_endian = pytest.mark.skipif(sys.byteorder != "little", reason="written as a little-endian kernel does")


@little_endian
def test_where_a_listener_is_reached(tmp_path: Path) -> None:
    tcp = line(LOOPBACK, 8000, 1) + line(ANY, 30000, 2) + line("0500A8C0", 9000, 3) + line(LOOPBACK, 5000, 4, "01")
    proc = made_up(tmp_path, tcp, line(ANY6, 7000, 5) + line(LOOPBACK6, 7001, 6), {10: (1, [1, 2, 3, 4, 5, 6])})
    assert [listener.url for listener in listeners(proc)] == [
        "http://[::1]:7000",
        "http://[::1]:7001",
        "http://127.0.0.1:8000",
        "http://192.168.0.5:9000",
        "http://127.0.0.1:30000",
    ]


@little_endian
def test_a_port_that_several_processes_share_is_one(tmp_path: Path) -> None:
    both = line(ANY6, 8000, 2)
    proc = made_up(tmp_path, line(ANY, 8000, 1), both, {10: (1, [1]), 11: (10, [1, 2]), 12: (11, [])})
    (listener,) = listeners(proc)
    assert (listener.url, listener.pids) == ("http://127.0.0.1:8000", (10, 11))
    assert behind(8000, proc) == (10, 11, 12)


@little_endian
def test_servers_on_one_port_of_several_addresses_are_told_apart(tmp_path: Path) -> None:
    tcp = line(LOOPBACK, 8000, 1) + line("0200007F", 8000, 2)
    proc = made_up(tmp_path, tcp, None, {10: (1, [1]), 11: (10, []), 20: (1, [2])})
    assert [(one.url, one.pids) for one in listeners(proc)] == [
        ("http://127.0.0.1:8000", (10,)),
        ("http://127.0.0.2:8000", (20,)),
    ]
    assert behind(8000, proc, ["127.0.0.1"]) == (10, 11)
    assert behind(8000, proc, ["127.0.0.2"]) == (20,)
    assert behind(8000, proc, ["192.168.0.5"]) == behind(8000, proc) == (10, 11, 20)


def test_a_kernel_without_ipv6_and_sockets_of_nobody_here(tmp_path: Path) -> None:
    assert listeners(made_up(tmp_path, line(LOOPBACK, 8000, 1), None, {10: (1, [77])})) == []


def test_descendants_end_where_a_process_is_its_own_parent() -> None:
    assert descendants([1], {1: [2], 2: [1, 3]}) == (1, 2, 3)
