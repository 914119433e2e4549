"""The load: streamed completions over real sockets, timed by the client, and each way in which a server refuses it."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from cufall_py.engines.drive import MOST_LINE, DriveProblem, Work, drive, levels
from cufall_py.engines.driven import Asked, Driven
from cufall_py.views.driven import notes
from tests.endpoints import Talk, serving as page_server
from tests.scripted import soon
from tests.servers import serving

DONE = b"data: [DONE]\n\n"


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def in_chunks(body: bytes, ended: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n" % (len(body), body) + (b"0\r\n\r\n" if ended else b"")


TOKEN = event(choices=[{"text": "a"}])
MODELS = json.dumps({"data": [{"id": "m"}]}).encode()


def test_what_was_asked_for_comes(tmp_path: Path) -> None:
    with serving(tmp_path, "--decode-ms", "5") as server:
        found = drive(server.url, 3, Work(prompt_tokens=20, output_tokens=10, requests=7))
        # a step is written down after its tokens have been given
        assert soon(lambda: sum(step["firsts"] + step["decode"] for step in server.steps()) == 70)
        steps = server.steps()
    assert [(one.made, one.prompt, len(one.came_s)) for one in found.asked] == [(10, 20, 10)] * 7
    assert (found.tokens, found.problems) == (70, ())
    assert max(step["running"] for step in steps) == 3
    assert all(one.tpot_s > 0.004 for one in found.asked)


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    stop = threading.Event()
    with serving(tmp_path) as server:
        threading.Timer(0.5, stop.set).start()
        found = drive(server.url, 2, Work(4, 4, requests=1_000_000), stop=stop)
    assert 2 <= len(found.asked) < 100


def test_figures_are_of_the_clients_own_clock() -> None:
    one = Asked(sent_s=0.0, came_s=(1.0, 2.0, 3.0), made=6, prompt=4)  # two tokens a piece
    found = Driven(1, 0.0, 4.0, (1.0, 3.0), (one,), ())
    assert (one.ttft_s, one.tpot_s) == (1.0, 0.4)
    assert (found.tokens_per_s, found.full_tokens_per_s) == (1.5, 2.0)  # two pieces of two in the two seconds
    assert found.percentile_s("ttft_s", 50) == 1.0
    assert found.between(3.0, 3.0) != found.between(3.0, 3.0)  # not a number


def says(models: bytes, completions: bytes) -> Talk:
    def talk(connection: socket.socket, request: str) -> None:
        connection.sendall(models if request.startswith("GET") else completions)

    return talk


def reply(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status.encode(), len(body), body)


@pytest.mark.parametrize(
    ("models", "completions", "told"),
    [
        (reply(b"{}"), b"", "names no model; name it with --model-name"),
        (reply(b"no", "404 Not Found"), b"", "the server refuses it, HTTP 404: no"),
        (reply(MODELS), reply(b'{"error":\n "too \x1b long"}', "400 Bad"), 'HTTP 400: {"error": "too long"}'),
        (reply(MODELS), reply(b"data: {\n"), "a piece of the stream is none of OpenAI's kind"),
        (reply(MODELS), reply(b"data: [1]\n"), "a piece of the stream is none of OpenAI's kind"),
        (reply(MODELS), reply(b"data: " + b"[" * 100_000), "a piece of the stream is none of OpenAI's kind"),
        (reply(MODELS), reply(b"data: " + b"1" * (MOST_LINE + 1)), "a piece of the stream is none of OpenAI's kind"),
        (reply(MODELS), reply(b"data: [DONE]\n"), "an answer without a token (no type); does it stream?"),
        (reply(MODELS), reply(b'{"choices": [{"text": "all at once"}]}'), "does it stream?"),
        (reply(MODELS), reply(TOKEN * 3), "the stream ended in the middle (nothing told its end)"),
        (reply(MODELS), in_chunks(TOKEN * 3, ended=False), "the stream ended in the middle"),
        (reply(MODELS), reply(TOKEN + event(error={"message": "no \x1b memory"}) + DONE), "gave up: {"),
        (reply(MODELS), b"", "no answer"),
        (reply(MODELS), reply(b"", "307 Elsewhere"), "HTTP 307: (no reason given)"),
    ],
)
def test_a_server_that_does_not_take_it_is_told(models: bytes, completions: bytes, told: str) -> None:
    with page_server(says(models, completions)) as server, pytest.raises(DriveProblem) as failed:
        drive(server.url, 2)
    assert told in str(failed.value) and "\n" not in str(failed.value)


def test_a_key_goes_with_each_request_to_the_server_that_was_named() -> None:
    with page_server(says(reply(MODELS), reply(b"", "401 No"))) as server, pytest.raises(DriveProblem):
        drive(server.url, 1, key="secret")
    assert all("Authorization: Bearer secret" in request for request in server.requests)
    assert len(server.requests) == 2


def test_a_connection_that_the_server_closed_meanwhile_is_made_anew() -> None:
    whole = in_chunks(TOKEN * 4 + event(choices=[], usage={"completion_tokens": 4, "prompt_tokens": 3}) + DONE)
    with page_server(says(reply(MODELS), whole)) as server:  # closes after each answer, and does not say so
        found = drive(server.url, 2, Work(3, 4, requests=6))
    assert ([(one.made, one.prompt) for one in found.asked], found.problems) == ([(4, 3)] * 6, ())


@pytest.mark.parametrize("usage", [None, {}, [], {"completion_tokens": None}, {"completion_tokens": -4}])
def test_pieces_are_counted_where_no_number_of_tokens_is_told_and_that_is_said(usage: object) -> None:
    whole = reply(TOKEN * 4 + event(choices=[], usage=usage) + DONE)
    with page_server(says(reply(MODELS), whole)) as server:
        found = drive(server.url, 1, Work(3, 4, requests=2))
    assert (found.tokens, found.by_pieces) == (8, True)
    assert [*notes([found])] == [
        "the server does not say how many tokens it made: each piece of its streams counts as one"
    ]


@pytest.mark.parametrize("text", ["", "0", "1,", "1;2", "-4", "5000"])
def test_numbers_at_once_are_numbers(text: str) -> None:
    with pytest.raises(ValueError):
        levels(text)


def test_numbers_at_once() -> None:
    assert levels("1,4,16") == [1, 4, 16]
