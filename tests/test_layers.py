"""Imports point down one table; importing costs nothing; what is promised can be imported."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cufall_py

PACKAGE = Path(cufall_py.__file__).parent
VERSION = "cufall_py"
"""The package itself, of which modules may import the version alone."""

LAYERS: dict[str, str] = {
    "errors": "",
    "saying": "",
    "shown": "",
    "host_files": "",
    "scratch": "",
    "export.nulls": "",
    "presets": "",
    "costs": "",
    "peaks": "",
    "metrics": "presets",
    "processes": "",
    "watching": "",
    "readings": "processes watching",
    "pace": "errors",
    "spans": "",
    "samples": "metrics",
    "devices": "errors",
    "verified": "",
    "resolve": "errors metrics presets verified",
    "plan": "errors resolve saying",
    "tables": "errors presets",
    "catalogue": "costs presets resolve tables verified",
    "screening": "metrics samples",
    "ring_file": "errors",
    "marks": "errors ring_file",
    "child": "errors",
    "ring": "errors ring_file samples",
    "frames": "metrics samples",
    "self_cost": "samples",
    "gaps": "samples",
    "owned": "errors",
    "sources": "devices errors metrics plan samples",
    "sources.gpm": "devices errors metrics plan resolve samples sources",
    "sources.auto": "devices errors owned plan ring_file samples sources",
    "sources.script_file": "errors presets",
    "sources.script": "devices errors metrics plan presets resolve samples sources sources.script_file",
    "sources.cupti.*": "devices errors host_files metrics plan presets resolve samples sources tables verified "
    "catalogue",
    "notes": "metrics resolve samples sources",
    "worker": "devices errors owned plan ring ring_file samples screening sources",
    "sampler": "devices errors plan ring_file sources worker",
    "launch": "errors sampler",
    "rotation": "errors",
    "fitting": "devices errors launch plan presets resolve rotation sources",
    "verify.ptx": "",
    "verify.checks": "metrics samples",
    "verify.loads": "errors launch",
    "verify.ncu": "errors launch",
    "verify.device": "errors verify.ptx",
    "verify.experiment": "errors verify.ptx verify.checks verify.loads",
    "doctor.facts": "devices",
    "doctor.findings": "devices doctor.facts",
    "doctor.machine": "doctor.facts doctor.findings",
    "doctor.gpus": "doctor.facts doctor.findings",
    "doctor.surroundings": "ring_file doctor.facts doctor.findings",
    "doctor.diagnosis": "doctor.facts doctor.findings doctor.machine doctor.gpus doctor.surroundings",
    "doctor.*": "devices errors host_files launch ring_file doctor.facts",
    "gpu": "frames gaps devices errors ring samples sources",
    "account": "gpu metrics notes samples self_cost",
    "feed": "gpu launch sampler devices errors metrics plan ring samples sources saying",
    "arrow_file": "errors",
    "keep": "errors",
    "outline": "samples spans",
    "thinning": "arrow_file outline samples sources",
    "rewriting": "arrow_file keep sources spans thinning",
    "kept_file": "arrow_file errors keep rewriting saying sources",
    "recording_layout": "arrow_file keep plan rotation samples sources thinning cufall_py",
    "recording": "arrow_file gaps keep kept_file outline plan recording_layout rotation samples saying sources "
    "thinning",
    "live_recording": "keep plan readings recording rotation samples saying self_cost sources",
    "recording_reader": "errors keep plan samples sources arrow_file outline recording_layout rotation saying thinning",
    "part": "errors outline spans",
    "recorded_metrics": "errors metrics presets resolve rotation samples sources",
    "span_frames": "frames metrics outline samples spans",
    "pyramid": "metrics outline recording_reader samples span_frames spans thinning",
    "copying": "metrics outline recorded_metrics recording recording_reader span_frames spans",
    "recorder": "child errors marks outline saying",
    "played": "frames outline readings recording_reader spans",
    "playback": "copying devices errors frames keep metrics notes outline pace part plan played readings "
    "recorded_metrics recording recording_reader resolve rotation samples sources span_frames spans saying",
    "analysis.advice": "",
    "analysis.evidence": "",
    "analysis.decision_table": "errors analysis.evidence",
    "analysis.verdict": "analysis.decision_table analysis.evidence",
    "analysis.verdict_frames": "metrics samples analysis.evidence",
    "analysis.verdict_windows": "metrics presets samples shown analysis.decision_table analysis.evidence "
    "analysis.verdict analysis.verdict_frames",
    "analysis.phase_lag": "",
    "analysis.groups": "devices errors analysis.decision_table analysis.phase_lag",
    "analysis.recent": "metrics analysis.decision_table analysis.evidence analysis.verdict analysis.verdict_frames "
    "analysis.verdict_windows",
    "analysis.*": "metrics outline samples shown spans analysis.decision_table analysis.verdict "
    "analysis.verdict_frames analysis.verdict_windows",
    "analysis.verdict_bins": "spans analysis.* analysis.decision_table analysis.verdict analysis.verdict_frames",
    "report": "analysis.* analysis.evidence analysis.groups analysis.verdict_windows devices errors keep metrics "
    "outline part readings recorded_metrics recording_reader resolve rotation sources spans saying",
    "requirements": "analysis.* analysis.decision_table devices errors presets",
    "judgements": "analysis.* analysis.decision_table analysis.verdict_windows metrics requirements",
    "analysis.limits": "errors",
    "analysis.streamed": "",
    "analysis.intervals": "",
    "analysis.series": "errors metrics outline recorded_metrics recording_reader resolve samples sources span_frames "
    "spans analysis.streamed saying",
    "analysis.comparison": "errors analysis.intervals analysis.limits analysis.series analysis.streamed",
    "analysis.models": "",
    "analysis.ceiling": "peaks analysis.models",
    "headroom": "analysis.* analysis.ceiling analysis.models peaks report",
    "analysis.likeness": "readings analysis.limits analysis.series",
    "analysis.scrapes": "",
    "analysis.phases": "analysis.scrapes",
    "analysis.concurrency": "analysis.intervals analysis.scrapes",
    "engines": "",
    "engines.table": "",
    "engines.known": "engines.table",
    "engines.reading": "engines.table",
    "engines.page": "errors engines.known engines.reading engines.table",
    "engines.rates": "engines.reading engines.table",
    "engines.columns": "analysis.scrapes engines.rates",
    "engines.failures": "",
    "engines.fetch": "errors engines.failures engines.known",
    "engines.scraper": "engines.fetch engines.page engines.reading watching",
    "engines.find": "processes engines.fetch engines.page engines.reading engines.scraper",
    "engines.servers": "errors engines.fetch engines.find engines.page engines.scraper",
    "engines.events": "engines.known engines.reading engines.table",
    "engines.driven": "",
    "engines.drive": "errors engines.driven engines.fetch",
    "server_gpus": "errors engines.servers saying",
    "served": "analysis.concurrency analysis.phases analysis.scrapes engines.columns engines.events engines.rates "
    "engines.reading part plan playback recording_reader requirements spans",
    "served_frames": "engines.columns served",
    "served_judgements": "analysis.* analysis.concurrency engines.columns errors judgements outline plan "
    "recording_reader report requirements resolve served",
    "turn_recording": "keep live_recording plan rotation samples saying self_cost sources",
    "session": "*",
    "turns": "errors fitting frames keep launch plan readings rotation samples saying self_cost session sources spans "
    "turn_recording",
    "views.*": "frames metrics shown",
    "views.listing": "catalogue costs",
    "views.comparison": "analysis.comparison analysis.intervals analysis.limits analysis.series export.nulls shown "
    "views.listing",
    "views.doctor": "doctor.findings doctor.diagnosis",
    "views.timeline": "metrics readings views.*",
    "views.html_data": "analysis.decision_table analysis.verdict_bins metrics outline pyramid samples spans views.*",
    "views.html_report": "shown views.* views.html_data",
    "views.verdict": "analysis.advice analysis.decision_table analysis.verdict_windows presets shown views.*",
    "views.verdict_screen": "analysis.advice analysis.decision_table analysis.verdict_windows views.* views.verdict",
    "views.groups": "analysis.groups shown views.*",
    "views.means": "analysis.* shown views.*",
    "views.summary": "analysis.* judgements keep metrics outline report shown views.* views.groups views.means "
    "views.verdict",
    "views.served": "analysis.concurrency analysis.phases engines.rates engines.reading served shown views.*",
    "views.served_screen": "views.* views.served",
    "views.served_plot": "analysis.concurrency served views.served",
    "views.driven": "engines.driven views.* views.served",
    "views.headroom": "analysis.ceiling analysis.models headroom peaks shown views.*",
    "views.verification": "shown verify.checks views.*",
    "views.notebook": "analysis.* shown",
    "measured": "analysis.* errors judgements metrics requirements samples sources spans views.notebook",
    "background": "errors frames measured outline plan readings samples self_cost session sources",
    "export.*": "frames sources",
    "export.trace": "devices metrics outline pyramid recording_reader samples sources span_frames spans",
    "export.headroom": "headroom export.nulls",
    "export.github": "judgements views.summary",
    "export.junit": "judgements report shown views.summary",
    "export.summary": "analysis.* analysis.advice analysis.decision_table analysis.groups analysis.verdict_windows "
    "judgements keep report export.nulls cufall_py",
    "export.served": "analysis.concurrency engines.driven engines.rates judgements served export.nulls export.summary "
    "cufall_py",
    "export.parquet": "analysis.* recording_reader sources spans",
    "streams": "frames outline",
    "followed": "engines.rates engines.reading engines.scraper engines.servers frames",
    "attachment": "analysis.* analysis.verdict_windows background engines.events engines.rates engines.reading "
    "engines.servers errors followed frames judgements measured plan playback recording_reader report "
    "requirements saying scratch served served_frames served_judgements sources streams views.notebook views.served",
    "played_attachment": "engines.rates engines.reading engines.servers errors followed frames pace plan playback "
    "saying served sources",
    "sinks": "errors",
    "feeding": "analysis.* attachment background engines.rates errors measured requirements saying served sinks",
    "attaching": "attachment engines.servers errors plan requirements resolve saying server_gpus",
    "pytest_words": "judgements measured requirements shown views.summary",
    "pytest_run": "background errors plan resolve",
    "pytest_plugin": "background errors measured pytest_run pytest_words requirements",
}
"""What each module may import of this package; those below are written first. `*`: all that is above it here,
but for the families. A family `a.*` may also import among itself. `cli` may import anything."""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def row_of(module: str) -> str | None:
    """The row of the table that a module is in."""
    if module in LAYERS:
        return module
    families = [row for row in LAYERS if row.endswith(".*") and f"{module}.".startswith(row[:-1])]
    return max(families, key=len) if families else None


def allowed(row: str) -> set[str]:
    if LAYERS[row] == "*":
        below = list(LAYERS)[: list(LAYERS).index(row)]
        return {name for name in below if not name.endswith(".*")}
    return {*LAYERS[row].split(), row}


def imports(module: str) -> Iterator[tuple[str, int, bool]]:
    """Modules of this package that a module imports anywhere: their name, the line, whether within a function."""
    tree = ast.parse(MODULES[module].read_text())
    inner = {id(node) for function in ast.walk(tree) if isinstance(function, FUNCTIONS) for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in names_of(module, node):
                yield name, node.lineno, id(node) in inner


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def names_of(module: str, node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        full = [alias.name for alias in node.names]
    else:
        base = base_of(module, node)
        full = [f"{base}.{alias.name}" for alias in node.names]
    return {inner_name(name) for name in full if name.split(".")[0] == "cufall_py"}


def base_of(module: str, node: ast.ImportFrom) -> str:
    """The absolute name of what stands between `from` and `import`."""
    if not node.level:
        return node.module or ""
    package = ["cufall_py", *module.split(".")] if module else ["cufall_py"]
    if MODULES[module].name != "__init__.py":
        package = package[:-1]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *filter(None, [node.module])])


def inner_name(full: str) -> str:
    """The longest beginning of a dotted name that is a module: `errors` of cufall_py.errors.UsageError."""
    parts = full.split(".")[1:]
    for count in range(len(parts), 0, -1):
        if ".".join(parts[:count]) in MODULES:
            return ".".join(parts[:count])
    return VERSION


def outward(module: str) -> set[str]:
    """Packages from elsewhere that a module imports anywhere."""
    nodes = list(ast.walk(ast.parse(MODULES[module].read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.split(".")[0] for name in plain | named}


BELOW_THE_TOP = [m for m in MODULES if m and row_of(m) is not None]


@pytest.mark.parametrize("module", BELOW_THE_TOP)
def test_imports_point_down(module: str) -> None:
    row = row_of(module)
    assert row
    for name, line, within_function in imports(module):
        if module == "sources" and name.startswith("sources."):
            assert within_function, f"{MODULES[module]}:{line}: {name} is loaded only when it is asked for"
            continue
        assert name in allowed(row) or row_of(name) in allowed(row), f"{MODULES[module]}:{line}: must not import {name}"


def test_every_module_has_its_place() -> None:
    homeless = [m for m in MODULES if m and row_of(m) is None and m.split(".")[0] not in ("cli", "__main__")]
    bare = [m for m in homeless if MODULES[m].name != "__init__.py" or list(imports(m))]
    assert bare == [], "give it a row in LAYERS, below all that it imports"


def test_the_table_itself_points_down() -> None:
    rows = list(LAYERS)
    for at, row in enumerate(rows):
        named = set(LAYERS[row].split()) - {VERSION, "*"}
        assert named <= set(rows[:at]), f"{row} stands above {named - set(rows[:at])}"


def test_only_what_programs_and_people_use_stands_above_the_session() -> None:
    importers = {m for m in MODULES if m for name, _, _ in imports(m) if name == "session"}
    assert {m.split(".")[0] for m in importers} <= {"cli", "background", "turns"}


def test_nothing_imports_the_command_line() -> None:
    importers = {m for m in MODULES if m for name, _, _ in imports(m) if name.split(".")[0] == "cli"}
    assert {m.split(".")[0] for m in importers} <= {"cli", "__main__"}


def test_only_the_bindings_import_cupti() -> None:
    assert [m for m in MODULES if "cupti" in outward(m)] == ["sources.cupti.bindings", "sources.cupti.host"]


def test_only_what_computes_imports_cuda() -> None:
    assert [m for m in MODULES if "cuda" in outward(m)] == ["verify.device"]


def test_a_wrong_import_would_be_seen() -> None:
    # what the checks above rest on, on sources that have one of each kind
    assert ("samples", False) in {(name, inner) for name, _, inner in imports("ring")}
    assert ("sources.cupti.source", True) in {(name, inner) for name, _, inner in imports("sources")}
    assert "sources.cupti.times" in {name for name, _, _ in imports("sources.cupti.source")}
    assert "sampler" in {name for name, _, _ in imports("feed")}
    assert "session" not in allowed("ring") and "samples" in allowed("ring")


HEAVY = ("numpy", "pandas", "rich", "cupti", "pynvml", "pyarrow")


def loaded_by(code: str) -> list[str]:
    """Which of the heavy packages a fresh Python has after this code."""
    told = f"{code}\nimport sys; print('loaded:', *[n for n in {HEAVY} if n in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", told],
        cwd=PACKAGE.parent,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.rsplit("loaded:", 1)[1].split()


CALL = """
import sys
from cufall_py.cli import main
sys.argv = ["cufall", {words}]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""


