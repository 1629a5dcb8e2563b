"""Every module says what it offers: `__all__` is sorted and true, and `sweep` offers its names lazily."""

import importlib
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import metrics
import sweep


def names(package: ModuleType) -> list[str]:
    return [package.__name__, *(m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))]


def in_order(name: str) -> tuple[bool, bool, str]:
    """CONSTANTS, then Classes, then functions, as ruff sorts them."""
    return not name.isupper(), not name[0].isupper(), name


@pytest.mark.parametrize("name", [*names(metrics), *names(sweep)])
def test_all_is_sorted_and_resolves(name: str) -> None:
    module = importlib.import_module(name)
    offered = getattr(module, "__all__", None)
    if offered is None:
        return
    assert list(offered) == sorted(offered, key=in_order)
    assert len(set(offered)) == len(offered)
    for one in offered:
        assert not one.startswith("_")
        assert getattr(module, one) is not None


@pytest.mark.parametrize("name", [*names(metrics), *names(sweep)])
def test_modules_say_what_they_are(name: str) -> None:
    module = importlib.import_module(name)
    assert len(module.__doc__ or "") > 10
    assert (
        hasattr(module, "__all__") or name.startswith("metrics.") or hasattr(module, "__path__") or name == "sweep.cli"
    )


def test_what_sweep_offers_is_what_it_can_find() -> None:
    homes = {one: home for home, found in sweep._HOMES.items() for one in found}
    assert sorted(homes, key=in_order) == sweep.__all__
    for one, home in homes.items():
        assert getattr(sweep, one) is getattr(importlib.import_module(home), one)
        assert one in importlib.import_module(home).__all__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        sweep.nothing  # noqa: B018
    namespace: dict[str, object] = {}
    exec("from sweep import *", namespace)
    assert set(sweep.__all__) <= namespace.keys()


def test_completion_in_a_notebook_finds_the_lazy_names() -> None:
    code = "import sweep; print(*(n for n in sweep.__all__ if n not in dir(sweep)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == []


def test_packages_are_listed_for_the_build() -> None:
    root = Path(__file__).parents[1]
    declared = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    homes = [path.parent for top in ("metrics", "sweep") for path in root.glob(f"{top}/**/__init__.py")]
    assert sorted(declared) == sorted(".".join(home.relative_to(root).parts) for home in homes)
