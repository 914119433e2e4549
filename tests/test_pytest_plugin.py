"""The plugin of pytest, in runs of pytest of their own: scripted GPUs, real workers."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cufall_py import Recording
from tests.helpers import lacking
from tests.scripted import ROOT, cufall as cufall_command, fault, script

ENTRY_POINT = re.search(r"\[project\.entry-points\.pytest11\]\n((?:.+\n)+)", (ROOT / "pyproject.toml").read_text())
HEAVY = ("numpy", "pandas", "pyarrow", "rich", "click", "pynvml", "cupti", "cufall_py.session")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder for tests, in which pytest finds the plugin by the entry point that an installed cufall has."""
    assert ENTRY_POINT
    installed = pytester.mkdir("installed") / "cufall_stub-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: cufall-stub\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("[pytest11]\n" + ENTRY_POINT[1].replace('"', ""))
    monkeypatch.syspath_prepend(str(installed.parent))
    monkeypatch.setenv("PYTHONPATH", f"{installed.parent}:{ROOT}")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider")
    return pytester


def run(project: pytest.Pytester, tests: str, *words: str, source: str = "") -> pytest.RunResult:
    """Run them in this process, on a GPU that is half busy unless told otherwise."""
    project.makepyfile(f"import time\nimport pytest\n{tests}")
    return project.runpytest_inprocess("--cufall-source", source or script(project.path), *words)


def run_apart(project: pytest.Pytester, tests: str, *words: str) -> pytest.RunResult:
    """Run them in a process of their own, on a GPU that is half busy."""
    project.makepyfile(f"import time\nimport pytest\n{tests}")
    return project.runpytest_subprocess("--cufall-source", script(project.path), *words, timeout=60)


FIXTURE = """
def test_decode(cufall):
    with cufall("decode") as m:
        time.sleep(0.2)
    found = m.summary("tensor")
    assert found.mean == pytest.approx(0.5)
    assert (found.p50, found.min) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (found.below_1, found.above_90, found.longest_idle_s) == (0, 0, 0)
    assert found.coverage == pytest.approx(1.0)
    assert 150 < found.samples
"""


def test_a_test_measures_its_own_time_and_asserts_on_it(project: pytest.Pytester) -> None:
    ended = run_apart(project, FIXTURE)
    ended.assert_outcomes(passed=1)
    ended.stdout.fnmatch_lines(["*= cufall =*", "* samples in * s, 0 lost (0.000 s)*"])


def test_a_plain_assertion_that_fails_shows_the_statistics(project: pytest.Pytester) -> None:
    tests = "def test(cufall):\n with cufall('a') as m: time.sleep(.1)\n assert m.summary('tensor').mean > 0.9"
    ended = run(project, tests)
    ended.stdout.fnmatch_lines(["E * assert 0.5* > 0.9", "E * where 0.5* = Statistics(label='tensor', *"])


def test_a_mark_judges_the_call_alone(project: pytest.Pytester) -> None:
    """The GPU is idle while the test is being set up."""
    tests = """
@pytest.fixture
def long_setup():
    time.sleep(1.0)

@pytest.mark.cufall(require=["tensor.mean >= 90%", "coverage >= 99%", "tensor.longest_idle_s < 0.01"])
def test_call(long_setup):
    time.sleep(0.3)
"""
    ended = run(project, tests, source=busy_after(project.path, 0.7))
    ended.assert_outcomes(passed=1)


def busy_after(folder: Path, seconds: float) -> str:
    return script(folder, pattern=[{"ms": 1000 * seconds}, {"ms": 100_000, "tensor": 1.0}])


def test_what_did_not_hold_reads_like_an_assertion(project: pytest.Pytester) -> None:
    patterns = [[{"ms": 10, "tensor": 0.5}], [{"ms": 10, "tensor": 0.25}]]
    tests = "@pytest.mark.cufall(require='tensor.mean >= 30%')\ndef test(): time.sleep(0.2)"
    ended = run(project, tests, source=script(project.path, gpus=2, patterns=patterns))
    ended.assert_outcomes(failed=1)
    ended.stdout.re_match_lines(
        [
            r"^assert tensor\.mean >= 30%$",
            r"^ \+  where tensor\.mean = 25\.0% on GPU 1 \(\d{3} samples of 1 ms, coverage 100%\)$",
        ],
        consecutive=True,
    )
    assert "GPU 0" not in ended.stdout.str()
    assert "Traceback" not in ended.stdout.str()


