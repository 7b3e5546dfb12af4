"""How much is drawn and compared: what the published figures ask for, or a fast look."""

from dataclasses import dataclass, replace

SMALL = 64  # columns of a table whose steps cost next to nothing


@dataclass(frozen=True)
class Plan:
    walkers: int = 500  # many chains from noise
    kept: int = 20  # samples of each: 10,000 in all
    burn_in: int = 100  # steps before the first one
    thin: int = 5  # steps between two
    chains: int = 20  # few long chains
    long_kept: int = 500  # samples of each: 10,000 in all
    lags: int = 100  # of the autocorrelation
    feature_rows: int = 5_000  # at most, for distances between sets and for neighbours
    exact_rows: int = 2_000  # for data of known law
    examples: int = 150_000  # rows that the classifier sees
    baseline: bool = True  # k-means
    claims: bool = True  # the paper's claims: calibration, neighbours, consistency
    search: bool = True  # of every kernel's scale
    search_walkers: int = 200
    search_steps: int = 60
    search_kept: int = 5  # samples of each, the last ones, `thin` steps apart

    @property
    def set_rows(self) -> int:
        """At most so many rows of a set are compared with as many real rows."""
        return min(self.feature_rows, self.walkers * self.kept, self.chains * self.long_kept)

    @property
    def many_steps(self) -> int:
        return self.burn_in + self.kept * self.thin

    @property
    def long_steps(self) -> int:
        return self.burn_in + self.long_kept * self.thin

    def kept_steps(self, count: int) -> range:
        """After the burn-in, `thin` steps apart."""
        return range(self.burn_in + self.thin, self.burn_in + count * self.thin + 1, self.thin)


def plan_for(dims: int, *, quick: bool = False, search: bool = True) -> Plan:
    """Chains of a small table walk further: their steps are cheap, and may be short."""
    plan = Plan(search=search and not quick)
    if dims <= SMALL:
        plan = replace(plan, burn_in=1_000, thin=20, lags=400, search_walkers=1_000,
                       search_steps=200, search_kept=1)  # fmt: skip
    if quick:
        plan = replace(plan, walkers=200, kept=5, burn_in=plan.burn_in // 2, long_kept=50,
                       feature_rows=1_000, exact_rows=1_000, examples=20_000,
                       baseline=False, claims=False)  # fmt: skip
    return plan
