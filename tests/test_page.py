"""The page in a real Chromium: it draws, zooms, moves and switches, and nothing of it fails or is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cufall_py.cli.pages import write_html
from cufall_py.cli.playing import DEMO_FILE
from cufall_py.report import Reading
from cufall_py.resolve import Wanted
from tests import chromium
from tests.helpers import EPOCH, SECOND
from tests.recordings import busy, doing, known_metrics, opened, region, writer

WIDE, PHONE = (1280, 900), (390, 844)
SECONDS = 40
GPU_0 = (0x2F, 0x7E, 0xD8)
"""The colour of the first GPU's line."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty seconds of two GPUs at 1 kHz; GPU 0 was not measured from 10 to 20 s and is below 1 % from 30 s on."""
    folder = tmp_path_factory.mktemp("page")
    with writer(folder / "run.cufall", [opened(0), opened(1)]) as out:
        for second in range(SECONDS):
            at = EPOCH + second * SECOND
            out.set_readings(0, 1500.0 + second, 600.0)
            if not 10 <= second < 20:
                out.add(0, busy(at, [0.5 if second < 30 else 0.004] * 1000))
            ratios = np.full(1000, 0.2)
            ratios[500] = 0.9
            out.add(1, busy(at, ratios.tolist()))
        region(out, "prefill", EPOCH + 2 * SECOND, EPOCH + 9 * SECOND, "large products")
        out.event("gap", gpu=0, start_ns=EPOCH + 10 * SECOND, end_ns=EPOCH + 20 * SECOND, samples=10_000)
    write_html(Reading(folder / "run.cufall"), str(folder / "run.html"))
    return folder / "run.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Tab]:
    with chromium.tab(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def tab(browser: chromium.Tab, page: Path) -> Iterator[chromium.Tab]:
    """The page, just opened; whatever the test does, nothing may go wrong in it and nothing be loaded."""
    browser.problems.clear()
    browser.asked.clear()
    browser.prefer("light")
    browser.size(*WIDE)
    browser.open(page)
    browser.settle()
    yield browser
    browser.settle()
    assert browser.problems == []
    assert browser.asked == [page.as_uri()]


def view(tab: chromium.Tab) -> list[float]:
    found: list[float] = json.loads(tab.run("JSON.stringify(cufall.state.view)"))
    return found


def bins(tab: chromium.Tab) -> float:
    """The length of the bins that the first plot is drawn in."""
    found: float = tab.run("cufall.panels[1].level.bin")
    return found


def box(tab: chromium.Tab) -> tuple[float, float, float, float]:
    """Where the first plot lies in the window: left, top, width, height."""
    script = "JSON.stringify(Object.values(cufall.panels[1].chart.over.getBoundingClientRect().toJSON()).slice(0, 4))"
    left, top, width, height = json.loads(tab.run(script))
    return left, top, width, height


def point(tab: chromium.Tab, second: float, height: float = 0.5) -> tuple[float, float]:
    """Where a time of the view lies in the window."""
    left, top, width, tall = box(tab)
    begin, end = view(tab)
    return left + width * (second - begin) / (end - begin), top + tall * height


COLUMNS = """
(([red, green, blue]) => {
  const u = cufall.panels[1].chart, { left, top, width, height } = u.bbox;
  const dots = u.ctx.getImageData(left, top, width, height).data;
  const found = Array(Math.round(width)).fill(-1);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const at = 4 * (y * Math.round(width) + x);
    const off = Math.abs(dots[at] - red) + Math.abs(dots[at + 1] - green) + Math.abs(dots[at + 2] - blue);
    if (off < 60 && dots[at + 3] > 60) found[x] = 1 - y / height;
  }
  return JSON.stringify(found);
})(%s)
"""


def line(tab: chromium.Tab) -> list[float]:
    """How high GPU 0's line is drawn in each column of the first plot, 0 to 1; -1 for nowhere."""
    found: list[float] = json.loads(tab.run(COLUMNS % list(GPU_0)))
    return found


def at(heights: list[float], second: float) -> float:
    middle = int(second / SECONDS * len(heights))
    return max(heights[middle - 2 : middle + 3])  # a line of the grid may lie over one column


def press(tab: chromium.Tab, text: str, **more: Any) -> None:
    script = f"[...document.querySelectorAll('button')].find((b) => b.textContent === {json.dumps(text)})"
    tab.run(f"{script}.dispatchEvent(new MouseEvent('click', {json.dumps({'bubbles': True, **more})}))")
    tab.settle()


def test_it_draws_the_line_where_it_was_measured_and_nothing_in_a_gap(tab: chromium.Tab) -> None:
    heights = line(tab)
    assert at(heights, 5) == pytest.approx(0.5, abs=0.02) and at(heights, 25) == pytest.approx(0.5, abs=0.02)
    assert at(heights, 35) == pytest.approx(0.0, abs=0.02)
    assert {at(heights, 10.5 + k / 10) for k in range(90)} == {-1}


def test_wheel_and_drag_zoom_into_finer_bins_and_a_double_click_shows_all(tab: chromium.Tab) -> None:
    assert view(tab) == [0, SECONDS]
    coarse = bins(tab)
    x, y = point(tab, 5)
    for _ in range(4):
        tab.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)
    tab.settle()
    begin, end = view(tab)
    assert end - begin < SECONDS / 4 and begin < 5 < end
    assert (5 - begin) / (end - begin) == pytest.approx(5 / SECONDS, abs=0.01)  # what is under the pointer stays there
    finer = bins(tab)
    assert finer < coarse
    tab.drag(point(tab, begin + 0.2 * (end - begin)), point(tab, begin + 0.3 * (end - begin)))
    assert view(tab) == pytest.approx([begin + 0.2 * (end - begin), begin + 0.3 * (end - begin)], abs=0.02)
    assert bins(tab) == tab.run("cufall.panels[1].plot.levels[0].bin") < finer
    assert "the finest there are" in tab.run("document.getElementById('now').textContent")
    x, y = point(tab, view(tab)[0])
    for count in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            tab.mouse(kind, x + 50, y, button="left", clickCount=count)
    tab.settle()
    assert view(tab) == [0, SECONDS] and bins(tab) == coarse


