"""Writing an export: strict JSON, a temporary name, then renamed."""

__all__ = ["Bundle", "text", "write"]

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.artifacts import replaced

Bundle = Mapping[str, Any]  # file name → JSON value, or text


def text(content: Any) -> str:
    """Return a file's text: JSON in UTF-8 without NaN, or the text itself."""
    if isinstance(content, str):
        return content
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write(bundle: Bundle, folder: Path) -> list[Path]:
    """Write the files of a bundle into a folder, made where absent; each is whole or not there. Raises StorageError."""
    paths = []
    for name, content in bundle.items():
        with replaced(folder / name) as temporary:
            temporary.write_text(text(content), encoding="utf-8")
        paths.append(folder / name)
    return paths
