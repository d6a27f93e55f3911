"""``python -m pyonnx_wasm.testing.differential --seed 1 --count 10000 --backend cpu``."""

from __future__ import annotations

import argparse
import sys
import time

from . import backends, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pyonnx_wasm.testing.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000, help="cases to run, from --first on")
    parser.add_argument("--first", type=int, default=0, help="index of the first case")
    parser.add_argument("--backend", choices=backends.BACKENDS, default="cpu")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="only operators, 'graph' and 'bait.…' that match this regular expression"
    )
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--show", type=int, default=3, metavar="N", help="findings to shrink and print as tests, one of each group")
    parser.add_argument("--verbose", action="store_true", help="list what is disputed, unstable, unjudged and invalid as well")
    args = parser.parse_args()
    start = time.perf_counter()
    print(f"seed {args.seed}, cases {args.first} to {args.first + args.count - 1}, {args.backend}", flush=True)
    indices = range(args.first, args.first + args.count)
    report = run.run(args.seed, indices, args.backend, args.only, args.jobs)
    print(report.table())
    if args.verbose:
        for key, found in sorted(report.others.items()):
            print(f"{len(found):6}  {' · '.join(key)}  [{', '.join(str(f.index) for f in found[:4])}]")
    for group in list(report.findings.values())[: args.show]:
        print("\n" + run.shown(args.seed, group[0], args.backend, args.only))
    count = sum(map(len, report.findings.values()))
    print(f"{report.total:,} cases, {count:,} findings in {len(report.findings)} groups, {time.perf_counter() - start:.0f} s")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
