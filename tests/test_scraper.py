"""Every state of an endpoint over real sockets: one line for each, nothing waits, and it is scraped again when back."""

from __future__ import annotations

import re
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cufall_py import Plan
from cufall_py.engines.fetch import MOST_BYTES, EndpointProblem, endpoint, public
from cufall_py.engines.page import NoMetrics
from cufall_py.engines.scraper import Scraper, scrape
from cufall_py.errors import UsageError
from cufall_py.session import LiveSession
from tests import pages
from tests.endpoints import Talk, answer, begins_then_drips, chunked, drips, packed, resets, sends, serving, stalls
from tests.helpers import lacking
from tests.scripted import script

PAGE = pages.vllm().text
ROOT = Path(__file__).parent.parent


def by_path(**answers: bytes) -> Talk:
    """Another answer for each path, 404 for the others; `_` in a name is `/`."""

    def talk(connection: object, request: str) -> None:
        path = request.split()[1]
        data = answers.get(path.strip("/").replace("/", "_"), answer("", "404 Not Found"))
        connection.sendall(data)  # type: ignore[attr-defined]

    return talk


GOOD = {
    "plain": sends(answer(PAGE)),
    "no length": sends(answer(PAGE, length=None)),
    "chunked": sends(chunked(PAGE[:100], PAGE[100:])),
    "gzip": sends(packed(PAGE)),
    "openmetrics": sends(answer(pages.vllm().openmetrics, kind="application/openmetrics-text; version=1.0.0")),
    "wrong content type": sends(answer(PAGE, kind="text/html")),
    "TensorRT-LLM's path": by_path(prometheus_metrics=answer(PAGE), metrics=answer('[{"iter": 1}]')),
}


@pytest.mark.parametrize("state", GOOD)
def test_a_page_is_read_however_it_comes(state: str) -> None:
    with serving(GOOD[state]) as server:
        assert scrape(server.url).number("generation_tokens") == 500


def test_a_redirect_on_the_same_server_is_followed() -> None:
    def talk(connection: object, request: str) -> None:
        there = request.startswith("GET /metrics/ ")
        data = answer(PAGE) if there else answer("", "307 Temporary Redirect", Location="/metrics/")
        connection.sendall(data)  # type: ignore[attr-defined]

    with serving(talk) as server:
        assert scrape(server.url).number("running") == 4


def test_ipv6() -> None:
    with serving(answer(PAGE), host="::1") as server:
        assert scrape(server.url).number("running") == 4


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_an_address_may_be_what_clients_use(path: str) -> None:
    with serving(by_path(metrics=answer(PAGE))) as server:
        assert scrape(f"127.0.0.1:{server.port}{path}").number("running") == 4


