"""What a vector must be before anyone sees it. Pure."""

from __future__ import annotations

import numpy as np

from warmindex.embedders.base import FailureKind, FloatMatrix, TextFailure


def bad_rows(matrix: FloatMatrix) -> dict[int, TextFailure]:
    """Row -> why it is no vector, for each row with a NaN, an infinity, or only zeros."""
    finite = np.isfinite(matrix).all(axis=1)
    empty = ~matrix.any(axis=1)
    failures = {
        int(row): TextFailure(FailureKind.BAD_VECTOR, "the model answered NaN or infinity")
        for row in np.flatnonzero(~finite)
    }
    for row in np.flatnonzero(empty):
        failures[int(row)] = TextFailure(
            FailureKind.BAD_VECTOR, "the model answered nothing but zeros"
        )
    return failures