def test_marks_of_a_class_and_of_a_test_count_both(project: pytest.Pytester) -> None:
    tests = """
@pytest.mark.cufall(require="tensor.mean > 40%")
class TestBoth:
    @pytest.mark.cufall(require="tensor.mean < 45%")
    def test_one(self): time.sleep(0.1)
    def test_other(self): time.sleep(0.1)
"""
    ended = run(project, tests)
    ended.assert_outcomes(passed=1, failed=1)
    ended.stdout.fnmatch_lines(["assert tensor.mean < 45%"])


def test_a_requirement_may_name_a_region_of_the_test(project: pytest.Pytester) -> None:
    tests = """
@pytest.mark.cufall(require=["tensor.mean[busy] > 90%", "tensor.mean[idle] < 1%", "tensor.mean[other] < 1%"])
def test(cufall):
    with cufall("idle"):
        time.sleep(0.1)
    time.sleep(1.5)
    with cufall("busy"):
        time.sleep(0.1)
"""
    ended = run(project, tests, source=busy_after(project.path, 1.5))
    ended.assert_outcomes(failed=1)
    assert told(ended) == ["not measurable: tensor.mean[other] < 1%", " +  this test measured no such region"]


def told(ended: pytest.RunResult) -> list[str]:
    """What the first failure says."""
    lines = ended.stdout.lines
    begin = next(k for k, line in enumerate(lines) if re.match(r"_+ .*test", line)) + 1
    end = next(k for k in range(begin, len(lines)) if re.match(r"[_=]+ ", lines[k]))
    return lines[begin:end]


@pytest.mark.parametrize(
    "require, words",
    [
        ("tensor.mean > 30%", " +  on GPU 0: 0 whole samples, at least 20 are needed (0 samples, coverage *"),
        ("dram.mean > 30%", " +  dram is not sampled; it must be among --cufall-metric"),
    ],
)
def test_what_cannot_be_measured_fails_in_words_of_its_own(project: pytest.Pytester, require: str, words: str) -> None:
    tests = f"@pytest.mark.cufall(require='{require}')\ndef test(): pass"
    ended = run(project, tests, "--cufall-sample-us", "50000")
    ended.assert_outcomes(failed=1)
    ended.stdout.fnmatch_lines([f"not measurable: {require}", words], consecutive=True)


def test_a_call_that_was_measured_in_part_is_not_judged(project: pytest.Pytester) -> None:
    """Half a second of two is missing; `coverage` itself can be judged."""
    tests = """
@pytest.mark.cufall(require=["tensor.mean > 30%", "coverage > 1%", "coverage > 99%"])
def test(): time.sleep(2.0)
"""
    ended = run(project, tests, source=script(project.path, faults=[fault(0, "gap", 1.2, 0.5)]))
    ended.assert_outcomes(failed=1)
    ended.stdout.re_match_lines(
        [
            r"^not measurable: tensor\.mean > 30%$",
            r"^ \+  on GPU 0: too little was measured, at least 90\.0% is needed \(\d+ samples of 1 ms, coverage [67]",
            r"^assert coverage > 99%$",
            r"^ \+  where coverage = [67][0-9.]+% on GPU 0 \(",
        ],
        consecutive=True,
    )


def test_a_test_that_fails_by_itself_is_left_to_its_own_words(project: pytest.Pytester) -> None:
    ended = run(project, "@pytest.mark.cufall(require='tensor.mean > 90%')\ndef test():\n time.sleep(0.1)\n assert 0")
    ended.assert_outcomes(failed=1)
    ended.stdout.no_fnmatch_line("*tensor.mean = *")


WRONG = {
    "require='tensor.maen > 3%'": "cufall: unknown statistic maen*",
    "require='tensor.mean[[gpu=3]] > 3%'": "cufall: no GPU 3; there are 0 *",
    "": "pytest.mark.cufall takes require=, a string or a list of strings",
    "require=[]": "pytest.mark.cufall takes require=*",
    "require=3": "pytest.mark.cufall takes require=*",
    "requires='coverage > 3%'": "pytest.mark.cufall takes require=*",
}


