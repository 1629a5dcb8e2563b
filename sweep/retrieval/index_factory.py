"""The FAISS factory strings that a study may name, read without FAISS.

Flat · SQ8 · HNSW32 · HNSW32_SQ8 · IVF256,Flat · IVF256,SQ8 · IVF256,PQ48 · PQ48x4
each but those of Flat vectors also with refinement by finer ones: PQ48,RFlat · IVF256,PQ48,Refine(SQ8)
"""

__all__ = ["ALLOWED", "Factory", "allowed", "canonical", "check", "has_graph", "has_lists", "lists", "refined"]

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from sweep.errors import SettingsError

ALLOWED = "Flat, SQ8, HNSW32, HNSW32_SQ8, IVF256,Flat, IVF256,SQ8, IVF256,PQ48, PQ48, with ,RFlat to refine, and so on"

_SCALAR = "SQ4|SQ6|SQ8|SQfp16"
_FINENESS = [*_SCALAR.split("|"), "Flat"]  # a product quantiser is coarser than any
_FORM = re.compile(
    rf"(?:HNSW(?P<links>[2-9]|[1-9]\d{{1,2}})(?:_(?P<held>{_SCALAR}))?|(?:IVF(?P<lists>[2-9]|[1-9]\d{{1,6}}),)?"
    rf"(?P<code>Flat|{_SCALAR}|PQ(?P<parts>[1-9]\d{{0,3}})(?:x(?P<bits>[4-8]))?))"
    rf"(?:,R(?P<refine>Flat)|,Refine\((?P<finer>Flat|{_SCALAR})\))?",
    re.ASCII,
)
POINTS = 39  # training vectors a centroid: fewer, and FAISS warns


@dataclass(frozen=True, slots=True)
class Factory:
    """A factory string, read. links: of an HNSW graph; lists: of an inverted file; 0 where there is none.

    code: how a vector is held, as "Flat", "SQ8" or "PQ48x4". parts, bits: of a product quantiser, else 0. refine: how
    the vectors that refine are held, or "".
    """

    links: int
    lists: int
    code: str
    parts: int
    bits: int
    refine: str

    @classmethod
    def parse(cls, text: str) -> "Factory | None":
        """Read a factory string; None for one that is not allowed, as one refined by what is no finer."""
        found = _FORM.fullmatch(text)
        if found is None:
            return None
        code, parts = (found["code"] or found["held"] or "Flat").removesuffix("x8"), int(found["parts"] or 0)
        refine = found["finer"] or found["refine"] or ""
        if refine and not parts and _FINENESS.index(refine) <= _FINENESS.index(code):
            return None
        bits = int(found["bits"] or 8) if parts else 0
        return cls(int(found["links"] or 0), int(found["lists"] or 0), code, parts, bits, refine)

    @property
    def exact(self) -> bool:
        """Whether it finds what a search of all vectors would."""
        return str(self) == "Flat"

    @property
    def scans(self) -> bool:
        """Whether its result for k is a prefix of that for any larger k: it ranks what it looks at by one score."""
        return not self.links and not self.refine

    def for_vectors(self, n: int) -> "Factory":
        """Return what `n` vectors are enough for: the same, fewer lists, or Flat."""
        if self.parts and n < 1 << self.bits:
            return replace(self, links=0, lists=0, code="Flat", parts=0, bits=0, refine="")
        lists = min(self.lists, n // POINTS)
        return replace(self, lists=lists if lists > 1 else 0)

    def __str__(self) -> str:
        refine = {"": "", "Flat": ",RFlat"}.get(self.refine, f",Refine({self.refine})")
        if self.links:
            return f"HNSW{self.links}{'' if self.code == 'Flat' else '_' + self.code}{refine}"
        return f"{f'IVF{self.lists},' if self.lists else ''}{self.code}{refine}"


@lru_cache(maxsize=256)
def _read(text: str) -> Factory | None:
    return Factory.parse(text)


def allowed(text: str) -> bool:
    """Tell whether a factory string may be used."""
    return _read(text) is not None


def canonical(text: str) -> str:
    """Return an allowed factory string as it is written: PQ48 for PQ48x8, RFlat for Refine(Flat)."""
    return str(_read(text))


def check(text: str, dimensions: int) -> Factory:
    """Return a factory string, read.

    Raises SettingsError for one that is not allowed, or whose parts do not divide the dimensions.
    """
    factory = _read(text)
    if factory is None:
        raise SettingsError(f"index: {text!r} is not allowed; allowed: {ALLOWED}")
    if factory.parts and dimensions % factory.parts:
        divisors = ", ".join(str(m) for m in range(1, dimensions + 1) if dimensions % m == 0)
        raise SettingsError(
            f"index {text}: {factory.parts} parts do not divide {dimensions} dimensions; allowed: {divisors}"
        )
    return factory


def has_graph(text: str) -> bool:
    """Tell whether ef_construction and ef_search matter."""
    found = _read(text)
    return found is not None and found.links > 0


def has_lists(text: str) -> bool:
    """Tell whether nprobe matters."""
    return lists(text) > 0


def lists(text: str) -> int:
    """Return the lists of an inverted file; 0 where there is none."""
    found = _read(text)
    return found.lists if found else 0


def refined(text: str) -> bool:
    """Tell whether refine_factor matters."""
    found = _read(text)
    return found is not None and bool(found.refine)
