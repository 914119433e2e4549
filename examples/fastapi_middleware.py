"""A FastAPI server that knows how busy its requests keep the GPUs:

    uvicorn --app-dir examples fastapi_middleware:app
    curl -X POST localhost:8000/embed; curl 'localhost:8000/busy?region=/embed'

Each request is a region named by its path, and so is what a handler names itself; a region costs a request 2 us. GPUs
are sampled in another process. CUFALL_SOURCE=script:FILE has made-up ones. Needs fastapi and uvicorn.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException

import cufall_py


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    source = os.environ.get("CUFALL_SOURCE", "auto")
    async with await asyncio.to_thread(cufall_py.Session, source=source) as app.state.gpus:
        yield


class Regions:
    """Makes a region of each request, for any ASGI server whose state has `gpus`.

    Where paths have numbers of things in them, name the route instead: each name is a row of every table.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with scope["app"].state.gpus.region(scope["path"]):
            await self.app(scope, receive, send)


app = FastAPI(lifespan=lifespan)
app.add_middleware(Regions)


@app.post("/embed")
async def embed() -> dict[str, int]:
    async with app.state.gpus.region("wait for the model"):
        await asyncio.sleep(0.3)  # in place of a model that is awaited
    return {"dimensions": 1024}


@app.post("/score")
def score() -> dict[str, float]:
    with app.state.gpus.region("compute"):
        time.sleep(0.3)  # in place of a model that is called; FastAPI does this in a thread
    return {"score": 0.5}


@app.get("/busy")
async def busy(region: str = "", metric: str = "tensor") -> dict[str, Any]:
    """Of the time in a region, or all: the mean of a metric, null where nothing was measured."""
    try:
        of = await app.state.gpus.aio(app.state.gpus.summary, region, metric)
    except cufall_py.CufallError as error:
        raise HTTPException(404, str(error)) from None
    return {"mean": None if math.isnan(of.mean) else of.mean, "coverage": of.coverage, "samples": of.samples}
