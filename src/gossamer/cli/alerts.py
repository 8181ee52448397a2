"""`gossamer alerts`: list, explain and silence alerts, and test their channels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from rich.text import Text

from ..errors import Misconfigured
from ..model.alert import AlertState
from ..project.alerts.alerts import (
    AlertChangeView,
    AlertList,
    AlertView,
    NoticeView,
    SilenceView,
    alert_history,
    list_alerts,
    list_notices,
    show_alert,
    silence,
    try_channels,
    unsilence,
)
from ..project.open import Project, open_project
from ..units import distance, moment, parse_duration, visible
from .app import app, ask, ask_at, err, fail, out, run_async, settings_with
from .layout import Column, advise, answer_program, heading, number, print_facts, print_json, print_table, warn
from .options import JsonOption

T = TypeVar("T")
alerts_app = typer.Typer(help="Alerts: list, show and silence them; test channels.", no_args_is_help=True)
app.add_typer(alerts_app, name="alerts")

AlertArgument = Annotated[str, typer.Argument(metavar="ALERT", help="The name of an alert: success.")]


@alerts_app.command("list")
def list_verb(
    state: Annotated[AlertState | None, typer.Option(help="Only alerts in this state.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List alerts that are firing, pending or were resolved within a day, and silences."""
    found, now = ask_at(
        lambda project: list_alerts(project, state),
        empty=lambda settings: AlertList(watched=False, alerts=[], silences=[], channels=list(settings.channels)),
    )
    answer_program(found, as_json)
    if found.alerts:
        _print_alerts(found.alerts, now)
    else:
        out.print(f"No alert is {state.value}." if state is not None else "No alerts.")
    if found.silences:
        heading("Silences")
        _print_silences(found.silences, now)
    if not found.watched:
        warn("Alerts are not evaluated: no scheduler is running. Start `gossamer up` or `gossamer scheduler`.")
    elif not found.channels:
        words = "Alerts are not sent: there is no channel. Add a table [channels.NAME] to gossamer.toml."
        err.print(Text(words, style="dim"))


def _print_alerts(alerts: list[AlertView], now: float) -> None:
    print_table(
        (Column("ALERT", "bold"), Column("SUBJECT"), Column("STATE"), Column("SEVERITY", spare=1), Column("SINCE"),
         Column("WHAT", fold=True)),
        [(one.alert, one.subject, _state(one), one.severity.value, _when(one.since, now), one.message)
         for one in alerts],
    )  # fmt: skip


def _state(one: AlertView) -> str:
    return f"{one.state.value}, silenced" if one.silenced_until is not None else one.state.value


def _when(at: str, now: float) -> str:
    return distance(at, now) if out.is_terminal else at


def _print_silences(silences: list[SilenceView], now: float) -> None:
    print_table(
        (Column("ID", "bold"), Column("ALERT"), Column("SUBJECT"), Column("ENDS"), Column("BY", spare=1),
         Column("REASON", fold=True)),
        [(one.id, one.alert, one.subject, _when(one.until, now), one.made_by, one.reason) for one in silences],
    )  # fmt: skip


@alerts_app.command("show")
def show_verb(alert: AlertArgument, as_json: JsonOption = False) -> None:
    """Explain an alert: its meaning, what to do, its thresholds, its state, and the messages sent about it."""
    found, now = _ask_anywhere(lambda project: show_alert(project, alert))
    answer_program(found, as_json)
    heading(found.alert, found.meaning)
    terms = found.terms
    facts = {"what to do": found.advice}
    if terms is None:
        facts["terms"] = f"switched off: alerts.{alert}.enabled"
    else:
        names = ("severity", "wait", "keep_for", "repeat", "threshold", "window", "minimum")
        shown = {"for" if name == "wait" else name: getattr(terms, name) for name in names}
        facts["terms"] = ", ".join(f"{name} {_number(value)}" for name, value in shown.items())
    print_facts(list(facts.items()))
    if found.alerts:
        _print_alerts(found.alerts, now)
    else:
        out.print("It is inactive.")
    if found.history:
        heading("History")
        _print_changes(found.history, now)
    if found.notices:
        heading("Messages")
        _print_notices(found.notices, now)
    advise((f"gossamer alerts silence {alert} --for 2h --reason TEXT", "send no messages for two hours"))


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