def test_a_mark_that_is_wrong_is_told_and_never_skipped(project: pytest.Pytester) -> None:
    tests = [f"@pytest.mark.cufall({words})\ndef test_{k}(): time.sleep(0.1)" for k, words in enumerate(WRONG)]
    ended = run(project, "\n".join(tests).replace("[[", "[").replace("]]", "]"))
    ended.assert_outcomes(errors=len(WRONG) - 1, failed=1)
    for words in WRONG.values():
        ended.stdout.fnmatch_lines([words])


USES = FIXTURE + "@pytest.mark.cufall(require='tensor.mean > 1%')\ndef test_marked(): pass\ndef test_other(): pass\n"


def test_without_counters_tests_that_measure_are_skipped_with_the_reason(project: pytest.Pytester) -> None:
    ended = run(project, USES, "-rs", source=script(project.path, faults=[fault(0, "denied")]))
    ended.assert_outcomes(skipped=2, passed=1)
    assert len([line for line in ended.stdout.lines if re.match(r"SKIPPED .*: cufall: GPU 0 .*denied", line)]) == 2


def test_without_counters_they_fail_where_these_are_required(project: pytest.Pytester) -> None:
    ended = run(project, USES, "--cufall-required", source=script(project.path, faults=[fault(0, "denied")]))
    ended.assert_outcomes(errors=2, passed=1)
    ended.stdout.fnmatch_lines(["cufall: GPU 0*"])


@pytest.mark.parametrize(
    "words, told",
    [
        (["--cufall-source", "demo"], "cufall: --cufall-source demo: not auto, cupti, gpm or script:FILE"),
        (["--cufall-metric", "tensro"], "cufall: --metric tensro: neither a short name *did you mean tensor?"),
        (["--cufall-sample-us", "fast"], "cufall: --sample-us fast: must be a whole number from 5 to 100000"),
        (["--cufall-sample-us", "1"], "cufall: --sample-us 1: must be a whole number from 5 to 100000"),
        (["--cufall-devices", "7"], "cufall: *7*no such GPU*"),
        (["--cufall-record", "none/run.cufall"], "cufall: *none/run.cufall*: No such file or directory"),
        (["--cufall-record", "/dev/full"], "cufall: */dev/full*: No space left on device"),
    ],
)
def test_a_wrong_option_is_told_and_never_skipped(project: pytest.Pytester, words: list[str], told: str) -> None:
    ended = run(project, FIXTURE, *words)
    ended.assert_outcomes(errors=1)
    ended.stdout.fnmatch_lines([told])


def test_options_may_be_in_the_ini_file_and_those_given_count_first(project: pytest.Pytester) -> None:
    project.makeini(
        f"[pytest]\ncufall_source = {script(project.path, gpus=2)}\ncufall_sample_us = 2000\ncufall_devices = 1\n"
        "cufall_metric =\n    tensor\n    sm\n"
    )
    project.makepyfile(
        """
        import time

        def test(cufall):
            with cufall("a") as m:
                time.sleep(0.2)
            assert m.all().metrics == ("tensor", "sm")
            assert [s.ordinal for s in m.all().subjects] == [1]
            print("period", m.all().periods_ns)
        """
    )
    for words, period_ns in (((), "2000000.0"), (("--cufall-sample-us", "4000"), "4000000.0")):
        ended = project.runpytest_inprocess("-rP", *words)
        ended.assert_outcomes(passed=1)
        ended.stdout.fnmatch_lines([f"period ({period_ns},)"])


def test_the_mark_is_registered(project: pytest.Pytester) -> None:
    ended = run(project, "@pytest.mark.cufall(require='coverage > 9%')\ndef test(): time.sleep(.1)", "--strict-markers")
    ended.assert_outcomes(passed=1)
    project.runpytest_inprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.cufall(require): *"])


def test_one_session_serves_a_run_and_ends_with_it(project: pytest.Pytester) -> None:
    tests = """
import psutil
seen = set()
@pytest.mark.parametrize("k", range(3))
def test(cufall, k):
    with cufall("a"):
        pass
    seen.add(tuple(process.pid for process in psutil.Process().children(recursive=True)))
    assert len(seen) == 1
"""
    run_apart(project, tests).assert_outcomes(passed=3)


