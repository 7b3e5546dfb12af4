"""POST /reconstruct as a job of the batcher.

Unit conversion, checks and errors run once per pass, for the rows of all requests in it. These
NumPy calls take longer to start than to run, so sharing them makes small requests much cheaper.
"""

from localmoments.arrays import Named, Reals
from localmoments.model import Model
from service.engine.job import Next, OneShot


class ReconstructionJob(OneShot):
    """Compute `reconstruction` (n, d) and `error` (n,) of rows x (n, d); see Model.reconstruct."""

    def __init__(self, model: Model, x: Reals, sigma: float) -> None:
        super().__init__(model, "reconstruct", {"x": x}, group=sigma)
        self.sigma = sigma

    def compute(self, inputs: Named, first_row: int) -> Named:
        reconstruction, error = self.model.reconstruct_rows(inputs["x"], self.sigma, first_row)
        return {"reconstruction": reconstruction, "error": error}

    def take_outputs(self, outputs: Named) -> Next:
        self.value = outputs
        return Next.END