def test_shift_drag_and_keys_move_and_stop_at_the_ends(tab: chromium.Tab) -> None:
    tab.run("cufall.setView(10, 20)")
    tab.settle()
    tab.drag(point(tab, 18), point(tab, 13), modifiers=8)
    assert view(tab) == pytest.approx([15, 25], abs=0.05)
    tab.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
    tab.settle()
    assert view(tab) == pytest.approx([13, 23], abs=0.05)
    tab.drag(point(tab, 14), point(tab, 22.9), modifiers=8)
    tab.drag(point(tab, view(tab)[0] + 1), point(tab, view(tab)[0] + 9.9), modifiers=8)
    assert view(tab) == pytest.approx([0, 10], abs=1e-6)
    tab.run("cufall.setView(3, 3)")
    tab.settle()
    begin, end = view(tab)
    assert end - begin == pytest.approx(4 * bins(tab))  # no further in than there is something to see


def test_values_regions_and_time_are_told_under_the_cursor(tab: chromium.Tab) -> None:
    tab.mouse("mouseMoved", *point(tab, 5))
    tab.settle()
    values = tab.run("document.querySelector('.plot:not(.lane) .values').innerText").split()
    assert values[:3] == ["g0", "50.0", "%"] and values[4:7] == ["g1", "20.0", "%"]
    now = tab.run("document.getElementById('now').textContent")
    assert "prefill" in now and "large products" in now
    tab.mouse("mouseMoved", *point(tab, 15))
    tab.settle()
    values = tab.run("document.querySelector('.plot:not(.lane) .values').innerText").split()
    assert values[:3] == ["g0", "–", "g1"]


def test_gpus_metrics_and_scales_are_switched(tab: chromium.Tab) -> None:
    press(tab, "log")
    log = at(line(tab), 35)
    assert log == pytest.approx(np.log10(0.4 / 0.01) / 4, abs=0.02)  # 0.4 % of 0.01 to 100 %
    press(tab, "fit")
    press(tab, "0–100 %")
    press(tab, "g0")
    assert set(line(tab)) == {-1}
    press(tab, "g0", altKey=True)
    assert at(line(tab), 5) == pytest.approx(0.5, abs=0.02)
    plots = "[...document.querySelectorAll('.plot h2')].filter((h) => h.offsetParent).map((h) => h.firstChild.data)"
    assert tab.run(plots) == ["tensor", "verdict", "SM clock, MHz", "power, W"]
    press(tab, "power")
    assert tab.run(plots) == ["tensor", "verdict", "SM clock, MHz"]


NUMBERS = "JSON.stringify(cufall.panels.map((p) => p.chart?.axes[1]?._values ?? []).flat().filter(Boolean))"
FIT = "cufall.panels[1].chart.axes[1].size() - cufall.panels[1].chart.axes[1].gap"
WIDEST = """
((texts) => {
  const ctx = document.createElement("canvas").getContext("2d");
  ctx.font = "12px system-ui, sans-serif";
  return Math.max(...texts.map((text) => ctx.measureText(text).width));
})(%s)
"""