def test_a_recording_has_a_region_for_each_test(project: pytest.Pytester) -> None:
    tests = """
def test_plain(): time.sleep(0.1)
@pytest.mark.cufall(require="tensor.mean > 99%")
def test_missed(cufall):
    with cufall("decode"):
        time.sleep(0.1)
@pytest.mark.skip
def test_not(): pass
"""
    path = project.path / "run.cufall"
    for _ in range(2):  # what an earlier run left is written over, as its other reports are
        run(project, tests, "--cufall-record", str(path)).assert_outcomes(passed=1, failed=1, skipped=1)
    regions, name = Recording(path).regions(), "test_a_recording_has_a_region_for_each_test.py"
    assert set(regions) == {f"{name}::test_plain", f"{name}::test_missed", "decode"}
    (plain,) = regions[f"{name}::test_plain"]
    assert 0.1 <= (plain.end_ns - plain.start_ns) / 1e9 < 1
    assert Recording(path).whole


def test_where_nothing_can_be_recorded_tests_run_all_the_same(project: pytest.Pytester) -> None:
    source, path = script(project.path, faults=[fault(0, "denied")]), str(project.path / "run.cufall")
    ended = run(project, "def test(): pass", "--cufall-record", path, source=source)
    ended.assert_outcomes(passed=1)
    ended.stdout.fnmatch_lines(["*= cufall =*", "there is no recording: GPU 0*"])
    run(project, "def test(): pass", "--cufall-record", path, "--cufall-required", source=source).assert_outcomes(
        errors=1
    )


def test_nothing_heavy_is_loaded_before_a_test_asks_for_it(project: pytest.Pytester) -> None:
    tests = f"import sys\ndef test(): assert [n for n in {HEAVY} if n in sys.modules] == []"
    tests += "\ndef test_plugin(pytestconfig): assert pytestconfig.pluginmanager.has_plugin('cufall')"
    run_apart(project, tests, "-p", "no:hypothesispytest").assert_outcomes(passed=2)


def test_of_the_workers_of_xdist_the_first_to_come_samples(project: pytest.Pytester) -> None:
    if not find_spec("xdist"):
        lacking("needs pytest-xdist: pip install pytest-xdist")
    tests = """
@pytest.mark.parametrize("k", range(2))
def test(cufall, k):
    with cufall("a") as m:
        time.sleep(0.3)
    assert m.summary("tensor").mean == pytest.approx(0.5)
    time.sleep(1.0)
def test_other(): pass
"""
    ended = run_apart(project, tests, "-n2", "-rs")
    ended.assert_outcomes(passed=2, skipped=1)
    ended.stdout.fnmatch_lines(["*cufall: another worker of xdist samples the GPUs of this run; keep tests that *"])
    ended.stdout.fnmatch_lines(["*= cufall =*", "* samples in * s, *"])
    run_apart(project, tests, "-n2", "--dist", "loadfile").assert_outcomes(passed=3)


def test_what_the_page_shows_runs_as_it_stands_there(project: pytest.Pytester) -> None:
    page = (ROOT / "docs" / "pytest.md").read_text(encoding="utf-8")
    tests, program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    project.makepyfile(model="import time\ndef decode(tokens): time.sleep(tokens / 256)")
    run(project, tests).assert_outcomes(passed=2)
    run(project, tests, source=script(project.path, faults=[fault(0, "denied")])).assert_outcomes(skipped=2)
    source = script(project.path)
    told = project.run(sys.executable, "-c", program.replace("Plan(", f"Plan(source={source!r}, "))
    assert told.ret == 0
    told.stdout.re_match_lines([r"0\.(5|49)\d* \[Judgement\(.*outcome='held'"])


def test_every_option_is_in_the_page(project: pytest.Pytester) -> None:
    page = (ROOT / "docs" / "pytest.md").read_text(encoding="utf-8")
    options = re.findall(r"^  (--cufall-[a-z-]+)", project.runpytest_inprocess("--help").stdout.str(), re.MULTILINE)
    assert len(options) == 6
    assert [option for option in options if f"| `{option}" not in page] == []


def test_the_region_of_a_test_can_be_reported(project: pytest.Pytester) -> None:
    path = project.path / "run.cufall"
    project.makepyfile(test_own="import time\ndef test_busy(): time.sleep(0.1)")
    words = ("--cufall-source", script(project.path), "--cufall-record", str(path))
    project.runpytest_inprocess(*words).assert_outcomes(passed=1)
    told = cufall_command("report", str(path), "--region", "test_own.py::test_busy", "--require", "tensor.mean > 40%")
    assert told.returncode == 0, told.stderr
