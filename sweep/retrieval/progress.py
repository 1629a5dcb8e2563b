"""What long work tells of itself."""

__all__ = ["Progress", "Silent"]

from typing import Protocol


class Progress(Protocol):
    """Told what is being done. Units are tokens read by a model, the one thing that takes long."""

    def total(self, units: int) -> None:
        """About so many units are left to do."""

    def configuration(self, text: str) -> None:
        """A new configuration has begun."""

    def stage(self, text: str) -> None:
        """A new stage of it has begun."""

    def advance(self, units: int) -> None:
        """Units of the announced total are done."""


class Silent:
    """Shows nothing."""

    def total(self, units: int) -> None:
        """Do nothing."""

    def configuration(self, text: str) -> None:
        """Do nothing."""

    def stage(self, text: str) -> None:
        """Do nothing."""

    def advance(self, units: int) -> None:
        """Do nothing."""