def test_large_numbers_fit_beside_their_axis(browser: chromium.Tab, tmp_path: Path) -> None:
    """Up to 800 million CTAs a second, cut at the left edge, read 0000000 on each line."""
    write_html(Reading(DEMO_FILE), str(tmp_path / "run.html"))
    browser.size(*WIDE)
    browser.open(tmp_path / "run.html")
    browser.settle()
    numbers = json.loads(browser.run(NUMBERS))
    assert {"200K", "500M", "100 %", "2000"} <= set(numbers)
    assert browser.run(WIDEST % json.dumps(numbers)) <= browser.run(FIT)


STRIP = """
(() => {
  const { ctx, bbox: { left, top, width, height } } = cufall.panels[2].chart;
  const dots = ctx.getImageData(left, Math.round(top + height / 2), width, 1).data;
  return JSON.stringify(Array.from({ length: width }, (_, x) => [...dots.slice(4 * x, 4 * x + 3)]));
})()
"""


def strip(tab: chromium.Tab) -> list[list[int]]:
    """What the first GPU's verdicts are drawn in, from left to right."""
    found: list[list[int]] = json.loads(tab.run(STRIP))
    return found


LEGEND = (
    "[...document.querySelectorAll('.legend li')].filter((li) => li.textContent === %s).map("
    "(li) => getComputedStyle(li, '::before').backgroundColor)[0]"
)


def legend_colour(tab: chromium.Tab, name: str) -> list[int]:
    found: str = tab.run(LEGEND % json.dumps(name))
    return [int(part) for part in found.removeprefix("rgb(").removesuffix(")").split(",")]


@pytest.fixture
def verdicts(browser: chromium.Tab, tmp_path: Path) -> chromium.Tab:
    """A second of copies, one that was not measured, and one of nothing."""
    metrics = known_metrics(("tensor", "sm", "gr", "dram", "issue"), "GH100")
    with writer(tmp_path / "run.cufall", [opened(metrics=metrics)]) as out:
        out.add(0, doing(metrics, {"gr": 1.0, "sm": 0.9, "dram": 0.8, "issue": 0.1}, EPOCH, 1000, "GH100"))
        out.add(0, doing(metrics, {}, EPOCH + 2 * SECOND, 1000, "GH100"))
    write_html(Reading(tmp_path / "run.cufall"), str(tmp_path / "run.html"))
    browser.problems.clear()
    browser.prefer("light")
    browser.size(*WIDE)
    browser.open(tmp_path / "run.html")
    browser.settle()
    return browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_verdicts_are_drawn_in_the_colours_of_their_legend(verdicts: chromium.Tab, scheme: str) -> None:
    verdicts.prefer(scheme)
    colours = strip(verdicts)
    third = len(colours) // 3
    copies, blank, nothing = colours[2 : third - 2], colours[third + 2 : 2 * third - 2], colours[2 * third + 2 : -2]
    assert all(colour == legend_colour(verdicts, "memory-bound") for colour in copies[::20])
    assert all(colour == legend_colour(verdicts, "idle") for colour in nothing[::20])
    assert not any(colour in (copies[0], nothing[0]) for colour in blank)
    assert len({tuple(colour) for colour in blank}) > 1  # lines on paper
    assert verdicts.run(LEGEND % json.dumps("tensor-bound")) is None  # there is none
    assert verdicts.problems == []


@pytest.mark.parametrize("second, told", [(0.5, "memory-bound"), (1.5, "not measured"), (2.5, "idle")])
def test_the_verdict_under_the_cursor_is_told(verdicts: chromium.Tab, second: float, told: str) -> None:
    left, _, width, _ = box(verdicts)
    top = verdicts.run("cufall.panels[2].chart.over.getBoundingClientRect().top")
    verdicts.mouse("mouseMoved", left + width * second / 3, top + 5)
    verdicts.settle()
    assert verdicts.run("document.querySelector('.strip .values').innerText").split("\n") == ["g0", told]


CANVAS = "JSON.stringify(document.querySelector('.roofline canvas').getBoundingClientRect())"
EDGES = "JSON.stringify([[.01, 100].map(cufall.roofline.cloud.x), [.01, 100].map(cufall.roofline.cloud.y)])"


