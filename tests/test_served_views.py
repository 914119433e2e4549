"""What a person reads of servers and their GPUs: numbers in their units, in the room that there is."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from cufall_py import shown
from cufall_py.analysis.concurrency import NOTHING, Mean, Row
from cufall_py.analysis.phases import PHASES
from cufall_py.judgements import NOT_MEASURABLE, Judgement
from cufall_py.requirements import parse
from cufall_py.served import Log, Served
from cufall_py.views import tables
from cufall_py.views.served import as_text, by_concurrency, by_phase, plot, ranges, title
from cufall_py.views.served_plot import svg
from cufall_py.views.served_screen import Block, Scene, across, screen, wrapped
from cufall_py.views.styled import plain
from cufall_py.views.summary import requirements

NAN = float("nan")
METRICS = (("tensor", "%"), ("launches", "/s"))


def row(running: int, generated: Mean, prompted: Mean = NOTHING, tensor: Mean = NOTHING, launches: float = NAN) -> Row:
    metrics = {"tensor": tensor, "launches": Mean(launches, NAN, NAN, 10)}
    return Row(running, running, 12, 12.0, metrics, generated, prompted, Mean(0.025, 0.024, 0.026, 12))


def server(*rows: Row) -> Served:
    labels, units = zip(*METRICS, strict=True)
    return Served(Log("http://a", "decode", (0, 1, 2, 5)), labels, units, rows, {"decode": 8.0}, {})


def test_an_interval_is_told_in_the_unit_of_its_value() -> None:
    one = server(row(16, Mean(640, 620, 660, 12), Mean(0, 0, 0, 12), Mean(0.14, 0.08, 0.20, 100), 5693))
    assert [*tables.text(by_concurrency(one))] == [
        "RUNNING  SCRAPES  SECONDS  FRAMES  GEN TOK/S  PROMPT TOK/S  ITL MS  TENSOR  LAUNCHES/S",
        "     16       12     12.0     100    640 ±20             0   25 ±1  14 ±6%        5693",
    ]


@pytest.mark.parametrize(
    ("mean", "told"),
    [
        (Mean(0.0672, 0.02, 0.1144, 9), "6.7 ±4.7%"),
        (Mean(0.5, 0.499, 0.501, 9), "50 ±0.1%"),
        (Mean(0.5, 0.4999999, 0.5000001, 9), "50 ±0%"),
        (Mean(0.5, -math.inf, math.inf, 1), "50%"),
        (Mean(0.00001, 0, 0.1, 9), "<.01%"),
        (Mean(0.0, 0.0, 0.0, 9), "0%"),
        (NOTHING, "--"),
    ],
)
def test_half_an_interval_has_the_decimals_of_what_it_is_of(mean: Mean, told: str) -> None:
    assert by_concurrency(server(row(1, NOTHING, tensor=mean))).rows[0][7] == told


def test_a_metric_that_is_no_ratio_is_no_percent() -> None:
    one = Served(
        Log("http://a", "", (0,)),
        *zip(*METRICS, strict=True),
        (),
        dict.fromkeys(PHASES, 1.0),
        dict.fromkeys(PHASES, np.array([0.5, 5693.0])),
    )
    table = by_phase(one)
    assert table.head[3:] == ("tensor", "launches/s")
    assert table.rows[0][3:] == ["50%", "5693"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (NAN, "--"),
        (0.0, "0"),
        (0.123456, "0.1235"),
        (999.94, "999.9"),
        (5693.2, "5693"),
        (56930.4, "56930"),
        (-4e6, "-4000000"),
    ],
)
def test_a_plain_number_has_no_exponent_that_it_need_not_have(value: float, told: str) -> None:
    assert shown.plain(value) == told


def test_gpus_are_named_in_ranges() -> None:
    assert ranges((0, 1, 2, 3)) == "g0-g3"
    assert ranges((0, 2, 3, 7)) == "g0, g2-g3, g7"
    assert ranges(()) == ""
    assert title(Log("http://a", "decode", (4, 5))) == "http://a: no page of metrics, decode, on g4-g5"


def test_tokens_are_drawn_of_whichever_the_server_makes() -> None:
    made, none = Mean(640, 620, 660, 12), Mean(0, 0, 0, 12)
    assert [*plot([row(8, made), row(16, none)])][1] == "generation tokens/s against running requests"
    assert [*plot([row(0, none, made)])][1:] == ["prompt tokens/s against running requests", "0 " + "▇" * 40 + " 640"]
    assert [*plot([row(0, none, none)])] == []


def test_the_picture_has_a_panel_of_each_quantity_that_there_is() -> None:
    made, none = Mean(640, 620, 660, 12), Mean(0, 0, 0, 12)
    picture = svg([server(row(0, none, made, tensor=none, launches=5693))])
    texts = [element.text for element in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    panels = [text for text in texts if text in ("generation tokens/s", "prompt tokens/s", "tensor, %", "launches/s")]
    assert panels == ["prompt tokens/s", "tensor, %", "launches/s"]
    assert "5693" in texts


EIGHT = Block(
    "http://a (decode)", "vLLM  running 16  gen 640 tok/s  cache 43%", range(8), [[0.62, 5693.0]] * 7 + [[NAN, NAN]]
)


def seen(block: Block, columns: int, lines: int) -> list[str]:
    text = plain(screen(Scene("attached", METRICS, [block]), columns, lines))
    return [line.rstrip() for line in text.split("\n")]


def test_bars_are_as_long_as_there_is_room() -> None:
    assert seen(EIGHT, 80, 24)[4:6] == [f"g{k}  tensor   62% ███████      launches  5693" for k in (0, 1)]
    assert seen(EIGHT, 80, 24)[11] == "g7  tensor    -- ············ launches    --"
    assert seen(EIGHT, 40, 24)[5] == "g0  tensor   62% ██  launches  5693"


def test_a_servers_line_is_wrapped_where_it_is_too_long() -> None:
    assert seen(EIGHT, 40, 24)[3:5] == ["vLLM  running 16  gen 640 tok/s", "cache 43%"]
    assert wrapped("one  two  three", 9) == ["one  two", "three"]
    assert wrapped("longer than that  two", 4) == ["longer than that", "two"]


def test_without_room_for_a_row_a_gpu_there_is_a_row_a_metric() -> None:
    assert seen(EIGHT, 80, 10) == [
        "attached",
        "",
        "http://a (decode)",
        "vLLM  running 16  gen 640 tok/s  cache 43%",
        "               g0    g1    g2    g3    g4    g5    g6    g7",
        "tensor %       62    62    62    62    62    62    62    --",
        "launches /s  5693  5693  5693  5693  5693  5693  5693    --",
        "",
        "",
        "q quit",
    ]
    assert all(len(line) <= 30 for line in seen(EIGHT, 30, 8))


def test_a_line_has_the_numbers_of_all_gpus() -> None:
    assert across((0, 1, 4), [[0.62, 1.0], [0.007, 2.0], [NAN, NAN]], METRICS) == [
        "g0-g1, g4",
        "tensor 62/0.7/--%",
        "launches 1/2/--/s",
    ]


def test_what_is_required_of_a_server_has_its_unit() -> None:
    one = parse("tokens_per_s > 1")
    missing = Judgement(one, 0, NOT_MEASURABLE, NAN, "", 0, NAN, why="no value", server="http://a")
    made = Judgement(one, 0, "held", 640.123, "", 12, NAN, server="http://b")
    table = requirements([missing, made])
    assert table.head[2] == "gpu or server"
    assert [cells[4] for cells in table.rows] == ["--", "640.1 tok/s"]


def test_several_servers_begin_with_who_does_what_on_which_gpus() -> None:
    seconds = {"prefill": 3.0, "decode": 0.0, "mixed": 0.0, "idle": 0.5, "unsure": 0.5}
    means = dict.fromkeys(PHASES, np.array([0.5]))
    found = [
        Served(Log("http://a", "prefill", (0, 1, 2, 3)), ("tensor",), ("%",), (), seconds, means),
        Served(Log("http://b", "", (5, 7)), ("tensor",), ("%",), (), dict.fromkeys(PHASES, 0.0), means),
    ]
    assert [*as_text(found)][:4] == [
        "SERVER    ROLE     ON      RUNNING  GEN TOK/S  PROMPT TOK/S  PREFILL  DECODE  MIXED  IDLE  UNSURE",
        "http://a  prefill  g0-g3        --         --            --      75%      0%     0%   12%     12%",
        "http://b  --       g5, g7       --         --            --       --      --     --    --      --",
        "",
    ]
    assert "SERVER" not in "\n".join(as_text(found[:1]))


def test_a_server_without_a_page_is_told_of() -> None:
    one = Served(
        Log("http://a", "", (0,)),
        ("tensor",),
        ("%",),
        (),
        dict.fromkeys(PHASES, 0.0),
        dict.fromkeys(PHASES, np.array([NAN])),
    )
    assert "no number of running requests was held" in [*as_text([one])]
