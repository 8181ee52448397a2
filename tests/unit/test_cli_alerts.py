"""`gossamer alerts` as people and programs use it, and what is wrong with settings of alerts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.contract import JobTerms
from gossamer.model.alert import AlertChange, AlertState, Severity, Standing
from gossamer.model.alert_table import ALERTS
from gossamer.project.open import Project
from gossamer.schedule.alert_book import AlertStep
from gossamer.settings.alert_tables import terms_of
from gossamer.units import setting_text
from tests.docs.manual import ROOT, quoted, read, rows_under, sections_of
from tests.server.receiver import receiving
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project

FIRING = Standing(
    alert="success", subject="<!channel>\x1b[31m", state=AlertState.FIRING, since=1.0, began_at=0.5,
    words="62% of 120 requests succeeded.",
)  # fmt: skip


async def fire(system: Project) -> None:
    """As a scheduler would have it."""
    term = await system.state.ticks.lead("far/1/x", timedelta(seconds=600))
    assert term is not None
    change = AlertChange(
        at=1.0, alert="success", subject="shop.example", state=AlertState.FIRING, words="w", severity=Severity.WARNING
    )
    more = (
        Standing(alert="workers", subject="", state=AlertState.FIRING, since=1.0, began_at=0.5, words="3 are gone."),
    )
    await system.state.alerts.settle(term, AlertStep(standings=(FIRING, *more), changes=(change,)))

    await system.state.jobs.open_job("books", JobTerms(), fresh=True)


def test_a_project_without_alerts_says_so_and_who_would_look(project: ProjectFolder):
    said = project.run("alerts", "list")
    assert (said.code, said.out) == (0, "No alerts.\n")
    assert "gossamer scheduler" in said.err
    assert project.run("alerts", "history").out == "No alert has fired yet.\n"


def test_alerts_are_listed_explained_and_named_by_status(project: ProjectFolder):
    project.fill(fire)
    said = project.run("alerts", "list")
    assert "62% of 120 requests" in said.out
    assert "\x1b" not in said.out
    assert "there is no channel" in said.err
    assert [one["alert"] for one in project.run("alerts", "list", "--json").json["alerts"]] == ["success", "workers"]
    assert project.run("alerts", "list", "--state", "pending").out == "No alert is pending.\n"
    assert "2 alerts fire: success, workers" in project.run("status").err
    shown = project.run("alerts", "show", "success")
    assert "threshold 0.8" in shown.out
    assert "for 5m" in shown.out
    assert project.run("alerts", "history", "--json").json[0]["subject"] == "shop.example"
    assert project.run("alerts", "history", "workers").out == "No alert has fired yet.\n"


def test_a_silence_is_made_listed_and_ended(project: ProjectFolder):
    project.fill(fire)
    made = project.run("alerts", "silence", "succ*", "--for", "2h", "--reason", "we know", "--json").json
    listed = project.run("alerts", "list", "--json").json
    assert [one["silenced_until"] is not None for one in listed["alerts"]] == [True, False]
    assert [(one["id"], one["reason"]) for one in listed["silences"]] == [(made["id"], "we know")]
    assert "we know" in project.run("alerts", "list").out
    assert project.run("alerts", "unsilence", made["id"]).code == 0
    assert project.run("alerts", "list", "--json").json["silences"] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["silence", "sucess", "--for", "2h", "--reason", "r"], "Did you mean success?"),
        (["silence", "success", "--for", "soon", "--reason", "r"], "is not a duration"),
        (["silence", "success", "--for", "0s", "--reason", "r"], "must end"),
        (["silence", "success", "--for", "1d", "--reason", " "], "Say why"),
        (["silence", "success", "--for", "9999d", "--reason", "r"], "must end"),
        (["silence", "success", "--reason", "r"], "--for"),
        (["show", "colour"], "There is no alert"),
        (["history", "colour"], "There is no alert"),
        (["unsilence", "s1"], "There is no silence s1"),
        (["test"], "There is no channel yet"),
    ],
)
def test_what_cannot_be_is_refused_with_the_next_step(project: ProjectFolder, words: list[str], says: str):
    project.fill(fire)
    said = project.run("alerts", *words)
    assert said.code in (1, 2)
    assert says in " ".join(said.err.split())


def test_a_test_message_is_sent_and_what_failed_is_told(project: ProjectFolder):
    with receiving() as receiver:
        channel = f'[channels.hook]\nkind = "webhook"\nurl = "{receiver.url}"\n'
        project.write("gossamer.toml", channel)
        refused = project.run("alerts", "test")
        project.write("gossamer.toml", channel + "allow_private = true\n")
        taken = project.run("alerts", "test", "hook", "--json")
        secret = project.run("callbacks", "secret", "--alerts").out.strip()
    assert (refused.code, taken.code) == (1, 0)
    assert "allow_private" in refused.out
    assert taken.json == [{"channel": "hook", "kind": "webhook", "ok": True, "error": ""}]
    (got,) = receiver.deliveries
    assert got.is_signed_with(secret)


# -- settings ------------------------------------------------------------------------------------------------------

HOOK = '[channels.hook]\nkind = "webhook"\nurl = "https://pager.example/"\n'
MAIL = '[channels.mail]\nkind = "email"\nhost = "mail.example"\nsender = "a@b.example"\nto = ["c@d.example"]\n'


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[alerts.sucess]\nenabled = false", "Did you mean success?"),
        ("[alerts.success]\ntreshold = 0.5", "Did you mean alerts.<alert>.threshold?"),
        ('[alerts.success]\nseverity = "loud"', "must be info, warning or critical"),
        ('[alerts.success]\nfor = "soon"', "is not a duration"),
        ('[alerts.success]\nrepeat = "5s"', "must be 1m or more"),
        ("[alerts.success]\nthreshold = -1", "must be 0 or more"),
        ("[alerts.success]\nthreshold = nan", "must be 0 or more"),
        ('[alerts.success]\nwindow = "1s"', "must be between"),
        ("[alerts.success]\nminimum = -1", "must be 0 or more"),
        ('[channels.x]\nurl = "https://a.example"', "must be webhook, slack, email or apprise"),
        ('[channels.x]\nkind = "slack"', "url"),
        (HOOK + 'alerts = ["sucess"]', "Did you mean success?"),
        (HOOK + 'severity = "loud"', "must be info"),
        (MAIL + 'security = "ssl"', "must be starttls, tls or plain"),
        (MAIL + 'password = "x"', "is needed beside a password"),
        (MAIL + 'user = "u"\npassword = "x"\nsecurity = "plain"', "without encryption"),
        (MAIL.replace("c@d.example", "c@d.example, e@f.example"), "write plain addresses"),
        (MAIL.replace("a@b.example", "a b@c.example"), "write plain addresses"),
        (MAIL + "port = 0", "must be between"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_suggestion(project: ProjectFolder, toml: str, says: str):
    project.write("gossamer.toml", toml)
    said = project.run("settings")
    assert said.code == 1
    assert says in " ".join(said.err.split())


def test_secrets_of_channels_are_masked_and_keys_are_as_written(project: ProjectFolder):
    project.write("gossamer.toml", HOOK + '[alerts.success]\nfor = "10m"\nrepeat = "none"\n')
    shown = project.run("settings", "--json").json
    assert shown["channels.hook.url"]["value"] == "***"
    assert (shown["alerts.success.for"]["value"], shown["alerts.success.repeat"]["value"]) == ("10m", None)


# -- the manual ----------------------------------------------------------------------------------------------------


def test_the_manual_names_every_alert_with_its_usual_terms_and_what_to_do():
    page = ROOT / "docs" / "alerts.md"
    rows = rows_under(read(page), "alert", "severity", "for", "threshold", "window", "minimum")
    told = {quoted(row[0])[0]: row[1:] for row in rows}
    assert told == {
        name: [
            terms.severity.value,
            f"`{setting_text(terms.wait)}`",
            f"{terms.threshold:g}",
            f"`{setting_text(terms.window)}`",
            str(terms.minimum),
        ]
        for name, terms in terms_of({}).items()
    }
    for name in ALERTS:
        assert "**Do:**" in " ".join(sections_of(page)[name].split())
