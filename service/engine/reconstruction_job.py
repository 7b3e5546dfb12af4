"""r(x) in the user's units: units, checks and errors of a whole pass at once.

They take NumPy longer to begin than to do, and on the event loop every one of them gives the GIL
away, so that one request's share of a pass costs a fraction of doing it alone.
"""

import numpy as np

from localmoments.arrays import Named, Reals
from localmoments.errors import UnusableAnswerError
from localmoments.model import Model
from localmoments.rows import check_range, surely_near
from service.engine.job import Next, OneShot


class ReconstructionJob(OneShot):
    """x (n, d) to `reconstruction` (n, d) and `error` (n,), the root mean square of r(x) - x.

    The error is in the model's units: each column is divided by its scale, so that a column in
    grams does not outweigh one in tons.
    """

    def __init__(self, model: Model, x: Reals, sigma: float) -> None:
        super().__init__(model, "reconstruct", {"x": x}, group=sigma)
        self.sigma = sigma

    def compute(self, inputs: Named, first_row: int) -> Named:
        x, units = inputs["x"], self.model.manifest.normaliser
        with np.errstate(over="ignore"):  # of what is too far, as is said next
            z = units.to_model(x)
            near = surely_near(z)
        if not near:
            check_range(self.model, x, first=first_row)
        level = self.model.noise_level(len(x), self.sigma)
        mean = self.model.run(self.graph, x=z, **level)["mean"]
        moved = np.subtract(mean, z, dtype=np.float64)  # (n, d)
        error = np.sqrt(np.vecdot(moved, moved) / x.shape[1])
        if not np.isfinite(error).all():
            raise UnusableAnswerError(f"{self.model.manifest.reference} returned NaN or infinity.")
        return {"reconstruction": units.to_user(mean), "error": error}

    def take_outputs(self, outputs: Named) -> Next:
        self._final_outputs = outputs
        return Next.END
