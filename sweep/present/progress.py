"""A progress bar on stderr: what is being done, how much of the study's work is done, how long is left."""

__all__ = ["Bar"]

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bar:
    """A `Progress` drawn by rich; use it as a context."""

    def __init__(self) -> None:
        columns = (
            BarColumn(12),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=120)
        self._configuration = ""
        self._task = self._progress.add_task("starting", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def total(self, units: int) -> None:
        """Set the work that is left to do."""
        self._progress.update(self._task, total=units)

    def configuration(self, text: str) -> None:
        """Name what is being run."""
        self._configuration = f"{text} · "

    def stage(self, text: str) -> None:
        """Name what is being done."""
        self._progress.update(self._task, description=self._configuration + text)

    def advance(self, units: int) -> None:
        """Count work as done."""
        self._progress.advance(self._task, units)
