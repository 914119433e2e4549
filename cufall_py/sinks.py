"""Where summaries of windows of time can go besides a recording: MLflow, Weights & Biases, TensorBoard, or your own.

`cufall_py.log_to(session, sink)` writes to them (feeding.py). Their libraries are imported where a sink is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from .errors import CufallError

SECONDS = "cufall/seconds"
MOST_AT_ONCE = 1000
"""Metrics that MLflow takes in one call."""


class Sink(Protocol):
    """Takes a window's values at most once a second, from a thread of cufall's; may raise whatever it likes."""

    def write(self, second: int, end_ns: int, values: Mapping[str, float]) -> None:
        """Take a window that ended at `end_ns` (Unix epoch), about so many seconds after logging began.

        `second` grows with each window. `values` by name, such as `cufall/gpu0/tensor.mean`: ratios 0..1, all else
        in the unit that its name ends with; what was not measured is not among them.
        """

    def close(self) -> None:
        """No more windows come."""


class MlflowSink:
    """Metrics of an MLflow run: of this id, or, as MLflow's own functions have it, of the one that is active or begun.

    A run that is begun here ends with the sink. Raises CufallError where MLflow cannot be imported, and what MLflow
    raises for a run or store that cannot be.
    """

    def __init__(self, run_id: str = "") -> None:
        self._mlflow = _library("mlflow")
        active = self._mlflow.active_run()
        self._own = not run_id and not active
        self.run_id: str = run_id or (active or self._mlflow.start_run()).info.run_id
        self._client = self._mlflow.MlflowClient()

    def write(self, second: int, end_ns: int, values: Mapping[str, float]) -> None:
        made = self._mlflow.entities.Metric
        metrics = [made(name, value, end_ns // 1_000_000, second) for name, value in values.items()]
        for some in _at_most(metrics, MOST_AT_ONCE):
            self._client.log_batch(self.run_id, metrics=some)

    def close(self) -> None:
        if not self._own:
            return
        self._client.set_terminated(self.run_id)
        active = self._mlflow.active_run()  # of this thread: in asyncio it may be another than that which began it
        if active and active.info.run_id == self.run_id:
            self._mlflow.end_run()


class WandbSink:
    """History of a W&B run, drawn over `cufall/seconds`.

    In a run that is given, windows do not touch its steps: they are written into the row that the program logs next,
    and of several windows between two of its rows the last is kept. Without one a run of its own is begun, beside any
    other, with a row for each window; it ends with the sink. Raises CufallError where W&B cannot be imported, and what
    W&B raises for a run that cannot be.
    """

    def __init__(self, run: Any = None) -> None:
        self._own = run is None
        self.run = _library("wandb").init(job_type="cufall", reinit="create_new") if self._own else run
        self.run.define_metric(SECONDS, hidden=True)
        self.run.define_metric("cufall/*", step_metric=SECONDS)

    def write(self, second: int, end_ns: int, values: Mapping[str, float]) -> None:
        self.run.log({**values, SECONDS: second}, commit=self._own)

    def close(self) -> None:
        if self._own:
            self.run.finish()


class Writer(Protocol):
    """What is needed of a `SummaryWriter`, that of `torch.utils.tensorboard` or of `tensorboardX`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, walltime: float) -> object: ...

    def flush(self) -> object: ...


class TensorBoardSink:
    """Scalars of a TensorBoard writer, which stays open. Its step is `second`, beside the program's own."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def write(self, second: int, end_ns: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, global_step=second, walltime=end_ns / 1e9)

    def close(self) -> None:
        self._writer.flush()


def _library(name: str) -> Any:
    """A library that is imported only now. Raises CufallError with how to get it."""
    try:
        return import_module(name)
    except ImportError as error:
        why = str(error).partition("\n")[0]
        raise CufallError(f"{name} cannot be imported here: pip install 'cufall-py[{name}]' ({why})") from None


def _at_most(items: Sequence[Any], count: int) -> Iterator[Sequence[Any]]:
    """The same in pieces of so many."""
    for k in range(0, len(items), count):
        yield items[k : k + count]
