"""Measures as values: parsing, printing, errors."""

import pytest

from metrics import LabelScale, Measure
from metrics.measures import ALIASES, REGISTRY


@pytest.mark.parametrize("name", REGISTRY)
def test_every_name_round_trips(name: str) -> None:
    measure = Measure(name, 7)
    assert str(measure) == f"{name}@7"
    assert Measure.parse(str(measure)) == measure
    assert len({measure, Measure.parse(f" {name}@07 ")}) == 1
    if not REGISTRY[name].needs_cutoff:
        assert str(Measure.parse(name)) == name


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_aliases(alias: str, name: str) -> None:
    assert Measure.parse(alias) == Measure.parse(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ndgc@10", "did you mean 'ndcg'"),
        ("top1_relevanc", "did you mean 'top1_relevance'"),
        ("zzz", "known: fidelity, hit, "),
        ("ndcg@", "whole number"),
        ("ndcg@-1", "whole number"),
        ("ndcg@1.5", "whole number"),
        ("ndcg@²", "whole number"),
        ("ndcg@0", "1 or more"),
        ("precision", "needs a cutoff, as in precision@3"),
        ("xdcg", "needs a cutoff"),
        ("max_relevance", "needs a cutoff"),
    ],
)
def test_errors_say_what_is_right(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Measure.parse(text)


def test_direction_and_bounds() -> None:
    assert [name for name in REGISTRY if not Measure(name, 1).higher_is_better] == [
        "holes",
        "holes_ratio",
        "rbp_residual",
    ]
    assert REGISTRY["max_relevance"].bounds(LabelScale(1, 5)) == (1, 5)
    assert REGISTRY["xdcg"].bounds(LabelScale(1, 5)) == (0, 100)
