"""`cufall attach` beside a server of its own, over real sockets, on scripted GPUs."""

from __future__ import annotations

import base64
import csv
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cufall_py import Recording, attach
from cufall_py.analysis.phases import PHASES
from cufall_py.attaching import with_gpus
from cufall_py.cli.attach_view import figures
from cufall_py.engines.page import read
from cufall_py.engines.rates import Rates
from cufall_py.engines.servers import Server, at, servers
from cufall_py.errors import CufallError, UsageError
from cufall_py.followed import Now
from cufall_py.plan import Plan
from cufall_py.requirements import parse
from cufall_py.served import Log, frame_table, logs, phase_shares
from cufall_py.server_gpus import gpus_of
from tests import pages
from tests.endpoints import answer, serving as page_server
from tests.scripted import command, cufall, environment, late, script, soon, start
from tests.servers import Running, decode_and_rest, prefill_and_rest, serving, true_shares, wrong_and_unsure
from tests.terminals import Terminal
from tests.test_schemas import fits

QUICK = ("--decode-us", "50000")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def attached(server: Running, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Driven by one and by four at once; its recording is `run.cufall` in the folder that it names last."""
    folder = tmp_path_factory.mktemp("attached")
    return cufall(
        *("attach", server.url, "--source", script(folder, gpus=2), *QUICK),
        *("--drive", "1,4", "--requests", "8", "--prompt-tokens", "100", "--output-tokens", "60"),
        *("--record", str(folder / "run.cufall"), "--json", "--svg", str(folder / "plot.svg")),
        *("--require", "tokens_per_s[running=1-4] > 50", "--require", "tensor.mean[running=1-4,gpu=1] >= 49%"),
        *("--require", "generation_tokens_per_s[running=99] > 1", "--result", str(folder / "result.json")),
    )


def test_the_document_is_what_its_schema_says(attached: subprocess.CompletedProcess[str]) -> None:
    fits("attach", attached.stdout)
    path = str(folder_of(attached) / "run.cufall")
    fits("report", cufall("report", path, "--json").stdout)
    fits("result", (folder_of(attached) / "result.json").read_text())


def folder_of(attached: subprocess.CompletedProcess[str]) -> Path:
    words = attached.args
    return Path(words[words.index("--record") + 1]).parent


def test_what_it_finds_is_one_document_with_engine_and_metric_of_each_figure(
    attached: subprocess.CompletedProcess[str], server: Running
) -> None:
    found = json.loads(attached.stdout)
    (one,) = found["servers"]
    assert (one["url"], one["engine"], one["gpus"]) == (server.url, "vLLM", [0, 1])
    made = one["generation_tokens_per_s"]
    assert (made["engine"], made["metric"]) == ("vLLM", "vllm:generation_tokens_total")
    assert one["running"]["metric"] == "vllm:num_requests_running"
    assert one["cache_usage"] is None  # this server does not tell it


def test_the_servers_tokens_are_those_that_the_client_got(attached: subprocess.CompletedProcess[str]) -> None:
    found = json.loads(attached.stdout)
    assert [load["tokens"] for load in found["load"]] == [8 * 60, 8 * 60]
    tokens = sum(interval.rates["generation_tokens"].amount for interval in log_of(attached).intervals)
    assert tokens == 2 * 8 * 60


def log_of(attached: subprocess.CompletedProcess[str]) -> Log:
    (log,) = logs(folder_of(attached) / "run.cufall")
    return log


def test_by_running_requests_gpus_and_tokens_stand_side_by_side(attached: subprocess.CompletedProcess[str]) -> None:
    (one,) = json.loads(attached.stdout)["servers"]
    rows = {row["least"]: row for row in one["by_running"]}
    assert rows[1]["metrics"]["tensor"]["mean"] == pytest.approx(0.5)
    assert 50 < rows[1]["generation_tokens_per_s"]["mean"] < 100  # a step takes 10 ms and more
    assert rows[1]["itl_s"]["mean"] > 0.01


def test_phases_add_up_to_the_time_there_is(attached: subprocess.CompletedProcess[str]) -> None:
    (one,) = json.loads(attached.stdout)["servers"]
    phases = one["by_phase"]
    assert set(phases) == {"prefill", "decode", "mixed", "idle", "unsure"}
    recorded = Recording(folder_of(attached) / "run.cufall").outline()
    whole_s = (recorded.end_ns - recorded.start_ns) / 1e9
    assert sum(phase["seconds"] for phase in phases.values()) == pytest.approx(whole_s, abs=0.25)
    assert phases["decode"]["seconds"] + phases["mixed"]["seconds"] > 3


def test_requirements_are_judged_of_servers_and_of_gpus(attached: subprocess.CompletedProcess[str]) -> None:
    found = json.loads(attached.stdout)["requirements"]
    assert [(j["outcome"], j["gpu"], bool(j["server"])) for j in found] == [
        ("held", 0, True),
        ("held", 1, False),
        ("not measurable", 0, True),
    ]
    assert "0 intervals between scrapes, at least 3 are needed" in found[2]["why"]
    assert attached.returncode == 4
    told = json.loads((folder_of(attached) / "result.json").read_text())
    assert (told["exit_code"], len(told["requirements"])) == (4, 3)


def test_gpus_that_start_one_after_the_other_hold_a_coverage(server: Running, tmp_path: Path) -> None:
    source, out = script(tmp_path, gpus=4, faults=late(4, last_s=1.5)), str(tmp_path / "run.cufall")
    words = ("attach", server.url, "--source", source, *QUICK, "--duration-sec", "2", "--record", out, "--json")
    ended = cufall(*words, "--require", "coverage >= 99%")
    found = json.loads(ended.stdout)["requirements"]
    assert [(j["outcome"], j["region"]) for j in found] == [("held", "duration")] * 4, ended.stderr
    (duration,) = Recording(out).regions()["duration"]
    assert duration.end_ns - duration.start_ns == 2_000_000_000
    assert ended.returncode == 0


def test_each_load_is_a_region_of_the_recording(attached: subprocess.CompletedProcess[str]) -> None:
    regions = Recording(folder_of(attached) / "run.cufall").regions()
    assert {*regions} == {"drive-1", "drive-4"}


def test_a_report_of_the_recording_has_the_same_tables_and_requirements(
    attached: subprocess.CompletedProcess[str],
) -> None:
    path = str(folder_of(attached) / "run.cufall")
    ended = cufall("report", path, "--require", "tokens_per_s[drive-1] > 20")
    assert "by running requests" in ended.stdout and "by phase" in ended.stdout
    assert "vllm:generation_tokens_total" in ended.stdout
    assert ended.returncode == 0, ended.stderr
    (one,) = json.loads(cufall("report", path, "--json").stdout)["recordings"]
    assert one["servers"] == json.loads(attached.stdout)["servers"]


@pytest.mark.parametrize("part", ["--from=1", "--to=2", "--region=drive-1"])
def test_a_server_is_not_judged_on_a_part_that_its_figures_are_not_of(
    attached: subprocess.CompletedProcess[str], part: str
) -> None:
    ended = cufall("report", str(folder_of(attached) / "run.cufall"), part, "--require", "tokens_per_s > 20")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "in brackets, on a region, not on a part" in ended.stderr


def test_a_recording_without_a_server_cannot_be_asked_for_its_figures(tmp_path: Path) -> None:
    ended = cufall("record", "--source", script(tmp_path), "--duration-sec", "0.3", "-o", str(tmp_path / "a.cufall"))
    assert ended.returncode == 0
    ended = cufall("report", str(tmp_path / "a.cufall"), "--require", "tensor.mean[group=decode] > 1%")
    assert ended.returncode == 2
    assert "no group decode; --group names one, and cufall attach knows its servers" in ended.stderr
    for text in ("tokens_per_s > 1", "tensor.mean[running=16] > 1%"):
        ended = cufall("report", str(tmp_path / "a.cufall"), "--require", text)
        assert ended.returncode == 2
        assert "this needs an inference server's own figures; cufall attach records them" in ended.stderr


def test_the_plot_is_a_picture(attached: subprocess.CompletedProcess[str]) -> None:
    text = (folder_of(attached) / "plot.svg").read_text()
    assert text.startswith("<svg") and "generation tokens/s" in text and text.count("<circle") >= 2


def test_lines_where_there_is_no_terminal_and_tables_at_the_end(server: Running, tmp_path: Path) -> None:
    words = ("attach", "--port", str(server.port), "--source", script(tmp_path), *QUICK, "--duration-sec", "3")
    ended = cufall(*words)
    lines = [line for line in ended.stdout.splitlines() if re.match(r"\d\d:\d\d:\d\d", line)]
    assert len(lines) in (2, 3, 4)
    assert "vLLM  running 0  waiting 0" in lines[-1] and "tensor 50%" in lines[-1]
    assert f"{server.url}: vLLM" in ended.stdout
    assert ended.returncode == 0, ended.stderr


def test_a_terminal_shows_servers_and_their_gpus(server: Running, tmp_path: Path) -> None:
    source = script(tmp_path, gpus=2)
    with Terminal(command("attach", server.url, "--source", source, *QUICK), 100, 24) as terminal:
        terminal.until(lambda text: re.search(r"^g1  tensor   50% █{6} ", text, re.MULTILINE))
        text = terminal.sees("vLLM  running 0  waiting 0  gen 0 tok/s")
        assert server.url in text and "q quit" in text
        terminal.press("q")
        assert terminal.ends() == 0
        assert "by phase" in terminal.said


def test_a_role_that_labels_tell_is_shown(tmp_path: Path) -> None:
    with page_server(answer(pages.sglang(role="decode").text)) as server:
        words = ("attach", server.url, "--source", script(tmp_path), *QUICK)
        with Terminal(command(*words), 100, 24) as terminal:
            terminal.sees(f"{server.url} (decode)")
            terminal.press("q")
            assert terminal.ends() == 0


def test_csv_has_frames_and_what_the_server_did(server: Running, tmp_path: Path) -> None:
    words = ("attach", "--pid", str(server.pid), "--source", script(tmp_path), *QUICK, "--duration-sec", "3")
    ended = cufall(*words, "--csv", "-")
    rows = list(csv.DictReader(ended.stdout.splitlines()))
    assert {row["gpu"] for row in rows} == {"0", ""}
    figures = {row["metric"]: row for row in rows if not row["gpu"]}
    assert float(figures["generation_tokens_per_s"]["mean"]) == 0
    assert figures["generation_tokens_per_s"]["counters"] == "vllm:generation_tokens_total"
    assert figures["running"]["source"] == server.url


def test_a_row_of_csv_has_the_gauge_of_when_it_begins() -> None:
    rates, where = Rates(), Server("http://a")
    first, second = (read(pages.vllm(running=running).text, pages.moment(at)) for at, running in ((0, 8), (1, 16)))
    assert rates.add(first) is None
    found = {name: value for name, value, _ in figures(Now(where, second, rates.add(second)))}
    assert (found["running"], found["cache_usage"]) == (8, 0.25)


def test_what_has_no_place_to_go_keeps_nothing_else_from_being_written(server: Running, tmp_path: Path) -> None:
    words = ("attach", server.url, "--source", script(tmp_path), *QUICK, "--duration-sec", "1")
    picture = cufall(*words, "--svg", "/dev/full", "--json")
    assert (picture.returncode, "cannot write /dev/full" in picture.stderr) == (1, True)
    fits("attach", picture.stdout)
    rows = tmp_path / "rows.csv"
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command(*words, "--csv", str(rows))],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    assert len(rows.read_text().splitlines()) > 10


def test_an_interrupt_ends_it_with_its_tables(server: Running, tmp_path: Path) -> None:
    process = start("attach", server.url, "--source", script(tmp_path), *QUICK, "--record", str(tmp_path / "a.cufall"))
    assert process.stdout
    process.stdout.readline()
    time.sleep(1.2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "by phase" in out
    assert Recording(tmp_path / "a.cufall").whole


def test_two_servers_with_roles_are_two_groups(server: Running, tmp_path: Path) -> None:
    with serving(tmp_path, "--like", "sglang") as other:
        ended = cufall(
            *("attach", "--as", f"prefill={server.url}", "--as", f"decode={other.url}"),
            *("--source", script(tmp_path), *QUICK, "--duration-sec", "2.5", "--json"),
        )
    assert "which server uses which of these GPUs is not known" in ended.stderr
    found = json.loads(ended.stdout)["servers"]
    assert [(one["url"], one["role"], one["engine"]) for one in found] == [
        (server.url, "prefill", "vLLM"),
        (other.url, "decode", "SGLang"),
    ]


def test_a_server_that_is_gone_is_told_and_gpus_go_on(tmp_path: Path) -> None:
    with serving(tmp_path) as gone:
        pass
    ended = cufall("attach", gone.url, "--source", script(tmp_path), *QUICK, "--duration-sec", "1.5")
    assert ended.stderr.count("nothing listens there") == 1
    assert f"{gone.url}: no page of metrics, on g0" in ended.stdout
    assert f"not a valid measurement: {gone.url}: no page of metrics came (exit 4)" in ended.stderr
    assert ended.returncode == 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--port 1 --pid 1", "one of them is enough"),
        ("--port 0", "--port 0: must be a whole number from 1 to 65535"),
        ("--port 70000", "--port 70000: must be a whole number from 1 to 65535"),
        ("--pid 0", "--pid 0: must be a whole number above 0"),
        ("--pid -5", "--pid -5: must be a whole number above 0"),
        ("--as prefill=h:1 --as decode=h:1", "--as decode=h:1: it is given another role, too"),
        ("--as both=http://127.0.0.1:1", "must be prefill=URL or decode=URL"),
        ("ftp://x", "an address is"),
        (
            "http://127.0.0.1:1 --source run.cufall",
            "run.cufall is a recording, and its servers are in it",
        ),
        ("--source run.cufall --record a.cufall", "--record: --source run.cufall is a recording"),
        ("http://127.0.0.1:1 --drive 1,x", "must be numbers of requests at once"),
        ("http://127.0.0.1:1 --output-tokens 0", "--output-tokens 0: must be a whole number above 0"),
        ("http://127.0.0.1:1 --json --csv -", "cannot both go to stdout"),
        ("http://127.0.0.1:1 --require fma.mean>1%", "fma is not sampled"),
        ("http://127.0.0.1:1 --require tensor.p50[running=1]>1%", "only tensor.mean is known"),
        ("http://127.0.0.1:1 --require tokens_per_s>5%", "has a unit"),
        ("http://127.0.0.1:1 --require tokens_per_s[running=20-12]>5", "must go up"),
        ("--api-key secret", "it would be sent to whoever listens here"),
        ("http://127.0.0.1:1 --record /", "must be a file"),
        ("http://127.0.0.1:1 --group decode=0", "no server has this role; --as decode=URL names one"),
        ("--as decode=http://127.0.0.1:1 --group decode=7", "--group decode: no GPU 7; there are 0"),
        ("http://127.0.0.1:1 --group auto", "here they are named, as decode=4-7"),
    ],
)
def test_what_cannot_be_meant_is_usage(words: str, told: str, tmp_path: Path) -> None:
    with_source = [] if "--source" in words else ["--source", script(tmp_path)]
    ended = cufall("attach", *words.split(), *with_source)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert told in ended.stderr


def test_a_process_without_an_engine_is_told(tmp_path: Path) -> None:
    idle = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ended = cufall("attach", "--pid", str(idle.pid), "--source", script(tmp_path))
    idle.communicate()
    assert ended.returncode == 1
    assert "has no page of an engine's metrics (it listens on no port)" in ended.stderr


def test_a_load_that_is_refused_ends_it(tmp_path: Path) -> None:
    with page_server(answer(pages.vllm().text)) as server:
        ended = cufall("attach", server.url, "--source", script(tmp_path), "--drive", "2")
    assert ended.returncode == 1
    assert "names no model; name it with --model-name" in ended.stderr


def test_a_password_in_an_address_is_neither_shown_nor_kept(tmp_path: Path) -> None:
    from tests import pages
    from tests.endpoints import answer, serving as page_server

    path = tmp_path / "run.cufall"
    with page_server(answer(pages.vllm().text)) as page:
        url = page.url.replace("://", "://me:secret@") + "/metrics?token=secret"
        words = ("attach", url, "--source", script(tmp_path), *QUICK, "--duration-sec", "2.5")
        runs = [
            cufall(
                *words, "--record", str(path), "--csv", str(tmp_path / "a.csv"), "--result", str(tmp_path / "r.json")
            ),
            cufall(*words, "--json"),
            cufall("attach", "--as", f"decode={url}", "--as", f"both={url}", "--source", script(tmp_path)),
        ]
        basic = base64.b64encode(b"me:secret").decode()
        sent = [request for request in page.requests if f"Authorization: Basic {basic}" in request]
        assert sent and all("GET /metrics?token=secret " in request for request in sent)
    kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not [text for run in runs for text in (run.stdout, run.stderr) if "secret" in text]
    assert not [data for data in kept if b"secret" in data]
    assert [log.url for log in logs(path)] == [f"{page.url}/metrics"]


def test_a_server_that_is_gone_most_of_the_time_is_not_judged_by_the_rest(tmp_path: Path) -> None:
    from tests import pages
    from tests.endpoints import answer, serving as page_server

    def talk(connection: socket.socket, _: str) -> None:
        asked.append(time.monotonic())
        served.count("vllm:generation_tokens_total", 100, model_name="m", engine="0")
        gone = asked[-1] - asked[0] > 3.5
        connection.sendall(answer("", "503 Gone") if gone else answer(served.text))

    asked, served = list[float](), pages.vllm()
    with page_server(talk) as server:
        words = ("attach", f"{server.url}/metrics", "--source", script(tmp_path), *QUICK, "--duration-sec", "10")
        ended = cufall(*words, "--require", "tokens_per_s > 10")
    assert ended.returncode == 4
    assert re.search(r"what it did is known of [234]\d% of the time, at least 50% are needed", ended.stderr)


def test_what_a_load_gave_before_it_was_refused_is_not_lost(tmp_path: Path) -> None:
    from tests import pages
    from tests.endpoints import answer, serving as page_server
    from tests.test_drive import DONE, MODELS, TOKEN, reply

    def talk(connection: socket.socket, request: str) -> None:
        said = {"/metrics": answer(pages.vllm().text), "/v1/models": reply(MODELS)}
        asked = request.split()[1]
        taken.append(asked)
        fails = taken.count("/v1/completions") > 4
        connection.sendall(said.get(asked, reply(b"", "429 Too Many") if fails else reply(TOKEN * 2 + DONE)))

    taken: list[str] = []
    with page_server(talk) as server:
        ended = cufall("attach", server.url, "--source", script(tmp_path), *QUICK, "--drive", "1,2,3", "--json")
    assert ended.returncode == 1
    found = json.loads(ended.stdout)
    assert [(load["at_once"], load["tokens"], load["tokens_from"]) for load in found["load"]] == [(1, 8, "pieces")]
    assert "the server refuses it, HTTP 429" in ended.stderr
    fits("attach", ended.stdout)


def test_a_load_for_several_servers_is_refused_before_anything_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.cufall"
    words = ("attach", "http://127.0.0.1:1", "http://127.0.0.1:2", "--drive", "1", "--record", str(path))
    ended = cufall(*words, "--source", script(tmp_path))
    assert (ended.returncode, path.exists()) == (2, False)
    assert "--drive sends to one server; name its URL" in ended.stderr


# which servers, which GPUs -----------------------------------------------------------------------------


def test_servers_of_addresses_ports_and_processes(server: Running) -> None:
    (by_url,) = servers([server.url], None, None, {})
    (by_port,) = servers([], None, server.port, {})
    (by_pid,) = servers([], server.pid, None, {})
    assert by_url == by_port == by_pid
    assert server.pid in by_url.pids
    assert server.url in [found.url for found in soon(lambda: servers([], None, None, {}))]


def test_a_server_is_one_however_its_address_is_spelled() -> None:
    spelled = ["http://127.0.0.1:1", "http://127.0.0.1:1/", "127.0.0.1:1/v1"]
    (found,) = servers(spelled, None, None, {"http://127.0.0.1:1/": "decode"})
    assert (found.url, found.role) == ("http://127.0.0.1:1", "decode")


def test_a_port_on_which_several_listen_does_not_name_one(tmp_path: Path) -> None:
    apart = "import socket; s = socket.create_server(('127.0.0.2', int(input()))); print('up', flush=True); input()"
    words = [sys.executable, "-c", apart]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        with socket.create_server(("127.0.0.1", 0)) as own:
            port = own.getsockname()[1]
            assert other.stdin and other.stdout
            print(port, file=other.stdin, flush=True)
            assert other.stdout.readline() == "up\n"
            with pytest.raises(UsageError, match=rf"--port {port}: several listen there, .* and .*; name the one"):
                servers([], None, port, {})
            assert at(f"http://127.0.0.2:{port}").pids == (other.pid,)
        other.communicate("\n")


def test_a_process_that_is_not_there_is_told() -> None:
    with pytest.raises(CufallError, match="there is no process 4194305 here"):  # Linux has none above 2^22
        servers([], 4_194_305, None, {})


def test_a_server_elsewhere_has_no_processes_here() -> None:
    assert at("http://127.0.0.1:1").here and at("http://localhost:1").here
    assert at("http://192.0.2.1:8000") == Server("http://192.0.2.1:8000", here=False)


TWO = {"GPU-a": [1, 10], "GPU-b": [20], "GPU-c": []}


def test_a_servers_gpus_are_those_that_list_its_processes() -> None:
    both = [Server("http://a", pids=(9, 10)), Server("http://b", pids=(20, 1))]
    assert gpus_of(both, list_users=lambda: TWO) == [["GPU-a"], ["GPU-a", "GPU-b"]]
    gpus, plan = with_gpus(both, "", Plan(), users=lambda: TWO)
    assert (gpus, plan.devices) == ([["GPU-a"], ["GPU-a", "GPU-b"]], "GPU-a,GPU-b")
    assert with_gpus(both, "0,1", Plan(), users=lambda: TWO) == ([[], []], Plan(devices="0,1"))


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (Server("http://a", pids=(7,)), "in a container NVML may have the host's numbers"),
        (Server("http://a"), "no process behind http://a may be looked at"),
        (Server("http://a", here=False), "http://a is no address of this machine"),
    ],
)
def test_gpus_that_are_not_known_are_to_be_named(server: Server, told: str) -> None:
    with pytest.raises(CufallError, match="--devices names them") as failed:
        gpus_of([server], list_users=lambda: TWO)
    assert told in str(failed.value)


def test_the_only_gpu_is_taken_for_a_server_that_runs_here_and_that_is_said() -> None:
    said: list[str] = []
    assert gpus_of([Server("http://a", pids=(7,))], said.append, lambda: {"GPU-a": [3]}) == [["GPU-a"]]
    assert "it is taken to be the only one here" in said[0]
    with pytest.raises(CufallError, match="no address of this machine"):
        gpus_of([Server("http://a", here=False)], said.append, lambda: {"GPU-a": [3]})


# requirements -------------------------------------------------------------------------------------------


def test_requirements_on_servers_are_read() -> None:
    one = parse("tokens_per_s[running=12-20, gpu=0] >= 500")
    assert (one.statistic, one.metric, one.running, one.gpus) == ("generation_tokens_per_s", "", (12, 20), (0,))
    assert (one.limit, one.of_server) == (500.0, True)
    assert parse("prompt_tokens_per_s > 1").of_server
    assert parse("tensor.mean[running=16] > 1%").running == (16, 16)
    assert not parse("tensor.mean > 1%").of_server
    with pytest.raises(UsageError, match="without a region"):
        parse("tokens_per_s[decode,running=1] > 1")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """A server that prefills on GPU 0, whose tensor pipe is 80 % busy, and one that decodes on GPU 1, at 10 %: both
    addresses, and the recording of attach."""
    folder = tmp_path_factory.mktemp("split")
    busy = [[{"ms": 1000, "tensor": 0.8}], [{"ms": 1000, "tensor": 0.1}]]
    path = folder / "split.cufall"
    with page_server(answer(pages.vllm().text)) as one, page_server(answer(pages.vllm().text)) as other:
        ended = cufall(
            *("attach", "--as", f"prefill={one.url}", "--as", f"decode={other.url}"),
            *("--group", "prefill=0", "--group", "decode=1", "--record", str(path)),
            *("--source", script(folder, patterns=busy, gpus=2), *QUICK, "--duration-sec", "4.5", "--json"),
            *("--require", "tensor.mean[group=decode] <= 11%", "--require", "tensor.mean[group=prefill] >= 79%"),
            *("--require", "tokens_per_s[running=4,group=decode] < 1"),
        )
        assert ended.returncode == 0, ended.stderr
        assert [s["gpus"] for s in json.loads(ended.stdout)["servers"]] == [[0], [1]]
        yield one.url, other.url, path


@pytest.mark.parametrize(
    ("words", "judged"),
    [
        ("--require tokens_per_s[group=decode]<1", {"decode": "held"}),
        ("--require tensor.mean[group=decode]<11%", {1: "held"}),
        ("--require tensor.mean[group=prefill]<11%", {0: "missed"}),
        ("--require tensor.mean[running=4,group=decode]<11%", {1: "held"}),
        ("--require tensor.mean[group=decode]<11% --group decode=0", {0: "missed"}),
        ("--require tokens_per_s<1 --devices 1", {"decode": "held"}),
        ("--require tokens_per_s<1 --devices 1,0", {"prefill": "held", "decode": "held"}),
        ("--require tensor.mean[running=4]<11% --devices 1", {1: "held"}),
    ],
)
def test_a_requirement_is_of_the_servers_and_gpus_that_it_selects(
    split: tuple[str, str, Path], words: str, judged: dict[str | int, str], tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    ended = cufall("report", str(split[2]), *words.split(), "--result", str(result))
    urls = {split[0]: "prefill", split[1]: "decode"}
    found = json.loads(result.read_text())["requirements"]
    assert {urls.get(j["server"], j["gpu"]): j["outcome"] for j in found} == judged, ended.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--require tokens_per_s[group=decode]>1 --devices 0", "no decode server is on one of these GPUs"),
        ("--require tensor.mean[group=decode,gpu=0]>1%", "no decode server is on one of these GPUs"),
        (
            "--require tensor.mean[group=ranks]>1%",
            "no group ranks; there is all (--group), of servers prefill and decode",
        ),
    ],
)
def test_a_requirement_that_selects_no_server_is_usage(split: tuple[str, str, Path], words: str, told: str) -> None:
    ended = cufall("report", str(split[2]), *words.split())
    assert (ended.returncode, ended.stdout) == (2, "")
    assert told in ended.stderr


def test_a_report_of_some_gpus_has_their_servers_alone(split: tuple[str, str, Path]) -> None:
    text = cufall("report", str(split[2]), "--devices", "1").stdout
    assert split[1] in text and split[0] not in text


def test_markdown_has_the_tables_of_the_servers(split: tuple[str, str, Path]) -> None:
    lines = cufall("report", str(split[2]), "--devices", "1", "--markdown", "-").stdout.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith(f"### {split[1]}: vLLM"))
    assert (
        "| running | scrapes | seconds | frames | gen tok/s | prompt tok/s | ITL ms | tensor | sm | dram |"
        in lines[at:]
    )
    assert any(line.startswith("| decode | 0.0 |") for line in lines[at:])


def test_generation_of_a_server_that_prefills_is_not_measurable_and_who_decodes_is_told(
    split: tuple[str, str, Path],
) -> None:
    ended = cufall("report", str(split[2]), "--require", "tokens_per_s[running=16] > 1")
    assert ended.returncode == 4
    assert "it does prefill alone, group=decode means the others" in ended.stderr


def test_the_page_of_a_recording_has_the_tables_of_its_servers(split: tuple[str, str, Path]) -> None:
    text = cufall("report", str(split[2]), "--html", "-").stdout
    assert f"{split[1]}: vLLM (0.13 and newer), decode, on g1: by running requests" in text
    assert f"{split[0]}: by phase" in text and "<h2>inference servers</h2>" in text
    assert text.count("vllm:generation_tokens_total") == 2
    one = cufall("report", str(split[2]), "--html", "-", "--devices", "1").stdout
    assert split[1] in one and split[0] not in one


def test_a_recording_is_played_as_it_was_drawn(attached: subprocess.CompletedProcess[str], server: Running) -> None:
    """Its scrapes, told a second time from the file by arithmetic, and the same document at the end."""
    path = str(folder_of(attached) / "run.cufall")
    played = cufall("attach", "--source", path)
    lines = [line for line in played.stdout.splitlines() if re.match(r"\d\d:\d\d:\d\d", line)]
    said = log_of(attached)
    assert abs(len(lines) - len(said.readings)) <= 1  # the last may come after the last frame
    for line, interval in zip(lines[1:], said.intervals, strict=False):
        running, made = interval.gauges["running"][1], interval.rates["generation_tokens"].per_s
        assert f"running {running:g}  " in line
        assert float(re.findall(r"gen ([\d.]+) tok/s", line)[0]) == pytest.approx(made, abs=0.5)
        assert "g0-g1  tensor 50/50%" in line
    assert played.returncode == 0, played.stderr
    found = json.loads(cufall("attach", "--source", path, "--json").stdout)
    assert found["servers"] == json.loads(attached.stdout)["servers"]


def test_a_played_recording_is_judged_and_written_as_it_was(split: tuple[str, str, Path], tmp_path: Path) -> None:
    words = ("attach", "--source", str(split[2]), "--devices", "1", "--require", "tensor.mean[group=decode] > 50%")
    ended = cufall(*words, "--csv", str(tmp_path / "a.csv"))
    assert ended.returncode == 3, ended.stderr
    rows = [*csv.DictReader((tmp_path / "a.csv").read_text().splitlines())]
    assert {row["gpu"] for row in rows} == {"1", ""}
    assert {row["source"] for row in rows if not row["gpu"]} == {split[1]}
    assert split[1] in ended.stdout and split[0] not in ended.stdout


def test_a_recording_is_played_on_a_screen_at_its_own_pace(split: tuple[str, str, Path]) -> None:
    with Terminal(command("attach", "--source", str(split[2])), 100, 24) as terminal:
        terminal.until(lambda text: re.search(r"^g1  tensor   10% █ ", text, re.MULTILINE))
        terminal.sees("vLLM  running 4  waiting 2  gen 0 tok/s")
        terminal.press("q")
        assert terminal.ends() == 0
        assert "by phase" in terminal.said


def test_a_recording_without_servers_is_for_replay(tmp_path: Path) -> None:
    path = str(tmp_path / "a.cufall")
    assert cufall("record", "--source", script(tmp_path), "--duration-sec", "0.3", "-o", path).returncode == 0
    ended = cufall("attach", "--source", path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "has no inference server (on these GPUs); cufall replay plays it" in ended.stderr


def test_a_table_of_pandas_has_each_server_of_a_shared_gpu(tmp_path: Path) -> None:
    with (
        page_server(answer(pages.vllm().text)) as one,
        page_server(answer(pages.vllm(running=7).text)) as other,
        attach(one.url, other.url, source=script(tmp_path)) as attached,
    ):
        time.sleep(3.5)
        found = attached.to_pandas()
    frames = found.groupby("time").server.apply(list)
    assert all(servers == [one.url, other.url] for servers in frames)
    running = found.groupby("server").running.max()
    assert (running[one.url], running[other.url]) == (4, 7)


def test_a_copy_of_a_part_keeps_the_servers(split: tuple[str, str, Path], tmp_path: Path) -> None:
    ended = cufall("record", "--source", str(split[2]), "--from", "2", "-o", str(tmp_path / "part.cufall"))
    assert ended.returncode == 0, ended.stderr
    found = logs(tmp_path / "part.cufall")
    assert [(log.url, log.role, log.gpus) for log in found] == [(split[0], "prefill", (0,)), (split[1], "decode", (1,))]
    assert 1 <= len(found[0].intervals) < len(logs(split[2])[0].intervals)


def test_a_role_that_no_server_is_known_to_have_is_not_measurable(attached: subprocess.CompletedProcess[str]) -> None:
    path = str(folder_of(attached) / "run.cufall")
    ended = cufall("report", path, "--require", "tensor.mean[group=decode] > 1%")
    assert ended.returncode == 4
    assert "it is not known to do decode alone; --as decode=URL says so" in ended.stderr


# phases, against the server's own log ------------------------------------------------------------------


@pytest.mark.parametrize("like", ["vllm", "sglang"])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_phases_are_those_of_the_servers_own_log(like: str, role: str, tmp_path: Path) -> None:
    path = tmp_path / "run.cufall"
    with (
        serving(tmp_path, "--like", like, "--decode-ms", "20", "--prefill-us", "100") as server,
        attach(server.url, roles={server.url: role}, source=script(tmp_path), record=path),
    ):
        if role == "prefill":
            prefill_and_rest(server, 5.0, 200)
        else:
            decode_and_rest(server, 3.0, 250)
    (log,) = logs(path)
    frames, _ = frame_table(path)
    called, true = phase_shares(log, frames), true_shares(server.steps(), frames.start_ns, frames.end_ns)
    wrong, unsure = wrong_and_unsure(called, true)
    assert (wrong < 0.05, unsure < 0.6) == (True, True), (called.mean(axis=0), true.mean(axis=0))
    assert called[:, PHASES.index(role)].mean() > 0.2