BAD: dict[str, tuple[Talk, str]] = {
    "404": (
        sends(answer("no", "404 Not Found")),
        "there is no such page (HTTP 404); SGLang has it with --enable-metrics",
    ),
    "401": (sends(answer("no", "401 Unauthorized")), "it wants a key (HTTP 401)"),
    "500": (sends(answer("no", "500 Oops")), "the server answers HTTP 500"),
    "503": (sends(answer("", "503 Service Unavailable")), "the server answers HTTP 503"),
    "empty": (sends(answer("")), "the page is empty; is it vLLM with --disable-log-stats?"),
    "HTML": (sends(answer("<!doctype html><p>hi", kind="text/html")), "this is a web page, not metrics"),
    "JSON": (sends(answer('{"a": 1}\n', kind="application/json")), "this is JSON, not metrics"),
    "JSON deeper than any": (sends(answer("[" * 100_000)), "this is JSON, not metrics"),
    "half of it": (sends(answer(PAGE[: len(PAGE) // 2], length=len(PAGE))), "the answer was cut short"),
    "half without a length": (sends(answer(PAGE.rstrip()[:-1], length=None)), "the answer was cut short"),
    "half in chunks": (sends(chunked(PAGE, ended=False)), "the answer was cut short"),
    "length too small": (sends(answer(PAGE, length=len(PAGE) // 2)), "the answer was cut short"),
    "openmetrics without its end": (
        sends(answer(PAGE, kind="application/openmetrics-text; version=1.0.0")),
        "the answer was cut short",
    ),
    "reset": (resets(answer(PAGE[:200], length=len(PAGE))), "the answer was cut short"),
    "closed": (sends(b""), "the connection was closed without an answer"),
    "not HTTP": (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), "what answers there speaks no HTTP"),
    "broken gzip": (sends(answer(PAGE, Content_Encoding="gzip")), "the answer is damaged (gzip)"),
    "huge": (
        sends(answer("x" * 80 + "\n", length=None) + (b"x" * 79 + b"\n") * (MOST_BYTES // 80)),
        "larger than 16 MiB",
    ),
    "huge once unpacked": (sends(packed("x 1\n" * (MOST_BYTES // 4 + 1))), "larger than 16 MiB"),
    "redirect in circles": (sends(answer("", "302 Found", Location="/metrics")), "it redirects in circles"),
    "redirect elsewhere": (
        sends(answer("", "302 Found", Location="http://u:secret@example.org/metrics")),
        "it redirects to http://example.org/metrics, another server",
    ),
    "redirect to nowhere": (
        sends(answer("", "302 Found", Location="http://h:99999/metrics")),
        "it redirects to what is no address",
    ),
    "damaged": (sends(answer('vllm:num_requests_running{engine="0} 3\n')), "the page cannot be understood as metrics"),
    "stalls": (stalls(5), "no whole answer within"),
    "drips": (drips(answer(PAGE), 0.05), "no whole answer within"),
    "drips its body": (begins_then_drips(answer(PAGE)), "no whole answer within"),
    "drips its head": (drips(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000, 0.05), "no whole answer within"),
}


def problem_of(url: str, limit_s: float = 2.0) -> str:
    with pytest.raises((EndpointProblem, NoMetrics)) as raised:
        scrape(url, limit_s=limit_s)
    return str(raised.value)


@pytest.mark.parametrize("state", BAD)
def test_each_state_is_one_line_that_names_the_endpoint(state: str) -> None:
    talk, expected = BAD[state]
    slow = expected.startswith("no whole")
    with serving(talk) as server:
        told = problem_of(f"{server.url}/metrics", 0.3 if slow else 5.0)
        assert told.startswith(f"{server.url}/metrics: ") and expected in told
        assert "\n" not in told and "secret" not in told


def test_the_time_limit_is_one_of_the_whole_answer() -> None:
    with serving(drips(answer(PAGE), 0.02)) as server:
        begun = time.monotonic()
        problem_of(f"{server.url}/metrics", 0.3)
        assert time.monotonic() - begun < 3  # the page itself would take half a minute


def test_nothing_listens_and_no_such_host() -> None:
    with serving(b"") as server:
        pass
    assert "nothing listens there" in problem_of(server.url)
    assert "there is no such host" in problem_of("http://nothing.invalid:8000", 20)


def test_a_page_of_another_program_is_told_by_what_it_has() -> None:
    with serving(answer("node_load1 3\n")) as server:
        assert "with no engine's metrics; seen: node_load1" in problem_of(f"{server.url}/metrics")


@pytest.mark.parametrize(
    "url", ["", "http://", "ftp://host:1", "http://host:99999", "http://host:port", "http://[::1:80", "http://host:0"]
)
def test_what_is_no_address_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError):
        Scraper(url)


def test_a_key_is_sent_and_never_told() -> None:
    with serving(answer("no", "401 Unauthorized")) as server:
        with pytest.raises(EndpointProblem) as raised:
            scrape(server.url, key="secret")
        address = server.url.replace("://", "://me:secret@")
        assert "secret" not in str(raised.value) + problem_of(address)
        assert "Authorization: Bearer secret" in server.requests[0]
        assert "Authorization: Basic bWU6c2VjcmV0" in server.requests[-1]


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(answer(PAGE)) as server:
        assert scrape(server.url).number("running") == 4


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for localhost that signs itself, in one file."""
    where = tmp_path_factory.mktemp("tls") / "both.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    try:
        made = subprocess.run([*words.split(), "-keyout", "-", "-out", "-"], capture_output=True, check=True)
    except FileNotFoundError:
        lacking("openssl makes the certificate: apt-get install openssl")
    where.write_bytes(made.stdout)
    return where


def speaking_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_certificate_that_signs_itself_must_be_named(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(answer(PAGE), tls=speaking_tls(certificate)) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        assert re.search(r"certificate is not trusted here \(self.signed.*SSL_CERT_FILE", problem_of(url))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert scrape(url, limit_s=5).number("running") == 4


def test_tls_and_none_are_told_apart(certificate: Path) -> None:
    with serving(answer(PAGE)) as plain:
        assert "it speaks no TLS; try http://" in problem_of(plain.url.replace("http:", "https:"))
    with serving(answer(PAGE), tls=speaking_tls(certificate)) as server:
        assert "does it want https:// ?" in problem_of(server.url.replace("https:", "http:"))


# The thread


def eventually(holds: Callable[[], object], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return bool(holds())


def test_readings_keep_coming_each_later_than_the_last_with_its_error() -> None:
    with serving(answer(PAGE)) as server:
        scraper = Scraper(server.url, period_s=0.02, limit_s=5)
        begun_ns = time.time_ns()
        scraper.start()
        found = []
        assert eventually(lambda: found.extend(scraper.take()) or len(found) >= 3)
        scraper.close()
        times = [reading.when.monotonic_ns for reading in found]
        assert times == sorted(set(times))
        assert all(begun_ns < reading.when.at_ns < time.time_ns() for reading in found)
        assert all(0 < reading.when.error_ns < 5e9 for reading in found)
        assert list(scraper.unsaid()) == []


def test_a_failure_is_told_once_and_so_is_its_end() -> None:
    with serving(answer("no", "503 Service Unavailable")) as server:
        scraper = Scraper(f"{server.url}/metrics", period_s=0.01, limit_s=5)
        scraper.start()
        assert eventually(lambda: len(server.requests) >= 4)
        assert scraper.newest is None
        server.talk = sends(answer(PAGE))
        assert eventually(lambda: scraper.newest)
        server.talk = sends(answer("no", "503 Service Unavailable"))
        assert eventually(lambda: scraper.newest is None)
        scraper.close()
        assert list(scraper.unsaid()) == [
            f"{server.url}/metrics: the server answers HTTP 503",
            f"{server.url}: the engine's metrics come again",
        ]


def test_after_steady_answers_a_failure_is_news_again() -> None:
    with serving(answer("no", "503 Service Unavailable")) as server:
        scraper = Scraper(f"{server.url}/metrics", period_s=0.005, limit_s=5)
        scraper.start()
        assert eventually(lambda: server.requests)
        server.talk = sends(answer(PAGE))
        assert eventually(lambda: len(scraper._waiting) > 12)
        server.talk = sends(answer("no", "503 Service Unavailable"))
        lines = list[str]()
        assert eventually(lambda: lines.extend(scraper.unsaid()) or len(lines) == 3)
        scraper.close()
        assert lines[0] == lines[2]


def test_an_endpoint_that_fails_is_asked_less_and_less_often() -> None:
    with serving(answer("no", "503 Service Unavailable")) as server:
        scraper = Scraper(f"{server.url}/metrics", period_s=0.02, limit_s=5)
        scraper.start()
        time.sleep(1.0)
        scraper.close()
        # after 20, 60, 140, 300, 620 ms; once a period would be fifty
        assert 2 <= len(server.requests) <= 7


def test_a_reading_that_nothing_renews_does_not_look_like_now() -> None:
    with serving(answer(PAGE)) as server:
        scraper = Scraper(server.url, period_s=0.1, limit_s=2)
        scraper.start()
        assert eventually(lambda: scraper.newest)
        scraper.close()
        assert eventually(lambda: scraper.newest is None)


def test_a_server_that_hangs_holds_nobody_up() -> None:
    with serving(stalls(30)) as server:
        scraper = Scraper(server.url, limit_s=20)
        scraper.start()
        assert eventually(lambda: server.requests)
        begun = time.monotonic()
        assert (scraper.newest, scraper.take(), list(scraper.unsaid())) == (None, [], [])
        scraper.close()
        assert time.monotonic() - begun < 10  # of the twenty seconds that the scrape may take


def test_gpus_go_on_being_sampled_beside_a_server_that_hangs(tmp_path: Path) -> None:
    plan = Plan(source=script(tmp_path), frame_us=50_000, decode_us=50_000)
    with serving(stalls(30)) as server, LiveSession(plan) as session:
        scraper = Scraper(server.url, limit_s=20)
        scraper.start()
        frames = list(session.frames(2.0))
        scraper.close()
    assert server.requests
    assert [float(frame.coverage.min()) for frame in frames] == pytest.approx([1.0] * len(frames))
    assert len(frames) >= 30


def test_a_note_about_the_page_is_told_once() -> None:
    with serving(answer(pages.triton().text)) as server:
        scraper = Scraper(server.url, period_s=0.01, limit_s=5)
        scraper.start()
        assert eventually(lambda: len(scraper._waiting) > 15)
        scraper.close()
        (line,) = scraper.unsaid()
        assert line.startswith(f"{server.url}: the server answers, but with no known token counter; seen: nv_trt_llm_")


def test_a_scraper_that_was_not_started_can_be_closed() -> None:
    Scraper("localhost:8000").close()


def test_the_example_of_the_docs_runs_beside_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    served = pages.vllm(running=8)

    def talk(connection: object, _: str) -> None:
        connection.sendall(answer(served.text))  # type: ignore[attr-defined]
        served.count("vllm:generation_tokens_total", 100, model_name="m", engine="0")

    text = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    with serving(talk) as server:
        own = code.replace("http://127.0.0.1:8000", server.url).replace("monotonic() + 10", "monotonic() + 4.2")
        assert own.count(server.url) == own.count("4.2") == 1
        exec(own, {})
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) >= 2
    for line in lines:
        rate = re.fullmatch(r"vLLM 8.0 \(([\d.]+), 'vllm:generation_tokens_total'\)", line)
        assert rate and 20 < float(rate[1]) < 200
    assert last == str(["unsure", *["decode"] * (len(lines) - 2), "unsure"])


def test_every_state_is_in_the_troubleshooting_page() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    for _, told in BAD.values():
        fixed = max(re.split(r"http://.*|\(HTTP.*|\d+", told.partition("; ")[0]), key=len).strip()
        assert fixed in page, fixed


# What must not be told


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://me:secret@h:1", "http://h:1"),
        ("me:secret@h:1/v1", "h:1/v1"),
        ("https://h/metrics?token=secret", "https://h/metrics"),
        ("http://me:se/secret@h:1/metrics", "http://h:1/metrics"),
        ("http://h:1/a@b", "http://b"),  # rather an address too few than a password too many
        ("http://me:secret@h:1/a@b", "http://h:1/a@b"),
        ("http://[::1]:8000/metrics", "http://[::1]:8000/metrics"),
    ],
)
def test_an_address_is_told_without_its_secrets(given: str, shown: str) -> None:
    assert public(given) == shown


@pytest.mark.parametrize(
    "url", ["ftp://me:secret@h:1", "http://me:secret@h:99999", "http://me:secret@[::1", "http://u:secret/@h"]
)
def test_what_is_no_address_is_told_without_its_secrets(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        endpoint(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, ".", "h\0", "h\x1b[31m"])
def test_a_host_that_no_name_server_takes_is_no_address(host: str) -> None:
    with pytest.raises(UsageError, match="an address is http://HOST:PORT"):
        endpoint(f"http://{host}:80")


@pytest.mark.parametrize("key", ["secret\n", "secret\r", "sécret", "se\0cret"])
def test_a_key_that_no_header_takes_is_refused_and_not_told(key: str) -> None:
    with pytest.raises(UsageError, match="a key has no line ends") as raised:
        Scraper("http://h:1", key=key)
    assert "cret" not in str(raised.value)


def test_a_query_is_sent_and_never_told() -> None:
    with serving(answer("no", "401 Unauthorized")) as server:
        assert problem_of(f"{server.url}/metrics?token=secret").startswith(f"{server.url}/metrics: it wants a key")
        assert server.requests[0].startswith("GET /metrics?token=secret ")
