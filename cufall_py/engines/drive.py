"""Load for an OpenAI-compatible server: so many streamed completions at once, timed by the client's own clock.

Only the address that was given is ever asked: redirects are not followed, proxies of the environment are not used.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from cufall_py.errors import CufallError

from .driven import Asked, Driven
from .fetch import Endpoint, connection_to, endpoint, printable

LIMIT_S = 120.0
"""How long one piece of an answer may take."""
TOKENS = range(100, 1100)
"""Prompts are of these token numbers, which any vocabulary has; at random, so that no prefix is found in a cache."""
MOST_SHOWN = 200
MOST_LINE = 1 << 20
"""A line of a stream with more bytes is none."""
MOST_TOKENS = 1 << 31
COMPLETIONS = "/v1/completions"
CUT = "the stream ended in the middle"
END: dict[str, Any] = {}
"""The event that ends a stream."""


class DriveProblem(CufallError):
    """The server does not take the load: its text says why."""


@dataclass(frozen=True)
class Work:
    """What each request asks for; `requests` 0: `rounds` for each that runs at once. `model` empty: the server's
    first."""

    prompt_tokens: int = 512
    output_tokens: int = 128
    requests: int = 0
    rounds: int = 4
    model: str = ""


def drive(
    url: str, concurrency: int, work: Work = Work(), key: str = "", stop: threading.Event | None = None
) -> Driven:
    """Send the work and wait for its end, or until `stop` is set. Raises UsageError for what is no address,
    DriveProblem if no request was answered."""
    where = endpoint(url, key)
    model = work.model or first_model(where)
    numbers = iter(range(work.requests or work.rounds * concurrency))
    shared = _Shared(numbers, stop or threading.Event())
    threads = [
        threading.Thread(target=_work, args=(where, work, model, shared), name=f"cufall-drive-{k}", daemon=True)
        for k in range(concurrency)
    ]
    begun_s = time.monotonic()
    _start(threads, shared)
    for thread in threads:
        thread.join()
    ended_s = time.monotonic()
    if not shared.asked:
        raise DriveProblem(shared.problems[0] if shared.problems else f"{where.shown}: nothing was sent")
    full = (max(shared.first_s, default=0.0), min(shared.idle_s)) if len(shared.first_s) == concurrency else (0.0, 0.0)
    return Driven(concurrency, begun_s, ended_s, full, tuple(shared.asked), tuple(shared.problems))


def _start(threads: list[threading.Thread], shared: _Shared) -> None:
    """Those that can be; the others are a problem, and are taken out."""
    for k, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError as error:
            shared.problems.append(f"{len(threads)} requests at once are too many for this machine: {error}")
            del threads[k:]


def first_model(where: Endpoint) -> str:
    """What the server calls the first of its models. Raises DriveProblem."""
    with closing(connection_to(where, LIMIT_S)) as connection:
        answer = _answer(where, connection, "GET", "/v1/models", None)
        try:
            return str(json.loads(answer.read(MOST_LINE))["data"][0]["id"])
        except (ValueError, LookupError, TypeError, RecursionError, OSError, http.client.HTTPException):
            raise DriveProblem(f"{where.shown}/v1/models names no model; name it with --model-name") from None


@dataclass
class _Shared:
    """What the threads take from, and put what came into."""

    numbers: Iterator[int]
    stop: threading.Event
    asked: list[Asked] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    idle_s: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> int | None:
        with self.lock:
            return None if self.stop.is_set() or self.problems else next(self.numbers, None)


def _work(where: Endpoint, work: Work, model: str, shared: _Shared) -> None:
    """One after the other over one connection, until there is no more or one fails."""
    with closing(connection_to(where, LIMIT_S)) as connection:
        for rounds in count():
            number = shared.next()
            if number is None:
                break
            try:
                asked = _ask(where, connection, _body(work, model, number))
            except DriveProblem as problem:
                shared.problems.append(str(problem))
                break
            shared.asked.append(asked)
            if not rounds:
                shared.first_s.append(asked.came_s[0])
    shared.idle_s.append(time.monotonic())


def _body(work: Work, model: str, number: int) -> dict[str, Any]:
    prompt = random.Random(number).choices(TOKENS, k=work.prompt_tokens)
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": work.output_tokens,
        "min_tokens": work.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _ask(where: Endpoint, connection: http.client.HTTPConnection, body: dict[str, Any]) -> Asked:
    sent_s = time.monotonic()
    answer = _answer(where, connection, "POST", COMPLETIONS, body)
    came, made, prompt, ended = list[float](), 0, len(body["prompt"]), False
    try:
        for event in _events(answer):
            if event.get("error"):
                raise DriveProblem(
                    f"{where.shown}{COMPLETIONS}: the server gave up: {_line(json.dumps(event['error']))}"
                )
            made = _number(event.get("usage"), "completion_tokens") or made
            prompt = _number(event.get("usage"), "prompt_tokens") or prompt
            if choices := event.get("choices"):
                came.append(time.monotonic())
                ended |= bool(choices[0].get("finish_reason"))
            ended |= event is END
    except (OSError, http.client.HTTPException) as error:
        raise DriveProblem(f"{where.shown}{COMPLETIONS}: {CUT} ({_reason(error)})") from None
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        raise DriveProblem(f"{where.shown}{COMPLETIONS}: a piece of the stream is none of OpenAI's kind") from None
    if not came:
        kind = printable(answer.getheader("Content-Type") or "no type")
        raise DriveProblem(f"{where.shown}{COMPLETIONS}: an answer without a token ({kind}); does it stream?")
    if not ended:
        raise DriveProblem(f"{where.shown}{COMPLETIONS}: {CUT} (nothing told its end)")
    return Asked(sent_s, tuple(came), made or len(came), prompt, told=bool(made))


def _number(usage: Any, name: str) -> int:
    """Of what a server says that it used; 0 where it says nothing that can be."""
    found = usage.get(name) if isinstance(usage, dict) else None
    return found if isinstance(found, int) and 0 < found <= MOST_TOKENS else 0


def _events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Server-sent events up to the end of the body, so that the connection can be used again; of its last line none.

    Raises ValueError for a line that is none.
    """
    while line := answer.readline(MOST_LINE):
        if len(line) == MOST_LINE:
            raise ValueError("a line without end")
        if line.startswith(b"data:"):
            yield END if (text := line[5:].strip()) == b"[DONE]" else json.loads(text)