@alerts_app.command("silence")
def silence_verb(
    alert: Annotated[str, typer.Argument(metavar="ALERT", help="The name of an alert, or a pattern: '*'.")],
    lasting: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long: 2h, 30m, 7d.")],
    reason: Annotated[str, typer.Option(help="Why; others will ask.")],
    subject: Annotated[str, typer.Option(help="Only for this site, job or pool, or a pattern.")] = "*",
    as_json: JsonOption = False,
) -> None:
    """Send no messages about an alert for a while. It is still evaluated; if it fires at the end, it is sent then."""
    try:
        duration = parse_duration(lasting)
    except ValueError as error:
        raise Misconfigured(f"--for: {error}.") from error
    made, _ = _ask_anywhere(
        lambda project: silence(project, alert, subject=subject, lasting=duration, reason=reason, by="command line")
    )
    answer_program(made, as_json)
    whom = "" if made.subject == "*" else f" of {made.subject}"
    out.print(Text(visible(f"{made.alert}{whom} is silenced until {moment(made.until)}. To end it sooner:")))
    out.print(f"  gossamer alerts unsilence {made.id}")


@alerts_app.command("unsilence")
def unsilence_verb(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `gossamer alerts list` shows it.")],
) -> None:
    """End a silence. If the alert is firing, it is sent."""
    ask(lambda project: unsilence(project, id))
    out.print(f"{id} is ended.", markup=False)


@alerts_app.command("test")
def try_verb(
    channel: Annotated[
        str | None, typer.Argument(metavar="CHANNEL", help="A channel from gossamer.toml (default: all).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send a test message to a channel, or to all of them, and report the result."""
    found, _ = _ask_anywhere(lambda project: try_channels(project, channel))
    if as_json:
        print_json(found)
    else:
        print_table(
            (Column("CHANNEL", "bold"), Column("KIND"), Column("RESULT", fold=True)),
            [(one.channel, one.kind, "accepted" if one.ok else one.error) for one in found],
        )
    failed = [one.channel for one in found if not one.ok]
    if failed:
        fail(f"{', '.join(failed)} did not accept the message. Fix [channels.NAME] in gossamer.toml, and try again.")


@alerts_app.command("history")
def history_verb(
    alert: Annotated[str | None, typer.Argument(metavar="ALERT", help="Only this alert.")] = None,
    messages: Annotated[bool, typer.Option("--messages", help="List messages, sent and waiting.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100,
    as_json: JsonOption = False,
) -> None:
    """List alerts that fired or were resolved, newest first; with --messages, the messages and their recipients."""
    if messages:
        found, now = ask_at(lambda project: list_notices(project, limit=limit), empty=lambda settings: [])
        notices = [one for one in found if alert in (None, one.alert)]
        if as_json:
            print_json(notices)
        else:
            _print_notices(notices, now)
        return
    changes, now = ask_at(lambda project: alert_history(project, alert, limit=limit), empty=lambda settings: [])
    if as_json:
        print_json(changes)
    elif changes:
        _print_changes(changes, now)
    else:
        out.print("No alert has fired yet.")


def _ask_anywhere(work: Callable[[Project], Awaitable[T]]) -> tuple[T, float]:
    """Return the result of `work` and the time, also for a project in which nothing has been crawled yet."""
    settings = settings_with()

    async def asked() -> tuple[T, float]:
        async with open_project(settings, to_look=True) as project:
            return await work(project), project.clock.now()

    return run_async(asked())


def _print_changes(changes: list[AlertChangeView], now: float) -> None:
    print_table(
        (Column("WHEN"), Column("ALERT", "bold"), Column("SUBJECT"), Column("STATE"), Column("WHAT", fold=True)),
        [(_when(one.at, now), one.alert, one.subject, f"{one.state.value}{', silenced' if one.silenced else ''}",
          one.message) for one in changes],
    )  # fmt: skip


def _print_notices(notices: list[NoticeView], now: float) -> None:
    if not notices:
        out.print("There is no message about an alert yet.")
        return
    print_table(
        (Column("WHEN"), Column("CHANNEL", "bold"), Column("MESSAGE", fold=True), Column("STATE"),
         Column("TRIES", right=True), Column("LAST ERROR", fold=True)),
        [(_when(one.made_at, now), one.channel, one.title, one.state.value, number(one.tries), one.error)
         for one in notices],
    )  # fmt: skip
