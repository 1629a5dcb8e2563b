"""A measure is a value: "ndcg@3" parses, prints, compares and hashes. The registry says what each name means."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from metrics import documents
from metrics.judgments import LabelScale


@dataclass(frozen=True, slots=True)
class Definition:
    """What is known of a measure's name.

    function: (label table, ascending cutoffs) → float64 (R,) at each cutoff. bounds: its least and greatest value on a
    label scale, in the scaled convention. needs_cutoff: "name" alone, over all retrieved documents, has no meaning.
    higher_is_better: False for what counts the unknown. about_holes: it does, so that without holes it says nothing.
    """

    function: Callable[[documents.LabelTable, documents.Cutoffs], documents.Values]
    bounds: Callable[[LabelScale], tuple[float, float]]
    needs_cutoff: bool = False
    higher_is_better: bool = True
    about_holes: bool = False


def _share(_: LabelScale) -> tuple[float, float]:
    return 0.0, 1.0


def _percent(_: LabelScale) -> tuple[float, float]:
    return 0.0, 100.0


def _count(_: LabelScale) -> tuple[float, float]:
    return 0.0, float("inf")


def _label(scale: LabelScale) -> tuple[float, float]:
    return float(scale.min), float(scale.max)


_UNKNOWN = {"higher_is_better": False, "about_holes": True}

REGISTRY: Mapping[str, Definition] = MappingProxyType(
    {
        "fidelity": Definition(documents.fidelity, _share),
        "hit": Definition(documents.hit, _share),
        "holes": Definition(documents.holes, _count, **_UNKNOWN),
        "holes_ratio": Definition(documents.holes_ratio, _share, **_UNKNOWN),
        "map": Definition(documents.average_precision, _share),
        "max_relevance": Definition(documents.max_relevance, _label, needs_cutoff=True),
        "mrr": Definition(documents.mrr, _share),
        "ndcg": Definition(documents.ndcg, _share),
        "ndcg_linear": Definition(documents.ndcg_linear, _share),
        "precision": Definition(documents.precision, _share, needs_cutoff=True),
        "rbp": Definition(documents.rbp, _share),
        "rbp_residual": Definition(documents.rbp_residual, _share, **_UNKNOWN),
        "recall": Definition(documents.recall, _share),
        "xdcg": Definition(documents.xdcg, _percent, needs_cutoff=True),
    }
)


def _of_spans(name: str) -> Definition:
    def refuse(_: documents.LabelTable, __: documents.Cutoffs) -> documents.Values:
        raise ValueError(f"{name} needs spans; use evaluate_spans")

    return Definition(refuse, _share)


SPAN_REGISTRY: Mapping[str, Definition] = MappingProxyType(
    {name: _of_spans(name) for name in ("token_iou", "token_precision", "token_recall")}
)
"""Measures of retrieved text, which `metrics.spans` evaluates: no label table has what they need."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {"top1_relevance": "max_relevance@1", "top3_max_relevance": "max_relevance@3"}
)


@dataclass(frozen=True, slots=True, repr=False)
class Measure:
    """A name of a registry and a cutoff in documents, of SPAN_REGISTRY in chunks; None is all that was retrieved.

    condensed: judged(…), the measure after the holes are taken out of the ranking. Raises ValueError for an unknown
    name, with the nearest right one, for a cutoff that is missing or below 1, for judged(holes) and its like, and for
    judged(token_recall) and its like.
    """

    name: str
    cutoff: int | None = None
    condensed: bool = False

    def __post_init__(self) -> None:
        if self.name not in REGISTRY and self.name not in SPAN_REGISTRY:
            known = [*REGISTRY, *SPAN_REGISTRY, *ALIASES]
            near = get_close_matches(self.name.lower(), known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"unknown measure {self.name!r}; {hint}known: {', '.join(known)}")
        if self.cutoff is None and self.definition.needs_cutoff:
            raise ValueError(f"{self.name} needs a cutoff, as in {self.name}@3")
        if self.cutoff is not None and self.cutoff < 1:
            raise ValueError(f"the cutoff of {self.name} must be 1 or more, got {self.cutoff}")
        if self.condensed and self.definition.about_holes:
            raise ValueError(f"judged({self.name}) says nothing: judged(…) takes the holes out; ask for {self.name}")
        if self.condensed and self.name in SPAN_REGISTRY:
            raise ValueError(f"judged({self.name}) has no meaning: text has no holes; ask for {self.name}")

    @classmethod
    def parse(cls, text: str) -> "Measure":
        """Read "name", "name@cutoff", "judged(…)" of either, or an alias; `str` reads back as the same value.

        Raises ValueError as the class does, and for a cutoff that is not a whole number.
        """
        inner = text.strip()
        condensed = inner.startswith("judged(") and inner.endswith(")")
        inner = inner[len("judged(") : -1].strip() if condensed else inner
        name, at, cutoff = ALIASES.get(inner, inner).partition("@")
        if at and not (cutoff.isascii() and cutoff.isdecimal()):
            raise ValueError(f"the cutoff in {text!r} must be a whole number, as in ndcg@10")
        return cls(name, int(cutoff) if at else None, condensed)

    def __str__(self) -> str:
        plain = self.name if self.cutoff is None else f"{self.name}@{self.cutoff}"
        return f"judged({plain})" if self.condensed else plain

    __repr__ = __str__

    @property
    def definition(self) -> Definition:
        """The entry for this name in the registry that has it."""
        return REGISTRY[self.name] if self.name in REGISTRY else SPAN_REGISTRY[self.name]

    @property
    def higher_is_better(self) -> bool:
        """False for holes, holes_ratio and rbp_residual."""
        return self.definition.higher_is_better
