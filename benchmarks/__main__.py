"""`python -m benchmarks startup|drive|loop [--json] [--rounds N]`; 1 if a bar is missed."""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks import drive, loop, startup


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    names = parser.add_subparsers(dest="name", required=True)
    for name, rounds in (("startup", 7), ("drive", 5), ("loop", 5)):
        command = names.add_parser(name)
        command.add_argument("--json", action="store_true", help="one JSON object on stdout")
        command.add_argument("--rounds", type=int, default=rounds)
        if name == "drive":
            command.add_argument("--calls", type=int, default=300, help="calls per round")
    options = parser.parse_args()
    if options.name == "drive":
        report = drive.run(options.rounds, options.calls)
    else:
        report = {"startup": startup, "loop": loop}[options.name].run(options.rounds)
    print(json.dumps(report.as_json(), indent=2) if options.json else report.as_text())
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
