"""The short form; `make chaos` runs the long one."""

import random

from tests.chaos.trial import run_trial


def test_a_batch_comes_through_a_storm_as_through_a_calm() -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"again with: python -m tests.chaos --seed {seed} --questions 50 --quick")
    print(run_trial(seed, 50, quick=True).line())
