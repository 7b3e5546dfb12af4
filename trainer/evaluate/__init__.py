"""How good a model is, measured on rows that it was not trained on.

| figure              | what it says                                              | module         |
|---------------------|-----------------------------------------------------------|----------------|
| reconstruction      | root mean square of r(x) - x, in standard deviations      | trust.py       |
| denoising           | the same for r(x + σε), next to that of x + σε itself     | trust.py       |
| moments             | known law: errors of the local mean and the first tangent | known_law.py   |
| exact draws         | known law: distance of samples, and of exact draws        | known_law.py   |
| log-likelihood      | of test rows under a window on every sample               | parzen.py      |
| density, coverage   | whether samples are where real rows are, and everywhere   | distances.py   |
| kernel, Fréchet     | distance between features of samples and of test rows     | distances.py   |
| sliced Wasserstein  | distance between samples and test rows themselves         | distances.py   |
| class entropy       | whether all classes are drawn equally often               | features.py    |
| mixing              | split R-hat, effective sample size, burn-in               | mixing.py      |
| nearest row         | whether samples are copies of training rows               | neighbours.py  |
| scales              | which scale each kernel should have by default            | scales.py      |
| claims              | the paper's claims: calibration, neighbours, consistency  | calibration.py,|
|                     |                                                           | consistency.py |

`run.py` has the order of the steps, `rows.py` which rows are used for what, `chains.py` how samples
are drawn, `comparison.py` and `jackknife.py` how sets are compared and what the errors are, and
`report.py` the text of the figures. `command.py` is the command `evaluate`.
"""

from trainer.evaluate.chains import Budget, budget_for
from trainer.evaluate.rows import Held, Rows, held_rows, read_split, rows_for, split_again
from trainer.evaluate.run import Evaluation, check_width, claims_figures, evaluate, first_look

__all__ = [
    "Budget",
    "Evaluation",
    "Held",
    "Rows",
    "budget_for",
    "check_width",
    "claims_figures",
    "evaluate",
    "first_look",
    "held_rows",
    "read_split",
    "rows_for",
    "split_again",
]
