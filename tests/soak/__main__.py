"""Run after run with new seeds: make soak ARGS="--minutes 30"."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from soak.plan import JOURNALS, SECONDS_DEFAULT, plan_of
from soak.run import arguments, run

SEEDS = 10**6


def main() -> None:
    """Run for some minutes, or one seed; stop at the first failure and keep its files."""
    parser = argparse.ArgumentParser(prog="make soak ARGS=…", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, run after run")
    parser.add_argument("--seed", type=int, help="one run: the seed of a failure")
    parser.add_argument("--journal", choices=JOURNALS, default="", help="one kind only")
    parser.add_argument("--seconds", type=float, default=SECONDS_DEFAULT, help="faults in a run")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    options = parser.parse_args()
    # As Ctrl-C: what was started is ended, and what was mounted unmounted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    until_s = time.monotonic() + 60 * options.minutes
    runs = failures = 0
    while True:
        seed = random.randrange(SEEDS) if options.seed is None else options.seed
        failures += not one(seed, options.journal, options.seconds)
        runs += 1
        ended = options.seed is not None or time.monotonic() > until_s
        if ended or (failures and not options.keep_going):
            break
    print(f"{runs} runs, {failures} failed")  # noqa: T201 - a command
    sys.exit(bool(failures))


def one(seed: int, journal: str, seconds: float) -> bool:
    """One run; whether everything held."""
    plan = plan_of(seed, journal, seconds)
    print(arguments(plan), flush=True)  # noqa: T201 - a command
    folder = Path(tempfile.mkdtemp(prefix=f"warmindex-soak-{seed}-"))
    started = time.monotonic()
    try:
        summary = asyncio.run(run(plan, folder))
    except Exception as error:  # noqa: BLE001 - any failure is what it looks for
        notes = "\n".join(getattr(error, "__notes__", ()))
        print(f"  FAILED: {type(error).__name__}: {error}\n{notes}", flush=True)  # noqa: T201
        return False
    shutil.rmtree(folder, ignore_errors=True)
    print(f"  {time.monotonic() - started:.0f} s: {summary}", flush=True)  # noqa: T201
    return True


if __name__ == "__main__":
    main()
