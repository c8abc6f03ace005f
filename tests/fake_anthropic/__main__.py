"""Run the fake server as a process: it prints its URL, then serves until it is stopped."""

from __future__ import annotations

import argparse
from pathlib import Path

import anyio

from tests.fake_anthropic.answers import load_answers
from tests.fake_anthropic.server import FakeAnthropic


async def serve(port: int, script: Path) -> None:
    async with FakeAnthropic(load_answers(script), port=port) as api:
        print(api.url, flush=True)
        await anyio.sleep_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fake_anthropic", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--script", type=Path, required=True, help="YAML or JSON list of answers")
    options = parser.parse_args()
    try:
        anyio.run(serve, options.port, options.script)
    except KeyboardInterrupt:
        return


main()
