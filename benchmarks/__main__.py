"""Command line: `python -m benchmarks NAME [--json] …`. The exit code is 1 if a limit is missed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from benchmarks import (
    context,
    crash,
    delegate,
    drive,
    engine,
    face,
    hostile,
    house,
    journal,
    loop,
    replicas,
    search,
    serve,
    serve_reload,
    startup,
    studio,
    terminal,
)
from benchmarks.peers import agno_compared, compare, langgraph_server
from benchmarks.report import Report

Options = argparse.Namespace


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    names = parser.add_subparsers(dest="name", required=True)

    def command(name: str, run: Callable[[Options], Report]) -> argparse.ArgumentParser:
        added = names.add_parser(name)
        added.add_argument("--json", action="store_true", help="one JSON object on stdout")
        added.set_defaults(run=run)
        return added

    rounds = {"type": int, "help": "how often everything is measured"}
    command("startup", lambda o: startup.run(o.rounds)).add_argument(
        "--rounds", default=15, **rounds
    )
    seen = command("terminal", lambda o: terminal.run(o.rounds, o.events))
    seen.add_argument("--rounds", default=9, **rounds)
    seen.add_argument("--events", type=int, default=terminal.EVENTS, help="to pipe as JSON")
    driven = command("drive", lambda o: drive.run(o.rounds, o.calls))
    driven.add_argument("--rounds", default=5, **rounds)
    driven.add_argument("--calls", type=int, default=300, help="calls per round")
    command("loop", lambda o: loop.run(o.rounds)).add_argument("--rounds", default=5, **rounds)
    command("journal", lambda o: journal.run(o.rounds)).add_argument(
        "--rounds", default=5, **rounds
    )
    command("engine", lambda o: engine.run(o.rounds)).add_argument("--rounds", default=2, **rounds)
    command("context", lambda o: context.run(o.rounds)).add_argument(
        "--rounds", default=5, **rounds
    )
    command("search", lambda o: search.run(o.rounds)).add_argument("--rounds", default=7, **rounds)
    served = command("serve", lambda o: serve.run(o.rounds, o.calls, o.seconds, o.clients))
    served.add_argument("--rounds", default=5, **rounds)
    served.add_argument("--calls", type=int, default=200, help="calls per round")
    served.add_argument("--seconds", type=float, default=60.0, help="how long the clients work")
    served.add_argument("--clients", type=int, default=200, help="HTTP clients at once")
    reloaded = command("reload", lambda o: serve_reload.run(o.skills, o.saves))
    reloaded.add_argument("--skills", type=int, default=1_000, help="how many there are")
    reloaded.add_argument("--saves", type=int, default=60, help="how often one is saved")
    killed = command("crash", lambda o: crash.run(o.kills))
    killed.add_argument("--kills", type=int, default=1_000, help="workers to kill")
    shared = command("replicas", lambda o: replicas.run(o.seeds))
    shared.add_argument("--seeds", type=int, default=10, help="rounds of each kind")

    delegated = command("delegate", lambda o: delegate.run(o.rounds, o.runs, o.at_once))
    delegated.add_argument("--rounds", default=5, **rounds)
    delegated.add_argument("--runs", type=int, default=20, help="runs per round")
    delegated.add_argument("--at-once", type=int, default=100, help="runs started together")
    command("face", lambda o: face.run())
    command("studio", lambda o: studio.run(o.rounds)).add_argument("--rounds", default=5, **rounds)
    attacked = command("hostile", lambda o: hostile.run(o.tools))
    attacked.add_argument("--tools", default="", help="only these, such as ls,grep")
    command("house", lambda o: house.run(o.suite)).add_argument(
        "--suite", action="store_true", help="run the tests as well, for their time"
    )

    compared = command("peers", lambda o: compare.run(o.rounds, o.python))
    compared.add_argument("--rounds", default=3, **rounds)
    compared.add_argument("--python", help="interpreter of an environment that has deepagents")
    others = (
        command("agno", lambda o: agno_compared.run(o.rounds, o.python)),
        command("langgraph", lambda o: langgraph_server.run(o.rounds, o.python)),
    )
    for other in others:
        other.add_argument("--rounds", default=9, **rounds)
        other.add_argument("--python", help="interpreter of an environment that has it")

    options = parser.parse_args()
    report = options.run(options)
    print(json.dumps(report.as_json(), indent=2) if options.json else report.as_text())
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
