"""Actions that go on until something is so, forms that are filled in, and requests that are waited for."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import pytest

from gossamer.errors import FetchRefused, TimedOut
from gossamer.fetch.browser import page_actions
from gossamer.fetch.contract import Limits
from gossamer.model.page import Snapshot
from gossamer.model.route import Action
from gossamer.parse.page import Page
from tests.sites.hostile import Call, whole

from .showing import Show

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]

MORE = """<ul id=list></ul><button id=more onclick="go()">More</button><script>
let page = 0;
const go = () => fetch("/part?page=" + ++page).then(answer => answer.text()).then(text => {
  list.insertAdjacentHTML("beforeend", text);
  if (page >= %d) %s;
});
</script>"""
ENDLESS = """<ul id=list></ul><p style="height: 2000px"></p><script>
let page = 0, busy = false;
const go = () => { if (busy || page >= %d) return; busy = true;
  fetch("/part?page=" + ++page).then(answer => answer.text()).then(text => {
    list.insertAdjacentHTML("beforeend", text); busy = false; }); };
addEventListener("scroll", () => innerHeight + scrollY >= document.body.scrollHeight - 50 && go());
go();
</script>"""


LATE = 0.15  # seconds after which a part of the list comes


async def _part(call: Call) -> None:
    """Five lines of a list, after a moment."""
    await asyncio.sleep(LATE)
    number = int(call.query["page"])
    await whole(call, "".join(f"<li style='height: 300px'>{number}-{line}</li>" for line in range(5)).encode())


@pytest.fixture
def site(show: Show) -> Show:
    show.site.shown["/part"] = _part
    return show


@pytest.mark.parametrize("end", ["more.remove()", "more.hidden = true", "more.disabled = true"])
async def test_a_button_is_clicked_until_it_is_gone(site: Show, end: str) -> None:
    url = site.page(MORE % (4, end))
    response = await site.get(url, actions=(Action(do="click", selector="#more", until="gone"),))
    assert (response.body.count(b"<li"), response.unfinished) == (20, "")


@pytest.mark.parametrize(
    "button", ["<a id=more href=#>More</a>", "<div id=more>More</div>", "<a id=more role=button href=#>More</a>"]
)
async def test_what_is_clicked_need_not_be_a_button(site: Show, button: str) -> None:
    end = "more.setAttribute('aria-disabled', 'true')" if "role" in button else "more.remove()"
    html = (MORE % (3, end)).replace('<button id=more onclick="go()">More</button>', button)
    url = site.page(html.replace("</script>", "more.onclick = event => { event.preventDefault(); go(); };</script>"))
    response = await site.get(url, actions=(Action(do="click", selector="#more", until="gone"),))
    assert (response.body.count(b"<li"), response.unfinished) == (15, "")


@pytest.mark.parametrize(
    ("off", "on"), [("more.disabled = true", "more.disabled = false"), ("more.hidden = true", "more.hidden = false")]
)
async def test_a_button_that_is_off_while_it_loads_is_not_gone(site: Show, off: str, on: str) -> None:
    html = (MORE % (3, "more.remove()")).replace(
        "const go = () =>", f"const go = () => {{ {off}; setTimeout(load, 500) }}, load = () =>"
    )
    url = site.page(html.replace("more.remove();", f"more.remove(); else {on};"))
    response = await site.get(url, actions=(Action(do="click", selector="#more", until="gone", seconds=5),))
    assert (response.body.count(b"<li"), response.unfinished) == (15, "")


async def test_where_clicks_would_lead_is_collected(site: Show) -> None:
    url = site.page(
        "<li>one</li><li>two</li><li>three</li><li>four</li><form id=f method=post action=/post></form><script>"
        "const ways = [() => location.href = '/one', () => open('/two'), () => history.pushState({}, '', '/three'),"
        "  () => f.submit()];"
        "document.querySelectorAll('li').forEach((li, at) => li.addEventListener('click', ways[at]));</script>"
    )
    site.forget()
    response = await site.get(url, actions=(Action(do="collect", selector="li"),))
    page = Page(
        Snapshot(url=url, requested_url=url, status=200, headers=response.headers, body=response.body, fetched_at=0)
    )
    assert page.links() == [site.url(path) for path in ("/one", "/two", "/three")]
    assert (response.url, response.unfinished) == (url, "")
    assert [call.path for call in site.site.log] == ["/page"]
    few = await site.get(url, actions=(Action(do="collect", selector="li", times=2),))
    assert few.unfinished == "collect li: more than 2 elements"


async def test_an_action_that_cannot_be_done_is_named(site: Show) -> None:
    url = site.page("<input id=tick type=checkbox><select id=who><option>Ada</select>")
    with pytest.raises(TimedOut, match=r"there was no element #none within 0\.3 s"):
        await site.get(url, actions=(Action(do="wait", selector="#none", seconds=0.3),))
    with pytest.raises(FetchRefused, match=r"fill #tick cannot be done .*checkbox"):
        await site.get(url, actions=(Action(do="fill", selector="#tick", text="x"),))
    with pytest.raises(FetchRefused, match=r'press #tick cannot be done .Unknown key: "Entre"'):
        await site.get(url, actions=(Action(do="press", selector="#tick", text="Entre"),))
    with pytest.raises(FetchRefused, match=r"the selector of click p\[\[ is not valid CSS"):
        await site.get(url, actions=(Action(do="click", selector="p[["),))
    with pytest.raises(TimedOut, match=r"It was still busy with: click #none \(there is no such element\)\."):
        await site.get(url, actions=(Action(do="click", selector="#none"),), limits=Limits(total=timedelta(seconds=8)))


@pytest.mark.parametrize(
    ("do", "selector", "why"),
    [
        ("click", "#none", "there is no such element"),
        ("click", "#framed", "the element is in a frame; fetch the frame itself, "),
        ("click", "#hidden", "the element is not visible"),
        ("click", "#off", "the element is disabled"),
        ("click", "#covered", "something covers the element"),
        ("fill", "#fixed", "the element cannot be filled"),
        ("select", "#who", "the element has no such option"),
        ("wait", "#hidden", ""),
    ],
)
async def test_what_keeps_an_action_from_being_done_is_told(site: Show, do: str, selector: str, why: str) -> None:
    site.site.show("/frame", "<button id=framed>framed</button>")
    url = site.page(
        "<iframe src=/frame></iframe><button id=hidden hidden>x</button><button id=off disabled>x</button>"
        "<button id=covered>x</button><input id=fixed readonly><select id=who><option>Ada</select>"
        "<div style='position: fixed; inset: 0'></div>"
    )
    await site.get(url)  # so that there is a browser
    (process,) = site.transport.pool.processes
    async with await process.browser.new_page() as page:
        await page.route("**/*", lambda route: route.fulfill(body=bodies[route.request.url], content_type="text/html"))
        bodies = {url: (await site.get(url)).body.decode(), site.url("/frame"): "<button id=framed>framed</button>"}
        await page.goto(url)
        found = await page_actions.obstacle(page, Action(do=do, selector=selector, text="Grace"))
    assert found.startswith(why)
    assert bool(found) == bool(why)


async def test_what_has_no_end_is_read_before_its_time_is_over(site: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all that came would be lost."""
    monkeypatch.setattr(page_actions, "_SHARE_OF_ROUNDS", 0.01)
    scroll, click = Action(do="scroll", until="end"), Action(do="click", selector="#more", until="gone")
    response = await site.get(site.page(ENDLESS % 99), actions=(scroll,))
    assert re.fullmatch(r"scroll until end: not after \d+ times in \d+ s", response.unfinished)
    assert response.body.count(b"<li") >= 10
    response = await site.get(site.page(MORE % (99, "0")), actions=(click,))
    assert re.fullmatch(r"click #more until gone: not after \d+ times in \d+ s", response.unfinished)
    assert response.body.count(b"<li") >= 5