@pytest.mark.parametrize(
    "code",
    ["import cufall_py", "import cufall_py.cli", CALL.format(words="'--help'"), CALL.format(words="'live', '--help'")],
    ids=["import", "import of the command line", "--help", "live --help"],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str) -> None:
    assert loaded_by(code) == []


def test_a_recording_does_not_wait_for_pandas(tmp_path: Path) -> None:
    # which Arrow loads to make an array: most of a second, in which a kill would leave an empty file
    words = ["record", "--source", "demo", "--keep", "1s@full,forever@100ms", "-o", str(tmp_path / "x.cufall")]
    assert "pandas" not in loaded_by(CALL.format(words=str(words)[1:-1]))


def test_what_is_loaded_is_seen() -> None:
    assert loaded_by("import numpy") == ["numpy"]


def test_everything_promised_can_be_imported() -> None:
    assert sorted(cufall_py.__all__) == cufall_py.__all__
    for name in cufall_py.__all__:
        assert getattr(cufall_py, name) is not None
    assert set(cufall_py.__all__) <= set(dir(cufall_py))


def test_a_name_that_is_not_promised_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sampler'"):
        cufall_py.Sampler  # noqa: B018


def test_promised_names_are_what_their_modules_call_them() -> None:
    for name in set(cufall_py.__all__) - {"__version__"}:
        thing = getattr(cufall_py, name)
        assert getattr(importlib.import_module(thing.__module__), name) is thing
