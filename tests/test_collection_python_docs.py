"""Docstrings of installed packages as documents."""

import importlib.metadata
import inspect
import platform
import subprocess
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from sweep.collection.loading import CollectionSpec, load
from sweep.collection.python_docs import read_packages, versions
from sweep.errors import CollectionError


@pytest.fixture(scope="module")
def numpy_docs() -> dict[str, str]:
    return read_packages(["numpy"])


def test_numpy(numpy_docs: dict[str, str]) -> None:
    assert 600 < len(numpy_docs) < 1100  # 797 in 2.4.6
    assert numpy_docs["numpy.searchsorted"] == inspect.getdoc(np.searchsorted)
    assert {"numpy.add", "numpy.ndarray", "numpy.linalg.norm", "numpy.array"} <= set(numpy_docs)
    assert not any("testing" in name or "f2py" in name or "._" in name for name in numpy_docs)
    assert all(text.strip() for text in numpy_docs.values())
    assert max(name.count(".") for name in numpy_docs) == 2


ALIASES = ("concat", "permute_dims", "pow", "abs", "bitwise_left_shift", "byte", "char.center", "char.zfill")


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_gives_way_to_the_name_that_numpy_gives(numpy_docs: dict[str, str], alias: str) -> None:
    value = attrgetter(alias)(np)
    canonical = f"{getattr(value, '__module__', 'numpy')}.{value.__name__}"  # a ufunc of NumPy 2.0 names no module
    assert canonical != f"numpy.{alias}"
    assert numpy_docs[canonical] == inspect.getdoc(value)
    assert f"numpy.{alias}" not in numpy_docs


def test_the_same_again(numpy_docs: dict[str, str]) -> None:
    assert list(read_packages(["numpy"]).items()) == list(numpy_docs.items())
    assert read_packages(["numpy", "numpy"]) == numpy_docs


def test_methods_stand_under_the_class_that_defines_them() -> None:
    names = read_packages(["pandas"], methods=True)
    assert names["pandas.DataFrame.merge"] == inspect.getdoc(pd.DataFrame.merge)
    assert "pandas.DataFrame.head" in names  # of a base class that is not public
    assert "pandas.Series.head" not in names  # the same function
    assert "pandas.DataFrame.shape" in names  # a property
    assert "pandas.DataFrame.from_dict" in names  # a class method
    assert "pandas.Timestamp.fromordinal" in names  # a compiled one: only what it wraps has the docstring
    assert set(read_packages(["pandas"])) < set(names)
    assert {"numpy.ndarray.sort", "numpy.matrix.I"} <= set(read_packages(["numpy"], methods=True))
    assert "numpy.matrix.sort" not in read_packages(["numpy"], methods=True)


FILES = {
    "__init__.py": """
from os.path import join
from zoo._den import _fox as fox, _fox as vixen, bear, bear as animal
from zoo.cage import Lion, _hidden, lion
import json
def walk(): "Walk."
def mute(): pass
def blank(): "  "
""",
    "_den.py": """
def bear(): "Bear."
def _fox(): "Fox."
""",
    "attic.py": "from zoo._den import _fox as any_fox, bear",
    "cage.py": """
import warnings
warnings.warn("careless")
class Lion:
    "A lion."
    def roar(self): "Roar."
    def __len__(self): "Length."
class Cub(Lion):
    def sleep(self): "Sleep."
def lion(): "One lion."
def _hidden(): "No."
def feed(): "Feed."
""",
    "broken.py": "raise SystemExit(3)",
    "deep/__init__.py": "def first(): 'First.'",
    "deep/down.py": "def second(): 'Second.'",
    "tests/__init__.py": "def third(): 'Third.'",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder of an importable package `zoo`, forgotten afterwards."""
    folder = tmp_path / "zoo"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "zoo"]:
        del sys.modules[name]


SELF_NAMED = {"zoo.cage.Lion": "A lion.", "zoo.cage.lion": "One lion."}  # not zoo.Lion, zoo.lion
LAST_PART = {"zoo.bear": "Bear."}  # not zoo.animal, zoo.attic.bear
SHORTEST = {"zoo.fox": "Fox."}  # not zoo.vixen, zoo.attic.any_fox
ONLY = {"zoo.walk": "Walk.", "zoo.cage.feed": "Feed.", "zoo.deep.first": "First."}
ZOO = SELF_NAMED | LAST_PART | SHORTEST | ONLY


def test_public_objects_under_their_canonical_name(package: Path) -> None:
    assert read_packages(["zoo"]) == ZOO


def test_a_deeper_module_is_added_by_name(package: Path) -> None:
    assert read_packages(["zoo.deep.down", "zoo"]) == ZOO | {"zoo.deep.down.second": "Second."}
    assert read_packages(["zoo.deep"]) == {"zoo.deep.first": "First.", "zoo.deep.down.second": "Second."}


def test_what_was_imported_before_changes_nothing(package: Path) -> None:
    before = read_packages(["zoo"])
    __import__("zoo.deep.down")
    assert read_packages(["zoo"]) == before


def test_inherited_methods_count_once(package: Path) -> None:
    assert read_packages(["zoo"], methods=True) == ZOO | {
        "zoo.cage.Lion.roar": "Roar.",
        "zoo.cage.Cub.sleep": "Sleep.",
    }


def test_a_package_that_cannot_be_had_is_named(package: Path) -> None:
    with pytest.raises(CollectionError, match="package 'nosuchthing' is not installed; pip install nosuchthing"):
        read_packages(["nosuchthing.sub"])
    with pytest.raises(CollectionError, match=r"package 'zoo\.none' cannot be imported: No module named 'zoo\.none'"):
        read_packages(["zoo.none"])
    with pytest.raises(CollectionError, match=r"package 'zoo\.broken' cannot be imported"):
        read_packages(["zoo.broken"])
    with pytest.raises(ValidationError, match="String should match pattern"):
        CollectionSpec(packages=("numpy; rm",))


def test_versions_are_those_of_the_distributions() -> None:
    assert versions(["numpy.linalg", "numpy", "yaml_is_not_here", "json"]) == {
        "json": platform.python_version(),
        "numpy": importlib.metadata.version("numpy"),
        "yaml_is_not_here": "unknown",
    }


def test_a_collection_of_packages(tmp_path: Path, numpy_docs: dict[str, str]) -> None:
    (tmp_path / "q.jsonl").write_text('{"_id": "q01", "text": "where would a value go", "type": "task"}\n')
    (tmp_path / "r.tsv").write_text("q01\tnumpy.searchsorted\t3\n")
    keys = {"packages": ["numpy"], "queries": "q.jsonl", "qrels": "r.tsv", "labels": {"max": 3}}
    collection = load(CollectionSpec.model_validate(keys), tmp_path)
    assert collection.documents == tuple(sorted(numpy_docs))
    assert collection.source == {"format": "python-docs", "numpy": importlib.metadata.version("numpy")}
    assert collection.query_groups == {"type": ("task",)}


@pytest.mark.parametrize(
    "before", ["", "import scipy.special, scipy.stats, torch, pandas\n"], ids=["nothing", "others"]
)
def test_documents_do_not_depend_on_what_was_imported(before: str) -> None:  # SciPy adds to numpy.sinc's docstring
    code = (
        f"{before}from sweep.collection.python_docs import read_packages\nprint(read_packages(['numpy'])['numpy.sinc'])"
    )
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == read_packages(["numpy"])["numpy.sinc"] + "\n"
    assert "Array API Standard" in ran.stdout
