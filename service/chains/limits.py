"""The most that one call on a chain may ask for."""

from dataclasses import dataclass

from localmoments.chain import step_cost
from localmoments.errors import TooLargeError
from localmoments.estimators import FULL_JACOBIAN_DIMS
from localmoments.model import Model
from service.chains.call import Course
from service.chains.plan import Plan

DENSE_VALUES = 2**20  # numbers in the covariances of all walkers at once


@dataclass(frozen=True)
class ChainLimits:
    """The most that one call may ask for."""

    walkers: int
    row_steps: int
    values: int  # numbers in an answer that is not streamed


def check_limits(
    limits: ChainLimits, plan: Plan, model: Model, course: Course, streamed: bool
) -> None:
    """Refuse what is too much, and say what would do."""
    walkers = plan.walkers
    if walkers > limits.walkers:
        raise TooLargeError(f"{walkers} walkers are more than the {limits.walkers} allowed.")
    steps, cost = course.to_step - course.from_step, step_cost(model, plan.walk)
    row_steps = walkers * steps * cost
    if row_steps > limits.row_steps:
        each = f" of {cost} graph calls each" if cost > 1 else ""
        raise TooLargeError(
            f"{walkers} walkers and {steps} steps{each} make {row_steps} row-steps, but "
            f"{limits.row_steps} are the most in one call: ask for fewer, and go on with the chain."
        )
    _check_dense(plan, model)
    values = course.kept * walkers * model.manifest.input_dims
    if values > limits.values and not streamed:
        raise TooLargeError(
            f"The answer would hold {values} numbers, but {limits.values} are the most that "
            "is not streamed: stream it, or ask for fewer steps or a larger thin."
        )


def _check_dense(plan: Plan, model: Model) -> None:
    """Bound the matrices of one step: they are built on the thread that serves all callers."""
    d = model.manifest.input_dims
    is_dense = plan.clamp is not None or (plan.metropolis and plan.kernel == "moment")
    if is_dense and d <= FULL_JACOBIAN_DIMS and plan.walkers * d * d > DENSE_VALUES:
        raise TooLargeError(
            f"{plan.walkers} walkers of {d} columns need too large matrices in a step with "
            f"`clamp` or `metropolis`: {DENSE_VALUES // d**2} walkers are the most in one chain."
        )
