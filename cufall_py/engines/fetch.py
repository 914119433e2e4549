"""One page over HTTP within a time limit, and each way in which that fails told in one line."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from cufall_py.errors import CufallError, UsageError

from .failures import CUT_SHORT, why_no_page, why_of, why_of_status
from .known import PATHS

MOST_BYTES = 16 << 20
"""A page with more is no engine's: a large server's has a few hundred kB."""
MOST_REDIRECTS = 3
_PIECE = 1 << 16


class EndpointProblem(CufallError):
    """An endpoint gave no page of metrics: its text says which endpoint, why, and what to do."""


@dataclass(frozen=True)
class Answer:
    """A page and when it was asked for and had, by the clock that is never set and by Unix time."""

    text: str
    asked_ns: int
    had_ns: int
    at_ns: int


@dataclass(frozen=True)
class Endpoint:
    """Where a page is. `paths`: to be tried in turn. `login`: sent as Authorization, never shown."""

    secure: bool
    host: str
    port: int
    paths: tuple[str, ...]
    login: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        """The address for a person, without anything secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"

    def at(self, path: str) -> str:
        """A page of it for a person."""
        return public(f"{self.shown}{printable(path)}")


def endpoint(url: str, key: str = "") -> Endpoint:
    """From what a user gives: `http://host:port`, with a path or without, or just `host:port`.

    `key`: an API key, sent as a bearer token; a URL may have `user:password@`. Raises UsageError.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise _no_address(url) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not url.isprintable():
        raise _no_address(url)
    secure = parts.scheme == "https"
    return Endpoint(secure, parts.hostname, port or (443 if secure else 80), _paths(parts), _login(parts, key))


def public(url: str) -> str:
    """An address for people, logs and files: without a login, and without a query, which may hold a key."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    place, slash, path = rest.partition("?")[0].partition("/")
    if "@" in path and "@" not in place:  # a password with a slash in it, which the address should have escaped
        place, slash, path = path.rpartition("@")[2].partition("/")
    return scheme + mark + place.rpartition("@")[2] + slash + path


