"""Storage URL → Optuna storage. SQLite in the study's folder unless the user names another."""

__all__ = ["open_storage", "storage_faults", "without_trial_log"]

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.errors import InputError, StorageError

if TYPE_CHECKING:
    import optuna


def open_storage(url: str) -> "optuna.storages.RDBStorage":
    """Open a storage by its SQLAlchemy URL, creating its tables where there are none. Raises StorageError."""
    import optuna
    from sqlalchemy import event
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        make_url(url)
    except ArgumentError:
        raise InputError(f"storage {url!r} is no URL of a database; give one as sqlite:///study.db") from None
    with storage_faults(url):
        options = {}
        if url.startswith("sqlite:///"):
            Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
            options = {"connect_args": {"timeout": 60}}  # seconds to wait for another process's write
        storage = optuna.storages.RDBStorage(url, engine_kwargs=options)
        if url.startswith("sqlite:"):
            storage.engine.dispose()
            event.listen(storage.engine, "connect", _write_ahead)
        return storage


def _write_ahead(connection: Any, _record: object) -> None:
    """Append to a log instead of rewriting pages: six times as many commits a second, as safe against a killed run."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


@contextmanager
def without_trial_log() -> Iterator[None]:
    """Hold back Optuna's line for every trial within the block: our progress says it."""
    import optuna.logging

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def storage_faults(url: str) -> Iterator[None]:
    """Turn a fault of the database into a StorageError that names it; finished trials stay in it."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError

    try:
        yield
    except NoSuchModuleError as fault:
        raise InputError(f"storage {_without_password(url)}: {fault}; one that works: sqlite:///study.db") from fault
    except ImportError as fault:
        cure = f"pip install {fault.name}" if fault.name else "install the database's driver"
        raise InputError(f"storage {_without_password(url)}: {fault}; {cure}") from fault
    except OSError as fault:
        raise StorageError(f"study storage {_without_password(url)}: {fault.strerror or fault}") from fault
    except (SQLAlchemyError, StorageInternalError) as fault:
        reason = str(getattr(fault, "orig", None) or fault.__cause__ or fault).splitlines()[0]
        raise StorageError(f"study storage {_without_password(url)}: {reason}") from fault


def _without_password(url: str) -> str:
    from sqlalchemy.engine import make_url

    return make_url(url).render_as_string(hide_password=True)
