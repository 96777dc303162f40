"""Ranking matters more than the level: published groups that differ in parallelism."""

import numpy as np
from scipy.stats import spearmanr

from perfmodel.step_time import predict
from tests.perfmodel.cases import a100
from tests.perfmodel.test_memory import OPTICO


def test_ranking_of_opticos_expert_tuning():
    """Figure 5: eleven distinct configurations that ran, ranked by TFLOP/s."""
    rows = list(dict.fromkeys(row for row in OPTICO if row[4]))
    speed = [predict(a100(*row[:4])).tokens_per_s_per_chip for row in rows]
    measured = [row[4] for row in rows]
    assert spearmanr(speed, measured).statistic >= 0.9
    first = measured[int(np.argmax(speed))]
    assert first >= 0.99 * max(measured)
