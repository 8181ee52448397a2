"""What `gossamer dead replay` has to tell: what was parsed again, what is back in the queue, what was left out."""

from __future__ import annotations

import msgspec
from rich.text import Text

from ..project.reparse.dead_letters import Revival
from ..text import many, visible
from .app import err, out
from .jobs import crawl_command
from .reparse import tell_failures


class Replayed(msgspec.Struct, frozen=True):
    """What became of the letters: those that were parsed again, and how many went to the queue of each job."""

    revivals: list[Revival]
    queued: dict[str, int]
    names: list[str]  # of jobs that have letters back in their queues

    @property
    def did_something(self) -> bool:
        """False when every one of them failed again or had to be left out."""
        done = any(one.resolved or one.requeued for one in self.revivals)
        return bool(self.queued) or done or not any(one.failed or one.lost or one.left_out for one in self.revivals)


def tell_replayed(replayed: Replayed) -> None:
    """What became of the letters, and how to go on."""
    names = list(replayed.names)
    for one in replayed.revivals:
        names += sorted(one.jobs)
        _tell_revival(one)
    if replayed.queued:
        shares = [f"{name} ({n:,})" if len(replayed.queued) > 1 else name for name, n in replayed.queued.items()]
        count = sum(replayed.queued.values())
        out.print(f"{many(count, 'URL is', 'URLs are')} back in the queue of {visible(', '.join(shares))}.")
    if names:
        out.print("Go on with:")
    for name in dict.fromkeys(names):
        out.print(Text(f"  {crawl_command(name)}", style="cyan"))


def _tell_revival(one: Revival) -> None:
    if one.resolved:
        links = f", {many(one.links, 'link')} queued" if one.links else ""
        out.print(
            f"{many(one.resolved, 'page')} parsed again from the archive, without a request: "
            f"{many(one.records, 'record')}, {one.changed:,} new or changed{links}."
        )
    if one.requeued:
        out.print(f"{many(one.requeued, 'page')} without a raw copy: back in the queue, to be fetched.")
    if one.taken:
        out.print(f"{many(one.taken, 'page')} parsed again, but somebody else had settled the letter meanwhile.")
    if one.failed:
        out.print(Text(f"{many(one.failed, 'page')} failed again:", style="red"))
        tell_failures(one.failures)
    if one.lost:
        copies = many(one.lost, "raw page is", "raw pages are")
        err.print(Text(f"{copies} not in the archive any more. --fetch asks the site again.", style="yellow"))
    for why, count in one.left_out.items():
        err.print(Text(f"{many(count, 'dead letter')} left out: {visible(why)}", style="yellow"))
    for name in sorted(one.unread):
        err.print(
            Text(
                f"start() of {visible(name)} has no end in sight and was not read to it: "
                f"links to sites that it names later are not followed.",
                style="yellow",
            )
        )
    if not (one.resolved or one.requeued or one.taken or one.failed or one.lost or one.left_out):
        out.print("Nothing was left to do: somebody else has dealt with these letters meanwhile.")
