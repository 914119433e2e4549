"""Loopback servers that answer with exactly the bytes they are given, over real sockets."""

from __future__ import annotations

import gzip
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Talk = Callable[[socket.socket, str], None]
"""What a server does with a connection and the request that came on it."""


def answer(
    body: bytes | str,
    status: str = "200 OK",
    kind: str = "text/plain; version=0.0.4",
    length: int | None = -1,
    **more: str,
) -> bytes:
    """A whole HTTP answer; `length`: what Content-Length says, -1 for the truth, None for none."""
    data = body.encode() if isinstance(body, str) else body
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *(f"{k.replace('_', '-')}: {v}" for k, v in more.items())]
    if length is not None:
        head.append(f"Content-Length: {len(data) if length == -1 else length}")
    return "\r\n".join([*head, "", ""]).encode() + data


def packed(body: str) -> bytes:
    return answer(gzip.compress(body.encode()), Content_Encoding="gzip")


def chunked(*pieces: str, ended: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"".join(f"{len(piece):x}\r\n{piece}\r\n".encode() for piece in pieces)
    return head + body + (b"0\r\n\r\n" if ended else b"")


def sends(data: bytes) -> Talk:
    return lambda connection, _: connection.sendall(data)


def drips(data: bytes, pause_s: float) -> Talk:
    """A byte at a time, so that no single read waits long."""

    def talk(connection: socket.socket, _: str) -> None:
        for k in range(len(data)):
            connection.sendall(data[k : k + 1])
            time.sleep(pause_s)

    return talk


def begins_then_drips(data: bytes) -> Talk:
    """The head and a little more at once, the rest a byte at a time."""
    begins = data.index(b"\r\n\r\n") + 100

    def talk(connection: socket.socket, request: str) -> None:
        connection.sendall(data[:begins])
        drips(data[begins:], 0.05)(connection, request)

    return talk


def stalls(seconds: float) -> Talk:
    return lambda connection, _: time.sleep(seconds)


def resets(data: bytes) -> Talk:
    """Sends, then ends the connection with a reset."""

    def talk(connection: socket.socket, _: str) -> None:
        connection.sendall(data)
        time.sleep(0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    return talk


TLS = b"\x16"
"""What a TLS client begins with; a server of plain HTTP answers that at once."""


@dataclass
class Server:
    """`talk` may be changed at any time; `requests` are those that came, with their headers."""

    talk: Talk
    host: str
    port: int = 0
    secure: bool = False
    requests: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"


@contextmanager
def serving(talk: Talk | bytes, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server that does this with each connection, in a thread a connection."""
    server = Server(sends(talk) if isinstance(talk, bytes) else talk, host, secure=tls is not None)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.bind((host, 0))
        listening.listen(16)
        server.port = listening.getsockname()[1]
        thread = threading.Thread(target=_accept, args=(listening, server, tls), daemon=True)
        thread.start()
        yield server
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(2)


def _accept(listening: socket.socket, server: Server, tls: ssl.SSLContext | None) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(connection, server, tls), daemon=True).start()


def _serve(connection: socket.socket, server: Server, tls: ssl.SSLContext | None) -> None:
    try:
        with tls.wrap_socket(connection, server_side=True) if tls else connection as talking:
            request = b""
            while not _has_come(request) and (piece := talking.recv(65536)):
                request += piece
            server.requests.append(request.decode("latin-1"))
            server.talk(talking, request.decode("latin-1"))
    except OSError:
        pass  # the client has gone, which is its right


def _has_come(request: bytes) -> bool:
    """With its body: a connection that is closed with something unread is reset, and the answer may be lost."""
    head, ended, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return request[:1] == TLS or (bool(ended) and len(body) >= int(length[1] if length else 0))
