"""Documentation of installed Python packages as a collection: one document for each public function and class.

A document's id is its canonical public name ("numpy.concatenate", of which "numpy.concat" is an alias), its text the
cleaned docstring. Packages are imported; nothing else of them is run.
"""

__all__ = ["read_packages", "versions"]

import importlib
import importlib.metadata
import inspect
import pkgutil
import platform
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

from sweep.errors import CollectionError

SKIPPED = frozenset({"conftest", "f2py", "testing", "tests"})

# Their docstrings are made at import from random numbers or the order of a set, anew in every process.
UNSTABLE = frozenset(
    {
        "scipy.signal.lombscargle",
        "scipy.stats.Binomial",
        "scipy.stats.Logistic",
        "scipy.stats.Normal",
        "scipy.stats.Uniform",
    }
)


def read_packages(packages: Sequence[str], *, methods: bool = False) -> dict[str, str]:
    """Return {public name: docstring} of the packages (or submodules) named and of their direct public submodules.

    methods: add the public methods and properties of public classes. An object counts once, under the name it gives
    itself where that is public, else its shortest (an inherited method under the class that defines it, where that is
    public); one that comes from another package, or has no docstring of its own, is left out.
    Raises CollectionError for a package that is not installed or cannot be imported.
    """
    found: dict[int, tuple[str, object]] = {}  # by identity; holds the objects, so that none is used again
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("scipy.special")  # adds to numpy.sinc's docstring: always, not by what ran before
        for module_name, module in _modules(packages):
            for name in _public_names(module):
                value = _member(module, name)
                if _is_documented_kind(value) and _top(value, module_name) == module_name.partition(".")[0]:
                    _add(found, f"{module_name}.{name}", value)
        documents = {name: text for name, text in _docstrings(found).items() if name not in UNSTABLE}
        if methods:
            documents |= _methods({value: name for name, value in found.values() if inspect.isclass(value)})
    return documents


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return {top-level package: version of its distribution}; a package of the standard library has Python's."""
    tops = sorted({name.partition(".")[0] for name in packages})
    return {top: platform.python_version() if top in sys.stdlib_module_names else _version(top) for top in tops}


def _version(top: str) -> str:
    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(top, [])
        return importlib.metadata.version(names[0]) if names else "unknown"


def _modules(packages: Sequence[str]) -> list[tuple[str, ModuleType]]:
    """The packages named and their direct public submodules, shortest name first, each module once."""
    named = {name: _import(name) for name in packages}
    for name, module in list(named.items()):
        for member in _public_names(module):
            value = _member(module, member)
            if isinstance(value, ModuleType) and value.__name__ == f"{name}.{member}":
                named.setdefault(value.__name__, value)
    return sorted(named.items(), key=lambda item: (item[0].count("."), item[0]))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        top = name.partition(".")[0]
        if error.name == top:
            raise CollectionError(f"package {top!r} is not installed; pip install {top}, or correct packages") from None
        raise CollectionError(f"package {name!r} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise CollectionError(f"package {name!r} cannot be imported: {error!r}") from error


def _public_names(module: ModuleType) -> list[str]:
    """What `__all__` says; without one, what the module holds and the submodules on disk.

    The attributes alone would not do: which submodules are among them depends on what was imported before.
    """
    names: set[str] = set(getattr(module, "__all__", ()))
    if not names:
        names = set(vars(module)) | {entry.name for entry in pkgutil.iter_modules(getattr(module, "__path__", ()))}
    return sorted(name for name in names if not name.startswith("_") and name not in SKIPPED)


def _member(module: ModuleType, name: str) -> object:
    """The attribute or submodule, or None where it cannot be had (an optional dependency is missing)."""
    try:
        return getattr(module, name) if hasattr(module, name) else importlib.import_module(f"{module.__name__}.{name}")
    except (Exception, SystemExit):
        return None


def _is_documented_kind(value: object) -> bool:
    return inspect.isroutine(value) or inspect.isclass(value) or type(value).__name__ == "ufunc"


def _top(value: object, default: str) -> str:
    """The top-level package that an object says it comes from."""
    return str(getattr(value, "__module__", None) or default).partition(".")[0]


def _add(found: dict[int, tuple[str, object]], name: str, value: object) -> None:
    """Record an object, of whose names the canonical one stays."""
    known, _ = found.get(id(value), (name, value))
    found[id(value)] = min(known, name, key=lambda public: _rank(public, value)), value


def _rank(name: str, value: object) -> tuple[bool, bool, int, str]:
    """Canonical first: the full name the object gives itself, its own last part, the fewest parts, the alphabet."""
    own = getattr(value, "__name__", None)
    full = f"{getattr(value, '__module__', None)}.{own}"
    return name != full, name.rpartition(".")[2] != own, name.count("."), name


def _methods(classes: dict[type, str]) -> dict[str, str]:
    """{name: docstring} of the public methods and properties of `classes` (class → its name).

    One inherited from another public class is left to that class.
    """
    found: dict[int, tuple[str, object]] = {}
    for cls, class_name in classes.items():
        for name in sorted(name for name in dir(cls) if not name.startswith("_")):
            owner = next((base for base in cls.__mro__ if name in vars(base)), None)
            if owner is None or (owner is not cls and owner in classes):
                continue
            value = vars(owner)[name]
            value = getattr(value, "__func__", value)  # what a class or static method wraps
            if _top(owner, "") == class_name.partition(".")[0] and _is_method(value):
                _add(found, f"{class_name}.{name}", value)
    return _docstrings(found)


def _is_method(value: object) -> bool:
    return inspect.isroutine(value) or isinstance(value, property)


def _docstrings(found: dict[int, tuple[str, object]]) -> dict[str, str]:
    """{name: cleaned docstring}, where an object has one of its own: not blank, not inherited, not that of its type."""
    own = {name: value.__doc__ for name, value in found.values() if value.__doc__ != type(value).__doc__}
    return {name: inspect.cleandoc(text) for name, text in own.items() if text and text.strip()}
