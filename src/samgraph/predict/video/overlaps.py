"""One object a pixel: where masks overlap, the one with the highest logit keeps it."""

import numpy as np

from samgraph.predict.video.memory_bank import Floats

# What the logits of the losers are cut to.
LOSING_LOGIT = -10.0


def without_overlaps(logits: Floats) -> Floats:
    """Mask logits [N, ..., H, W] of which at most one a pixel is positive; ties go to the first."""
    if len(logits) < 2:
        return logits
    winner = logits.argmax(axis=0)
    places = np.arange(len(logits)).reshape(-1, *(1,) * (logits.ndim - 1))
    return np.where(winner == places, logits, np.minimum(logits, np.float32(LOSING_LOGIT)))