async def test_a_page_that_does_not_want_to_be_left_is_left(site: Show) -> None:
    url = site.page(
        "<script>onbeforeunload = event => event.preventDefault()</script>"
        "<input id=word><a id=go href=/part?page=1>go</a>"
    )
    actions = (Action(do="type", selector="#word", text="x"), Action(do="click", selector="#go"))
    assert (await site.get(url, actions=(*actions, Action(do="wait", selector="li", seconds=60)))).url.endswith(
        "page=1"
    )


async def test_a_page_is_scrolled_until_nothing_new_comes(site: Show) -> None:
    response = await site.get(site.page(ENDLESS % 6), actions=(Action(do="scroll", until="end"),))
    assert (response.body.count(b"<li"), response.unfinished) == (30, "")


async def test_what_goes_on_for_ever_ends_at_its_bound_and_is_told(site: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    click, scroll = (
        Action(do="click", selector="#more", until="gone", times=3),
        Action(do="scroll", until="end", times=2),
    )
    response = await site.get(site.page(MORE % (4, "0")), actions=(click, scroll))
    assert response.body.count(b"<li") == 15
    assert response.unfinished == "click #more until gone: not after 3 times"
    response = await site.get(site.page(ENDLESS % 99), actions=(scroll,))
    assert "scroll until end: not after 2 times" in response.unfinished
    monkeypatch.setattr(page_actions, "_LONGEST_SETTLING", 0.5)
    assert "not quiet" in (await site.get(site.url("/never-quiet"))).unfinished


async def test_fields_are_filled_and_options_selected_by_value_or_label(site: Show) -> None:
    url = site.page(
        "<input id=word value=old><select id=who><option value=1>Ada<option value=2>Grace</select><p id=out></p>"
        "<script>who.onchange = () => out.textContent += word.value + who.value + ' '</script>"
    )
    actions = (
        Action(do="fill", selector="#word", text="new"),
        Action(do="select", selector="#who", text="Grace"),
        Action(do="fill", selector="#word"),
        Action(do="select", selector="#who", text="1"),
    )
    assert b'<p id="out">new2 1 </p>' in (await site.get(url, actions=actions)).body


async def test_the_end_of_a_request_is_waited_for(site: Show) -> None:
    url = site.page(
        "<button id=more onclick=\"setTimeout(() => fetch('/part?page=7').then(a => a.text())"
        '.then(t => out.innerHTML = t), 700)">More</button><p id=out></p>'
    )
    click = Action(do="click", selector="#more")
    response = await site.get(url, actions=(click, Action(do="wait", text="/part?page=7", seconds=60)))
    assert b"7-4" in response.body
    with pytest.raises(TimedOut, match=r"no request to '/other' ended within 0\.3 s"):
        await site.get(url, actions=(click, Action(do="wait", text="/other", seconds=0.3)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"do": "fill"}, "needs a selector"),
        ({"do": "select", "selector": "a"}, "needs a text"),
        ({"do": "scroll", "until": "gone"}, "no scroll until 'gone', only click until gone and scroll until end"),
        ({"do": "type", "selector": "a", "text": "b", "until": "end"}, "no type until"),
    ],
)
async def test_an_action_that_makes_no_sense_is_refused_when_it_is_made(options: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Action(**options)
