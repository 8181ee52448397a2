"""`python -m gossamer.demo`: serve the demo shop until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress

from ..errors import Misconfigured
from .shop import USUAL_PORT, open_shop


async def serve(port: int, revision: int, *, redesigned: bool) -> None:
    async with open_shop(port=port, revision=revision, redesigned=redesigned) as shop:
        print(f"The demo shop (revision {revision}) is open at {shop.url} - stop it with Ctrl-C", flush=True)
        await asyncio.Event().wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gossamer.demo", description="Serve Gossamer's demo shop.")
    parser.add_argument("--port", type=int, default=USUAL_PORT, help=f"0 takes any free one (default: {USUAL_PORT})")
    parser.add_argument("--revision", type=int, default=1, help="2 and up: the same shop weeks later, other prices")
    parser.add_argument("--redesigned", action="store_true", help="product pages have another layout")
    flags = parser.parse_args()
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(serve(flags.port, flags.revision, redesigned=flags.redesigned))
    except Misconfigured as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
