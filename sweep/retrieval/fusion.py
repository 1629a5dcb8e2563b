"""Two rankings of the same chunks → one."""

__all__ = ["reciprocal_rank_fusion"]

import numpy as np

from metrics import Rankings
from metrics.rankings import from_columns


def reciprocal_rank_fusion(rankings: tuple[Rankings, ...], constant: int) -> Rankings:
    """Return the chunks of all rankings by Σ 1 / (constant + rank), rank from 1; ties in ascending chunk code.

    Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual rank learning methods"
    (2009), who use the constant 60.
    """
    queries = len(rankings[0].items)
    keys, gains = [], []
    for ranking in rankings:
        row, place = np.nonzero(ranking.items >= 0)
        keys.append(row.astype(np.int64) << 32 | ranking.items[row, place])
        gains.append(1.0 / (constant + place + 1))
    distinct, where = np.unique(np.concatenate(keys), return_inverse=True)
    total = np.bincount(where, weights=np.concatenate(gains), minlength=len(distinct))
    return from_columns(queries, distinct >> 32, (distinct & 0xFFFFFFFF).astype(np.int32), total.astype(np.float32))
