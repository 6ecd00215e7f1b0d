"""`make chaos`: trials with seeds, one after the other, and their figures."""

import argparse
import random
import sys
import traceback

from tests.chaos.trial import run_trial


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seed", type=int, help="the first seed; drawn and printed when left out")
    words.add_argument("--trials", type=int, default=1)
    words.add_argument("--questions", type=int, default=500)
    words.add_argument("--quick", action="store_true", help="short leases, and blows that follow closely")
    chosen = words.parse_args()
    first = random.SystemRandom().randrange(1_000_000) if chosen.seed is None else chosen.seed
    failed = 0
    for seed in range(first, first + chosen.trials):
        print(f"seed {seed} begins", flush=True)
        try:
            figures = run_trial(seed, chosen.questions, quick=chosen.quick)
        except Exception:  # noqa: BLE001 - the other seeds are tried all the same
            failed += 1
            traceback.print_exc()
        else:
            print(figures.line(), flush=True)
    print(f"{chosen.trials - failed} of {chosen.trials} trials held")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
