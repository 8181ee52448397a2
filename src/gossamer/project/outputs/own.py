"""A target of a project's own: the class that [outputs.NAME] names with `use`.

How it fails: what the class raises beside the errors of its contract counts as a target that is away, so that a mistake
of a library stops nothing for good; the state of the output has its words, without the secrets of its options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...errors import BatchRefused, LeaseLost, Misconfigured, Transient
from ...fetch.managed.secret_filter import hiding_of
from ...model.secret_text import SecretRef, is_secret, revealed, stored_setting
from ...settings import Settings
from ...settings.output_tables import OutputTable
from ...store.outputs.contract import Batch, Change, Output, Refused, Unforeseen
from ...terms import secrets_of
from ..extensions import created, options_of

LONGEST_MESSAGE = 500


def own_output(settings: Settings, name: str, table: OutputTable) -> Output:
    """Raises Misconfigured."""
    where, secrets = f"[outputs.{name}]", secrets_of(settings)
    stored = {key: stored_setting(value) for key, value in options_of(table.options).items()}
    options = {key: revealed(text, secrets) for key, text in stored.items()}
    parts = [part for text in stored.values() if is_secret(text) for part in text]
    hide = partial(_hidden, secrets={part.reveal(secrets) for part in parts if isinstance(part, SecretRef)})
    with _translated(f"{where}: {table.use}", hide):
        found = created(settings, where, table.use, options)
        if isinstance(found, Output):  # which may read its properties
            return OwnOutput(where, table.use, found, hide)
    raise Misconfigured(
        f"{where}: {table.use} is no output. Derive it from gossamer.Output, and write check and write; see "
        f"docs/outputs.md."
    )


class OwnOutput(Output):
    """Fulfils `Output` with a class that may break its promises."""

    def __init__(self, where: str, use: str, output: Output, hide: Callable[[str], str] = str) -> None:
        """`hide` takes secrets out of what the class says."""
        self._name = f"{where}: {use}"
        self._output = output
        self._hide = hide

    @property
    def rows_at_once(self) -> int:
        with _translated(f"{self._name}.rows_at_once", self._hide):
            return int(self._output.rows_at_once)

    @property
    def bytes_at_once(self) -> int:
        with _translated(f"{self._name}.bytes_at_once", self._hide):
            return int(self._output.bytes_at_once)

    @property
    def mirrors(self) -> bool:
        with _translated(f"{self._name}.mirrors", self._hide):
            return bool(self._output.mirrors)

    async def check(self) -> str:
        return self._hide(str(await self._call("check")))

    async def write(self, batch: Batch) -> list[Refused]:
        refused = await self._call("write", batch)
        if not isinstance(refused, list) or not all(_is_whole(one) for one in refused):
            raise Misconfigured(
                f"{self._name}.write must return a list of gossamer.Refused, which may be empty. Each has a change of "
                f"the batch, and a text that says why."
            )
        return [Refused(one.change, self._hide(one.reason)) for one in refused]

    async def count(self) -> int | None:
        found: int | None = await self._call("count")
        return found

    async def close(self) -> None:
        await self._call("close")

    async def _call(self, verb: str, *args: Batch) -> Any:  # Any: each verb gives something else
        with _translated(f"{self._name}.{verb}", self._hide):
            return await getattr(self._output, verb)(*args)


@contextmanager
def _translated(what: str, hide: Callable[[str], str]) -> Iterator[None]:
    try:
        yield
    except (BatchRefused, LeaseLost, Misconfigured, Transient) as error:
        error.args = tuple(hide(one) if isinstance(one, str) else one for one in error.args)
        raise
    except Exception as error:
        words = hide(f"{type(error).__name__}: {error}"[:LONGEST_MESSAGE])
        raise Unforeseen(f"{what} failed ({words}).") from error


def _hidden(text: str, secrets: Collection[str]) -> str:
    """The text without these secrets, in any spelling."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = hiding_of(secret).hide(text)
    return text


def _is_whole(one: object) -> bool:
    return isinstance(one, Refused) and isinstance(one.change, Change) and isinstance(one.reason, str)
