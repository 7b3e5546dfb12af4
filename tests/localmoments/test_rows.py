"""What is too far is found, by the quick look or by the exact one."""

import numpy as np
import pytest

from localmoments.arrays import FARTHEST
from localmoments.errors import InputError
from localmoments.model import Model
from localmoments.rows import check_range, surely_near


@pytest.mark.parametrize("part", [0.1, 0.999, 0.99999, 1.00001, 1.1, 1e30])
@pytest.mark.parametrize("sign", [-1, 1])
def test_no_row_that_is_refused_is_surely_near(tiny_served: Model, part: float, sign: int) -> None:
    units, d = tiny_served.manifest.normaliser, tiny_served.manifest.input_dims
    for column in range(d):
        z = np.zeros((3, d))
        z[1, column] = sign * part * FARTHEST
        x = units.shift + units.scale * z
        with np.errstate(over="ignore"):
            near = surely_near(units.to_model(x))
        if part > 1:
            assert not near
            with pytest.raises(InputError, match=rf"x\[1\]\[{column}\] is .* too far"):
                check_range(tiny_served, x)
        else:
            check_range(tiny_served, x)
            assert near or part > 0.999
