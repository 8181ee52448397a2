"""The commands of operations (project/operation.py): an option for each field, `--json` for programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import typer

from ..errors import Misconfigured
from ..project.access.keys import OWNER
from ..project.operation import Operation
from ..settings import Settings
from .app import app, ask, out
from .layout import Column, print_json, print_table
from .options import JsonOption


def add_operations(
    name: str, help: str, operations: Iterable[Operation[Any, Any]]
) -> typer.Typer:  # Any: their types differ
    """A verb with one command for each operation; without `help`, a verb that is a command itself."""
    if not help:
        add_commands(app, operations)
        return app
    group = typer.Typer(help=help, no_args_is_help=True)
    app.add_typer(group, name=name)
    add_commands(group, operations)
    return group


def add_commands(group: typer.Typer, operations: Iterable[Operation[Any, Any]]) -> None:
    """A command for each operation, in a verb that has others."""
    for operation in operations:
        group.command(operation.verb.rpartition(" ")[2], help=f"{operation.summary}.")(_command(operation))


def _nothing(settings: Settings) -> list[Any]:
    return []


def _command(operation: Operation[Any, Any]) -> Callable[..., None]:
    def command(as_json: bool, **given: object) -> None:
        try:
            wanted = msgspec.convert({name: value for name, value in given.items() if value is not None}, operation.ask)
        except msgspec.ValidationError as error:
            raise Misconfigured(f"{str(error).replace('$.', '--')}.") from error
        reads = bool(operation.columns) and operation.rows is None and not operation.writes
        answer = ask(
            lambda project: operation.run(project, OWNER, wanted),
            empty=_nothing if reads else None,
            begins=operation.begins,
        )
        if as_json:
            print_json(answer)
        elif not operation.columns:
            out.print(operation.words(answer) if operation.words is not None else "Done.")
        elif not (found := operation.rows(answer) if operation.rows is not None else answer):
            out.print(operation.nothing)
        else:
            rows = [[_cell(name, getattr(row, name)) for name in operation.columns] for row in found]
            last = len(operation.columns) - 1
            columns = [
                Column(name.upper().replace("_", " "), "" if place else "bold", fold=place == last)
                for place, name in enumerate(operation.columns)
            ]
            print_table(columns, rows)

    parameters = [_parameter(field, operation) for field in msgspec.structs.fields(operation.ask)]
    parameters.append(
        inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
    )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _cell(name: str, value: Any) -> Any:  # Any: of any column
    """A state is one word for programs, `up-to-date`, and plain words for people."""
    return value.replace("-", " ") if name == "state" else value


def _parameter(field: msgspec.structs.FieldInfo, operation: Operation[Any, Any]) -> inspect.Parameter:
    notes = get_args(field.type)[1:] if get_origin(field.type) is Annotated else ()
    words = next((note.description for note in notes if isinstance(note, msgspec.Meta) and note.description), None)
    if field.name in operation.arguments:
        shown: Any = typer.Argument(metavar=field.name.upper(), help=words)
    else:
        shown = typer.Option(f"--{field.name.replace('_', '-')}", help=words)
    default = inspect.Parameter.empty if field.required else field.default
    annotation = Annotated.__class_getitem__((_plain(field.type), shown))  # type: ignore[attr-defined]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain(kind: Any) -> Any:  # Any: a type
    """The type without its bounds, which are checked when the struct is made."""
    if get_origin(kind) is Annotated:
        return _plain(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, map(_plain, get_args(kind)))
    return kind
