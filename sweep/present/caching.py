"""The cache that studies share, for the terminal: what it holds, and what was removed from it."""

__all__ = ["cache_info", "info_lines", "parse_size", "prune_cache", "prune_lines"]

import re
import time
from collections.abc import Mapping
from typing import Any

from sweep.artifacts.cache import Usage, prune, usage
from sweep.errors import InputError
from sweep.optimize.study import HOME

CACHE = HOME / "cache"
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?b)?", re.IGNORECASE)


def cache_info() -> dict[str, Any]:
    """Return what the cache of the working folder holds, by stage; sizes in bytes, times as ISO 8601 with offset."""
    stages, leftovers = usage(CACHE)
    return {
        "folder": str(CACHE),
        **_total(stages),
        "leftover_files": leftovers.files,
        "leftover_bytes": leftovers.bytes,
    }


def info_lines(found: Mapping[str, Any]) -> list[str]:
    """Say it in lines for a terminal."""
    lines = [f"{found['folder']}: {_count(found['artifacts'])}, {_size(found['bytes'])}"]
    if found["stages"]:
        lines.append(f"  {'stage':<12}{'artifacts':>10}{'size':>10}  last use")
    for stage, of in found["stages"].items():
        used = of["last_used"][:16].replace("T", " ")
        lines.append(f"  {stage:<12}{of['artifacts']:>10,}{_size(of['bytes']):>10}  {used}")
    if found["leftover_files"]:
        lines.append(f"  leftovers, which `sweep cache prune` removes: {_leftovers(found)}")
    return lines


def prune_cache(max_size: str | None, unused_days: int | None) -> dict[str, Any]:
    """Remove artifacts of the cache of the working folder, and return what was removed and what is left.

    Raises InputError where neither limit is given or the size is none.
    """
    if max_size is None and unused_days is None:
        raise InputError("give --max-size SIZE, such as 2GB, or --unused-days N, or both")
    most = None if max_size is None else parse_size(max_size)
    pruned = prune(CACHE, most=most, unused_days=unused_days)
    return {
        "folder": str(CACHE),
        **_total(pruned.removed),
        "leftover_files": pruned.leftovers.files,
        "leftover_bytes": pruned.leftovers.bytes,
        "lock_files": pruned.locks,
        "kept_bytes": pruned.kept,
        "skipped": pruned.skipped,
    }


def prune_lines(found: Mapping[str, Any]) -> list[str]:
    """Say it in lines for a terminal."""
    lines = [f"{found['folder']}: {_size(found['bytes'] + found['leftover_bytes'])} freed"]
    lines += [f"  {stage}: {_count(of['artifacts'])}, {_size(of['bytes'])}" for stage, of in found["stages"].items()]
    if found["leftover_files"]:
        lines.append(f"  leftovers: {_leftovers(found)}")
    lines += [f"  {table}: left alone, a process is adding to it" for table in found["skipped"]]
    return [*lines, f"{_size(found['kept_bytes'])} kept"]


def parse_size(text: str) -> int:
    """Return the bytes of a size such as 2GB, 1.5 GB, 500MB or 1000. Raises InputError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"--max-size {text!r} is no size; give a number and {', '.join(_UNITS)}, such as 2GB")
    units = {name.lower(): factor for name, factor in _UNITS.items()}
    return int(float(found[1]) * units[(found[2] or "b").lower()])


def _total(stages: Mapping[str, Usage]) -> dict[str, Any]:
    return {
        "artifacts": sum(of.artifacts for of in stages.values()),
        "bytes": sum(of.bytes for of in stages.values()),
        "stages": {stage: {**of._asdict(), "last_used": _when(of.last_used)} for stage, of in stages.items()},
    }


def _when(seconds: float) -> str:
    local = time.localtime(seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", local)


def _count(artifacts: int) -> str:
    return f"{artifacts:,} artifact{'s' * (artifacts != 1)}"


def _leftovers(found: Mapping[str, Any]) -> str:
    files = found["leftover_files"]
    return f"{files:,} file{'s' * (files != 1)}, {_size(found['leftover_bytes'])}"


def _size(count: int) -> str:
    """Return a size to three digits in the greatest unit that it reaches."""
    name, factor = next((n, f) for n, f in reversed(_UNITS.items()) if count >= f or f == 1)
    value = count / factor
    return f"{value:,.{0 if factor == 1 or value >= 99.95 else 1}f} {name}"
