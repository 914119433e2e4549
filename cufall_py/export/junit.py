"""Requirements as JUnit XML: a suite a recording, a case for each requirement and GPU."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from cufall_py.judgements import HELD, MISSED, NOT_MEASURABLE, Judgement
from cufall_py.report import Report
from cufall_py.shown import percent
from cufall_py.views.summary import judged_value

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, even escaped."""


def junit(reports: Sequence[tuple[Report, Sequence[Judgement]]]) -> str:
    """The document. What was missed is a failure, what could not be measured an error."""
    root = ET.Element("testsuites", {"name": "cufall", **_counts([j for _, found in reports for j in found])})
    for report, judgements in reports:
        suite = ET.SubElement(root, "testsuite", {"name": _fit(report.path), **_counts(judgements)})
        for judgement in judgements:
            suite.append(_case(report, judgement))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(judgements: Sequence[Judgement]) -> dict[str, str]:
    outcomes = [judgement.outcome for judgement in judgements]
    counts = {"tests": len(outcomes), "failures": outcomes.count(MISSED), "errors": outcomes.count(NOT_MEASURABLE)}
    return {name: str(count) for name, count in counts.items()}


def _case(report: Report, judgement: Judgement) -> ET.Element:
    name = f"{judgement.requirement.text} ({judgement.subject})"
    case = ET.Element("testcase", name=_fit(name), classname=_fit(f"cufall.{report.path}"), time="0")
    rests_on = f"{judgement.samples} samples, coverage {percent(judgement.coverage)}"
    told = judgement.why or f"{judgement.requirement.quantity} is {judged_value(judgement)}"
    if judgement.outcome != HELD:
        kind = "failure" if judgement.outcome == MISSED else "error"
        ET.SubElement(case, kind, message=_fit(told), type=judgement.outcome).text = _fit(f"{told} ({rests_on})")
    ET.SubElement(case, "system-out").text = _fit(f"{told} ({rests_on})")
    return case


def _fit(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