def _answer(
    where: Endpoint, connection: http.client.HTTPConnection, method: str, path: str, body: dict[str, Any] | None
) -> http.client.HTTPResponse:
    headers = {"Content-Type": "application/json", **({"Authorization": where.login} if where.login else {})}
    data = json.dumps(body) if body else None
    try:
        answer = _asked(connection, method, path, data, headers)
        if answer.status == 200:
            return answer
        told = answer.read(MOST_SHOWN).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise DriveProblem(f"{where.shown}{path}: no answer ({_reason(error)})") from None
    raise DriveProblem(f"{where.shown}{path}: the server refuses it, HTTP {answer.status}: {_line(told)}")


def _asked(
    connection: http.client.HTTPConnection, method: str, path: str, data: str | None, headers: dict[str, str]
) -> http.client.HTTPResponse:
    """Once more over a new connection where the old one was closed since: servers keep none for long."""
    kept = connection.sock is not None
    try:
        connection.request(method, path, body=data, headers=headers)
        return connection.getresponse()
    except ConnectionError:
        connection.close()
        if not kept:
            raise
    connection.request(method, path, body=data, headers=headers)
    return connection.getresponse()


def _reason(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "the connection was closed"
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(told or type(error).__name__)


def _line(text: str) -> str:
    shown = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return shown[:MOST_SHOWN] or "(no reason given)"


def levels(text: str) -> Sequence[int]:
    """`1,4,16,64` as numbers. Raises ValueError for what is none."""
    found = [int(word) for word in text.split(",")]
    if not all(0 < number <= 4096 for number in found):
        raise ValueError(text)
    return found
