"""The view of outputs: how far each has come, rows that targets refused; paused, resumed, rewound. And of orders to
erase records."""

from __future__ import annotations

from ...project.access.keys import ADMIN, JOBS
from ...project.outputs.outputs import (
    NoFilter,
    OutputName,
    check_output,
    list_outputs,
    pause_output,
    resume_output,
    rewind_output,
    show_output,
)
from ...project.records.forget import NoForgetFilter, list_orders
from ...units import many
from .view import Context, Done, FormAction, Question, View, Visit

PAGE = "/ui/outputs"


async def outputs(visit: Visit) -> Context:
    found = await list_outputs(visit.project, visit.caller, NoFilter())
    refused = [await show_output(visit.project, visit.caller, OutputName(name=one.name)) for one in found if one.dead]
    return {"outputs": found, "refused": refused}


async def orders(visit: Visit) -> Context:
    """For admins: an order says nothing about what was erased, but that somebody asked for it."""
    return {"orders": await list_orders(visit.project, visit.caller, NoForgetFilter()) if visit.caller.is_admin else []}


async def pause(visit: Visit) -> Done:
    view = await pause_output(visit.project, visit.caller, visit.of(OutputName))
    return Done(words=f"{view.name} is paused. Nothing is lost: it goes on where it is.", to=PAGE, target=view.name)


async def resume(visit: Visit) -> Done:
    view = await resume_output(visit.project, visit.caller, visit.of(OutputName))
    return Done(words=f"{view.name} goes on.", to=PAGE, target=view.name)


async def check(visit: Visit) -> Done:
    checked = await check_output(visit.project, visit.caller, visit.of(OutputName))
    return Done(words=checked.found, to=PAGE, target=checked.name)


async def ask_to_rewind(visit: Visit) -> Question:
    view = await show_output(visit.project, visit.caller, visit.of(OutputName))
    words = (
        f"Write every record to {view.target} again, from the first on? {many(view.written, 'change')} were written."
    )
    return Question(words=words, button="Write them again", back=PAGE)


async def rewind(visit: Visit) -> Done:
    view = await rewind_output(visit.project, visit.caller, visit.of(OutputName))
    return Done(words=f"{view.name} begins at the first record again.", to=PAGE, target=view.name)


VIEWS = (
    View(PAGE, "Outputs", "outputs.html", {"outputs": outputs, "orders": orders}, JOBS, group="Data"),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/outputs/pause", handler=pause, form=OutputName, scope=ADMIN),
    FormAction(path="/ui/outputs/resume", handler=resume, form=OutputName, scope=ADMIN),
    FormAction(path="/ui/outputs/check", handler=check, form=OutputName, scope=ADMIN),
    FormAction(path="/ui/outputs/rewind", handler=rewind, form=OutputName, scope=ADMIN, ask=ask_to_rewind),
)
