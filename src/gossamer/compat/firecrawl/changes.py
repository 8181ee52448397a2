"""What has changed on a page, in the shape of Firecrawl's `changeTracking`: status, diff as text and as chunks."""

from __future__ import annotations

import re
from typing import Any

_CHUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_KINDS = {"+": "add", "-": "del"}  # all others: normal


def change_tracking(changes: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "previousScrapeAt": changes["previous_at"],
        "changeStatus": changes["status"],
        "visibility": "visible",
    }
    if changes.get("diff"):
        found["diff"] = {"text": changes["diff"], "json": {"files": [_file(changes["diff"])]}}
    if changes.get("fields") is not None:
        found["json"] = changes["fields"]
    return found


def _file(diff: str) -> dict[str, Any]:
    """A unified diff as its chunks and lines, as the parsers of diffs that clients know give it."""
    chunks: list[dict[str, Any]] = []
    old = new = 0
    for line in diff.splitlines()[2:]:  # after the names of the two sides
        if (head := _CHUNK.match(line)) is not None:
            old, new = int(head[1]), int(head[3])
            chunks.append(
                {
                    "content": line,
                    "changes": [],
                    "oldStart": old,
                    "oldLines": int(head[2] or 1),
                    "newStart": new,
                    "newLines": int(head[4] or 1),
                }
            )
        elif chunks:
            kind = _KINDS.get(line[:1], "normal")
            where = {"ln1": old, "ln2": new} if kind == "normal" else {"ln": new if kind == "add" else old}
            chunks[-1]["changes"].append({"type": kind, kind: True, **where, "content": line})
            old, new = old + (kind != "add"), new + (kind != "del")
    lines = [change["type"] for chunk in chunks for change in chunk["changes"]]
    return {
        "from": "previous",
        "to": "current",
        "additions": lines.count("add"),
        "deletions": lines.count("del"),
        "chunks": chunks,
    }