def printable(text: str) -> str:
    """What came from elsewhere, without what a terminal would obey."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _no_address(url: str) -> UsageError:
    return UsageError(f"{printable(public(url))}: an address is http://HOST:PORT, with a path if it is not /metrics")


def fetch(where: Endpoint, path: str, limit_s: float) -> Answer:
    """One page, redirects followed. Raises EndpointProblem; each answer has `limit_s` to come whole."""
    for _ in range(MOST_REDIRECTS + 1):
        answer, redirect = _ask(where, path, limit_s)
        if answer:
            return answer
        path = _followed(where, path, redirect)
    raise EndpointProblem(f"{where.at(path)}: it redirects in circles")


def connection_to(where: Endpoint, limit_s: float) -> http.client.HTTPConnection:
    """Not yet connected; each of its waits ends after `limit_s`."""
    if not where.secure:
        return http.client.HTTPConnection(where.host, where.port, timeout=limit_s)
    context = ssl.create_default_context()
    return http.client.HTTPSConnection(where.host, where.port, timeout=limit_s, context=context)


def _paths(parts: SplitResult) -> tuple[str, ...]:
    if parts.path.rstrip("/") in ("", "/v1"):
        return PATHS
    return (parts.path + (f"?{parts.query}" if parts.query else ""),)


def _login(parts: SplitResult, key: str) -> str:
    if key:
        if not (key.isascii() and key.isprintable()):
            raise UsageError("--api-key: a key has no line ends and no letters beyond ASCII (it is not shown here)")
        return f"Bearer {key}"
    if parts.username is None:
        return ""
    plain = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(plain.encode()).decode()


def _followed(where: Endpoint, path: str, redirect: str) -> str:
    """Where a redirect leads on the same server; another one is not asked, for a key may go with it."""
    try:
        to = urlsplit(urljoin(f"{where.shown}{path}", redirect))
        secure, port = to.scheme == "https", to.port
    except ValueError:
        raise EndpointProblem(f"{where.at(path)}: it redirects to what is no address") from None
    if (secure, to.hostname, port or (443 if secure else 80)) != (where.secure, where.host, where.port):
        raise EndpointProblem(
            f"{where.at(path)}: it redirects to {printable(public(to.geturl()))}, another server; "
            "give that address if it is meant"
        )
    return to.path + (f"?{to.query}" if to.query else "")


def _ask(where: Endpoint, path: str, limit_s: float) -> tuple[Answer | None, str]:
    """The page, or where it redirects to."""
    shown, limit = where.at(path), _Limit()
    connection = connection_to(where, limit_s)
    with closing(connection), limit.of(limit_s), _told(shown, limit_s, limit):
        connection.connect()
        limit.socket = connection.sock
        asked_ns = time.monotonic_ns()
        connection.request("GET", path, headers=_headers(where))
        with connection.getresponse() as response:
            limit.answered = True
            if 300 <= response.status < 400:
                return None, response.getheader("Location") or ""
            if response.status != 200:
                raise EndpointProblem(f"{shown}: {why_of_status(response.status)}")
            body = _body(response, shown)
        had_ns, now_ns = time.monotonic_ns(), time.time_ns()
        return Answer(_text(response, body, shown), asked_ns, had_ns, now_ns - (had_ns - asked_ns) // 2), ""


def _headers(where: Endpoint) -> dict[str, str]:
    # plain text, for what engines give as OpenMetrics has names that do not fit their types
    headers = {"Accept": "text/plain; version=0.0.4", "Accept-Encoding": "gzip", "Connection": "close"}
    return {**headers, "Authorization": where.login} if where.login else headers


class _Limit:
    """Closes the `socket` under whoever waits for it once the time is over: each read alone may keep its limit.

    The connection does not do: it gives its socket away to the response.
    """

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.passed = self.answered = False

    @contextmanager
    def of(self, seconds: float) -> Iterator[None]:
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _cut(self) -> None:
        self.passed = True
        if self.socket:
            try:
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended meanwhile


@contextmanager
def _told(shown: str, limit_s: float, limit: _Limit) -> Iterator[None]:
    """Whatever goes wrong below HTTP, in cufall's words."""
    try:
        yield
    except (EndpointProblem, OSError, http.client.HTTPException, ValueError) as error:
        if limit.passed or isinstance(error, TimeoutError):
            raise EndpointProblem(f"{shown}: no whole answer within {limit_s:g} s") from None
        if isinstance(error, EndpointProblem):
            raise
        raise EndpointProblem(f"{shown}: {why_of(error, limit.answered)}") from None


def _body(response: http.client.HTTPResponse, shown: str) -> bytes:
    pieces, length = list[bytes](), 0
    while piece := response.read(_PIECE):
        pieces.append(piece)
        length += len(piece)
        if length > MOST_BYTES:
            raise _too_large(shown)
    if response.length:
        raise EndpointProblem(f"{shown}: {CUT_SHORT}")
    return b"".join(pieces)


def _too_large(shown: str) -> EndpointProblem:
    return EndpointProblem(f"{shown}: the page is larger than {MOST_BYTES >> 20} MiB, so it is not read")


def _text(response: http.client.HTTPResponse, body: bytes, shown: str) -> str:
    if response.getheader("Content-Encoding", "").lower() in ("gzip", "x-gzip"):
        body = _unpacked(body, shown)
    text = body.decode("utf-8", errors="replace")
    if problem := why_no_page(text, response.getheader("Content-Type", "")):
        raise EndpointProblem(f"{shown}: {problem}")
    return text


def _unpacked(body: bytes, shown: str) -> bytes:
    unpacking = zlib.decompressobj(wbits=31)
    try:
        plain = unpacking.decompress(body, MOST_BYTES + 1)
    except zlib.error:
        raise EndpointProblem(f"{shown}: the answer is damaged (gzip)") from None
    if len(plain) > MOST_BYTES:
        raise _too_large(shown)
    if not unpacking.eof:
        raise EndpointProblem(f"{shown}: {CUT_SHORT}")
    return plain
