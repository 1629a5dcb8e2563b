"""Which swept parameters changed no ranking: they may be set to whatever is cheapest."""

__all__ = ["inert"]

import hashlib
from collections.abc import Sequence

from sweep.optimize.outcome import Outcome


def inert(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the parameters, by name, that never changed what came back.

    Compared are configurations that differ in one parameter alone: the documents of every query in order, and the
    context tokens. A parameter without such a pair is not named, since nothing is known of it.
    """
    seen = {o.configuration: _digest(o) for o in outcomes}
    names = dict.fromkeys(name for c in seen for name in c.settings)
    found = []
    for name in names:
        groups: dict[tuple[object, ...], set[str]] = {}
        pairs = 0
        for c, digest in seen.items():
            if name in c.settings:
                rest = tuple((n, v) for n, v in c.settings.items() if n != name)
                pairs += rest in groups
                groups.setdefault(rest, set()).add(digest)
        if pairs and all(len(digests) == 1 for digests in groups.values()):
            found.append(name)
    return tuple(found)


def _digest(outcome: Outcome) -> str:
    h = hashlib.blake2b(digest_size=16)
    documents = outcome.documents
    h.update(f"{documents.shape}".encode() + documents.tobytes() + outcome.context_tokens.tobytes())
    return h.hexdigest()