def told_at(tab: chromium.Tab, memory: float, tensor: float) -> str:
    """What is told with the pointer at these percents, of axes that go from 0.01 to 100 % by powers of ten."""
    (left, right), (bottom, top) = json.loads(tab.run(EDGES))
    across, up = (np.log10(percent / 0.01) / 4 for percent in (memory, tensor))
    tab.run("document.querySelector('.roofline').scrollIntoView()")
    tab.settle()
    at = json.loads(tab.run(CANVAS))
    tab.mouse("mouseMoved", at["left"] + left + (right - left) * across, at["top"] + bottom + (top - bottom) * up)
    tab.settle()
    found: str = tab.run("document.querySelector('.roofline .now').textContent")
    return found


@pytest.fixture
def phases(browser: chromium.Tab, tmp_path: Path) -> chromium.Tab:
    """A second of products and one of copies, both regions, and one of nothing in none."""
    work = [("products", {"tensor": 0.8, "dram": 0.1}), ("copies", {"tensor": 0.0, "dram": 0.8}), ("", {})]
    metrics = known_metrics(("tensor", "sm", "gr", "dram", "issue"), "GH100")
    with writer(tmp_path / "run.cufall", [opened(metrics=metrics)]) as out:
        for k, (name, shares) in enumerate(work):
            out.add(0, doing(metrics, shares, EPOCH + k * SECOND, 1000, "GH100"))
            if name:
                region(out, name, EPOCH + k * SECOND, EPOCH + (k + 1) * SECOND)
    write_html(Reading(tmp_path / "run.cufall", Wanted(("tensor", "dram"))), str(tmp_path / "run.html"))
    browser.problems.clear()
    browser.prefer("light")
    browser.size(*WIDE)
    browser.open(tmp_path / "run.html")
    browser.settle()
    return browser


def test_each_region_is_a_cloud_of_its_shares(phases: chromium.Tab) -> None:
    legend = "[...document.querySelectorAll('.roofline .legend li')].map((li) => li.textContent)"
    assert set(phases.run(legend)) == {"products", "copies", "in no region, or across an edge"}
    assert "products: dram 10.00 %, " in told_at(phases, 10, 80)
    told = told_at(phases, 80, 0.01)
    assert "copies: dram 80.0 %" in told and told.endswith("tensor <.01 %")
    assert told_at(phases, 1, 1) == ""
    phases.run("cufall.setView(0, 1)")
    phases.settle()
    assert phases.run(legend) == ["products"]  # of what is seen
    assert told_at(phases, 80, 0.01) == ""
    assert phases.problems == []


def test_clouds_and_tables_fit_a_phone(phases: chromium.Tab) -> None:
    phases.size(*PHONE, touch=True)
    phases.settle()
    assert phases.run("document.documentElement.scrollWidth") <= PHONE[0]
    assert phases.run("document.querySelector('.roofline canvas').getBoundingClientRect().width") > 200


PAPER = "getComputedStyle(document.body).backgroundColor"


def test_it_is_dark_where_the_system_is_and_where_it_is_told(tab: chromium.Tab) -> None:
    light = tab.run(PAPER)
    tab.prefer("dark")
    dark = tab.run(PAPER)
    assert dark != light
    press(tab, "theme: auto")
    assert tab.run(PAPER) == light
    press(tab, "theme: light")
    tab.prefer("light")
    assert tab.run(PAPER) == dark


def test_a_phone_needs_no_sideways_scrolling(tab: chromium.Tab, page: Path) -> None:
    tab.size(*PHONE, touch=True)
    tab.asked.clear()
    tab.open(page)
    tab.settle()
    assert tab.run("document.documentElement.scrollWidth") <= PHONE[0]
    assert at(line(tab), 5) == pytest.approx(0.5, abs=0.03)


def test_it_prints_in_black_on_white_without_its_switches(tab: chromium.Tab) -> None:
    tab.prefer("dark")
    tab.call("Emulation.setEmulatedMedia", media="print")
    tab.settle()
    assert tab.run(PAPER) == "rgb(255, 255, 255)"
    assert tab.run("document.querySelector('.tools').offsetParent") is None
    tab.call("Emulation.setEmulatedMedia", media="")
    tab.run("addEventListener('afterprint', () => { window.printed = cufall.panels[1].chart.width; })")
    tab.run("addEventListener('beforeprint', () => { window.theme = document.documentElement.dataset.theme; })")
    assert tab.pdf().startswith(b"%PDF")
    tab.settle()
    assert tab.run("theme") == "light"
    assert tab.run("document.documentElement.dataset.theme") == ""
    assert tab.run("printed") > 680  # as wide as the window again


def test_without_chromium_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUFALL_TEST_ALL", "0")
    with pytest.raises(pytest.skip.Exception, match="apt-get install -y chromium"):
        chromium.chromium()
    monkeypatch.setenv("CUFALL_TEST_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install -y chromium"):
        chromium.chromium()
