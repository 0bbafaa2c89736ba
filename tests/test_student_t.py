"""Student's t distribution beside SciPy's."""

import pytest
from scipy.special import stdtr, stdtrit

from core.student_t import quantile, survival
from tests.cases import each

FREEDOM = (1, 1.3, 2, 3, 4.7, 9, 29, 299, 5000, 1e6)


@each("freedom", FREEDOM)
def test_the_tail_is_scipys(freedom):
    for t in (-1e9, -7.0, -0.3, 0.0, 1e-9, 0.5, 1.96, 12.7, 80.0, 1e6, 1e200):
        assert survival(t, freedom) == pytest.approx(stdtr(freedom, -t), rel=1e-7, abs=1e-300)


@each("freedom", FREEDOM)
def test_the_quantile_is_scipys(freedom):
    for p in (0.5, 0.6, 0.9, 0.975, 0.9999):
        assert quantile(p, freedom) == pytest.approx(stdtrit(freedom, p), rel=1e-8, abs=1e-12)


def test_by_hand():
    assert survival(1.0, 1) == pytest.approx(0.25)  # 1/2 − arctan(1)/π
    assert quantile(0.75, 1) == pytest.approx(1.0) and quantile(0.5, 3) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="at least 0.5"):
        quantile(0.3, 3)
