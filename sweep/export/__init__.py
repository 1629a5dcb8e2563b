"""For other systems: one file a target, and the table of targets."""

from collections.abc import Callable

from sweep.export.files import Bundle, text, write
from sweep.export.json_settings import json_settings
from sweep.present.results import StudyResults

__all__ = ["TARGETS", "Bundle", "text", "write"]

TARGETS: dict[str, Callable[[StudyResults, str], Bundle]] = {"json": json_settings}
