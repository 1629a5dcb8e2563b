"""A measure is a value: "ndcg@3" parses, prints, compares and hashes. The registry says what each name means."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from metrics import documents
from metrics.judgments import LabelScale


@dataclass(frozen=True, slots=True)
class Definition:
    """What is known of a measure's name.

    function: (label table, ascending cutoffs) → float64 (C, Q). bounds: its least and greatest value on a label scale,
    in the scaled convention. needs_cutoff: "name" alone, over all retrieved documents, has no meaning.
    higher_is_better: False for the counts of what is unknown.
    """

    function: Callable[[documents.LabelTable, Sequence[int]], documents.Float]
    bounds: Callable[[LabelScale], tuple[float, float]]
    needs_cutoff: bool = False
    higher_is_better: bool = True


def _share(_: LabelScale) -> tuple[float, float]:
    return 0.0, 1.0


def _percent(_: LabelScale) -> tuple[float, float]:
    return 0.0, 100.0


def _count(_: LabelScale) -> tuple[float, float]:
    return 0.0, float("inf")


def _label(scale: LabelScale) -> tuple[float, float]:
    return float(scale.min), float(scale.max)


REGISTRY: Mapping[str, Definition] = MappingProxyType(
    {
        "fidelity": Definition(documents.fidelity, _share),
        "hit": Definition(documents.hit, _share),
        "holes": Definition(documents.holes, _count, higher_is_better=False),
        "holes_ratio": Definition(documents.holes_ratio, _share, higher_is_better=False),
        "map": Definition(documents.average_precision, _share),
        "max_relevance": Definition(documents.max_relevance, _label, needs_cutoff=True),
        "mrr": Definition(documents.mrr, _share),
        "ndcg": Definition(documents.ndcg, _share),
        "ndcg_linear": Definition(documents.ndcg_linear, _share),
        "precision": Definition(documents.precision, _share, needs_cutoff=True),
        "recall": Definition(documents.recall, _share),
        "xdcg": Definition(documents.xdcg, _percent, needs_cutoff=True),
    }
)

ALIASES: Mapping[str, str] = MappingProxyType(
    {"top1_relevance": "max_relevance@1", "top3_max_relevance": "max_relevance@3"}
)


@dataclass(frozen=True, slots=True, order=True)
class Measure:
    """A name of the registry and a cutoff in documents; None is all retrieved documents.

    Raises ValueError for an unknown name, with the nearest right one, and for a cutoff that is missing or below 1.
    """

    name: str
    cutoff: int | None = None

    def __post_init__(self) -> None:
        if self.name not in REGISTRY:
            near = get_close_matches(self.name, [*REGISTRY, *ALIASES], n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"unknown measure {self.name!r}; {hint}known: {', '.join([*REGISTRY, *ALIASES])}")
        if self.cutoff is None and self.definition.needs_cutoff:
            raise ValueError(f"{self.name} needs a cutoff, as in {self.name}@3")
        if self.cutoff is not None and self.cutoff < 1:
            raise ValueError(f"the cutoff of {self.name} must be 1 or more, got {self.cutoff}")

    @classmethod
    def parse(cls, text: str) -> "Measure":
        """Read "name", "name@cutoff" or an alias; `str` of the result reads back as the same value.

        Raises ValueError as the class does, and for a cutoff that is not a whole number.
        """
        name, at, cutoff = ALIASES.get(text.strip(), text.strip()).partition("@")
        if at and not cutoff.isdecimal():
            raise ValueError(f"the cutoff in {text!r} must be a whole number, as in ndcg@10")
        return cls(name, int(cutoff) if at else None)

    def __str__(self) -> str:
        return self.name if self.cutoff is None else f"{self.name}@{self.cutoff}"

    @property
    def definition(self) -> Definition:
        """The registry's entry for this name."""
        return REGISTRY[self.name]

    @property
    def higher_is_better(self) -> bool:
        """False for holes and holes_ratio."""
        return self.definition.higher_is_better
