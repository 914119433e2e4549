"""Make the page and the trace of a recording: docs/make_page.py FILE OUT.html [OUT.json] [REGION]."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cufall_py import Recording
from cufall_py.cli.pages import shown, write_html, write_trace
from cufall_py.part import Part

file, page, *more = sys.argv[1:]
began = time.monotonic()
what = shown(Recording(file), Path(file).name, Part(region=more[1] if len(more) > 1 else ""))
write_html(what, page)
print(f"{page}: {Path(page).stat().st_size:,} bytes in {time.monotonic() - began:.1f} s")
if more:
    write_trace(what, more[0])
