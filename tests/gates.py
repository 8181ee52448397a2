"""A gate that a test holds in its hand, in the place of the pacer's."""

from __future__ import annotations

import asyncio


class HeldGate:
    """Opens with `opened`; `refusal` is raised in its place. `steps` is what the transport told: entered, left ..."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()  # a request waits, or has entered
        self.refusal: Exception | None = None
        self.steps: list[str] = []
        self.ago = 0.0  # seconds between the write and the moment at which it was told
        if is_open:
            self.opened.set()

    async def enter(self, address: str = "") -> None:
        self.reached.set()
        await self.opened.wait()
        if self.refusal is not None:
            raise self.refusal
        self.steps.append("entered")

    def withdraw(self) -> None:
        self.steps.append("withdrew")

    @property
    def is_out(self) -> bool:
        return "left" in self.steps

    def left(self, ago: float = 0.0) -> None:
        self.steps.append("left")
        self.ago = ago

    def close(self) -> None:
        self.steps.append("closed")
