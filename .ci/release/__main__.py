"""Builds what is published besides the wheel.

python .ci/release site [OUT]
python .ci/release bundle [OUT]
python .ci/release registry io.github.OWNER [--mcpb FILE URL] > server.json
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:1] = [str(HERE.parent), str(HERE.parent.parent)]  # this package, and the checkout's own

from release import mcpb, registry, site  # noqa: E402

match sys.argv[1:]:
    case ["site", *out]:
        site.build(Path(*out or ["dist/site"]))
    case ["bundle", *out]:
        print(mcpb.build(Path(*out or ["dist"])))
    case ["registry", *arguments]:
        registry.main(arguments)
    case _:
        sys.exit(__doc__)
