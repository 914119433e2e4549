"""A training loop whose phases are measured: `python examples/training_loop.py [--tracker tensorboard]`.

Forward, backward and update are regions; a summary of each second goes to a tracker, if one is named. With PyTorch and
a GPU a small network is trained there; without, the same with numpy, which shows the loop and leaves GPUs alone.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import cufall_py
from cufall_py.sinks import MlflowSink, Sink, TensorBoardSink, WandbSink

BATCH, WIDTH, RATE = 256, 256, 1e-3
PHASES = ("forward", "backward", "update")


class Network(Protocol):
    """Two layers that learn to give back half of what they are given. A phase returns when the GPU is through."""

    def forward(self) -> float: ...
    def backward(self) -> None: ...
    def update(self) -> None: ...


class InNumpy:
    def __init__(self) -> None:
        self._draw = np.random.default_rng(0)
        self._first, self._second = (self._random(WIDTH) / 20 for _ in range(2))

    def forward(self) -> float:
        self._given = self._random(BATCH)
        self._hidden = np.maximum(self._given @ self._first, 0)
        self._off = self._hidden @ self._second - self._given / 2
        return float((self._off**2).mean())

    def backward(self) -> None:
        back = (self._off @ self._second.T) * (self._hidden > 0)
        self._steps = self._given.T @ back / BATCH, self._hidden.T @ self._off / BATCH

    def update(self) -> None:
        self._first -= RATE * self._steps[0]
        self._second -= RATE * self._steps[1]

    def _random(self, rows: int) -> NDArray[np.float32]:
        return self._draw.standard_normal((rows, WIDTH), np.float32)


class InTorch:
    def __init__(self, torch: Any) -> None:
        self._torch, nn = torch, torch.nn
        layers = (nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self._network = nn.Sequential(*layers).to("cuda", torch.bfloat16)
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=RATE)

    def forward(self) -> float:
        given = self._torch.randn(BATCH, WIDTH, device="cuda", dtype=self._torch.bfloat16)
        self._loss = (self._network(given) - given / 2).pow(2).mean()
        return float(self._loss)

    def backward(self) -> None:
        self._loss.backward()
        self._torch.cuda.synchronize()  # launches are asynchronous: without it their work would lie in later phases

    def update(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._torch.cuda.synchronize()


def network() -> Network:
    try:
        import torch
    except ImportError:
        return InNumpy()
    return InTorch(torch) if torch.cuda.is_available() else InNumpy()


def sink(tracker: str) -> Sink | None:
    if tracker == "mlflow":
        return MlflowSink()
    if tracker == "wandb":
        return WandbSink()
    if tracker == "tensorboard":
        from tensorboardX import SummaryWriter

        return TensorBoardSink(SummaryWriter())
    return None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="[200]")
    parser.add_argument("--tracker", choices=("none", "mlflow", "wandb", "tensorboard"), default="none")
    parser.add_argument("--record", default="", metavar="FILE", help="keep every sample in this recording")
    parser.add_argument("--source", default="auto", help="what samples; script:FILE has made-up GPUs [auto]")
    return parser.parse_args()


def main() -> None:
    asked, trained = arguments(), network()
    with cufall_py.Session(source=asked.source, sample_us=1000, record=asked.record) as session:
        to = sink(asked.tracker)
        logging: AbstractContextManager[Any] = cufall_py.log_to(session, to) if to else nullcontext()
        with logging:
            for step in range(asked.steps):
                with session.region("forward"):
                    loss = trained.forward()
                with session.region("backward"):
                    trained.backward()
                with session.region("update"):
                    trained.update()
                if step % 50 == 0:
                    print(f"step {step}: loss {loss:.4f}")
        for phase in PHASES:
            of = session.summary(phase)
            print(f"{phase}: tensor {100 * of.mean:.2f} % of the peak, {100 * of.coverage:.0f} % of the time measured")


if __name__ == "__main__":
    try:
        main()
    except cufall_py.CufallError as error:  # no GPU, counters that are denied: a line that says what to do
        sys.exit(str(error))
