"""What is a wall is told from what is a page, and neither bytes nor headers make the judgement fall over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.fetch.contract import Response
from gossamer.model.page import Headers
from gossamer.routing import block_signs as signatures
from gossamer.routing.blocks import Block, judge

from .walls import WALLS, Wall, answer, page, script

WORDS = "<p>The kettle is made of steel and holds two litres. It is light, and it whistles when it is done.</p>\n"
LINKS = "".join(f'<a href="/item/{n}">Item {n}</a>\n' for n in range(12))


def served(wall: Wall, html: str | None = None) -> Response:
    types = [value for name, value in wall.headers if name == "Content-Type"]
    headers = [pair for pair in wall.headers if pair[0] != "Content-Type"]
    return answer(
        wall.html if html is None else html, wall.status, *headers, content_type=types[0] if types else "text/html"
    )


def known(block: Block | None, wall: Wall) -> bool:
    return block is not None and block.kind == wall.kind and block.words.startswith(wall.name)


@pytest.mark.parametrize("wall", WALLS, ids=[f"{wall.name}-{wall.status}" for wall in WALLS])
def test_a_wall_is_known_by_its_name(wall: Wall) -> None:
    block = judge(served(wall))

    assert known(block, wall), block
    assert block is not None
    assert block.cure in signatures.CURES
    assert "\n" not in block.words


def test_every_name_of_the_table_has_a_page_here() -> None:
    assert {sign.name for sign in (*signatures.HEADERS, *signatures.PAGES)} <= {wall.name for wall in WALLS}


def test_the_table_speaks_of_known_kinds_and_cures_in_lower_case() -> None:
    for sign in (*signatures.HEADERS, *signatures.PAGES):
        assert sign.kind in signatures.KINDS
        assert sign.cure in ("", *signatures.CURES)
        assert sign.where == "header" if sign in signatures.HEADERS else sign.where in ("title", "text", "markup")
        for pattern in sign.patterns:
            assert pattern.replace(rb"\S", b"") == pattern.replace(rb"\S", b"").lower(), sign


def _shouted(html: str) -> str:
    for name in ("title", "body", "div", "form", "noscript"):
        html = html.replace(f"<{name}", f"<{name.upper()}").replace(f"</{name}", f"</{name.upper()}")
    return html


def _stretched(html: str) -> str:
    return html.replace("<body>", "\n\n\t <body>\r\n   ").replace("</body>", "\n" * 500 + "</body>")


def _padded_before(html: str) -> str:
    return html.replace("<body>", f"<style>{'.a{color:red}' * 2000}</style><body><!-- {'pad ' * 1000} -->")


def _padded_after(html: str) -> str:
    return html.replace("</body>", f"<script>/* {'q' * 150_000} */</script></body>")


VARIANTS = [_shouted, _stretched, _padded_before, _padded_after]


@pytest.mark.parametrize("wall", [wall for wall in WALLS if "<body>" in wall.html], ids=lambda wall: wall.name)
def test_neither_case_nor_space_nor_padding_hides_a_wall(wall: Wall) -> None:
    for vary in VARIANTS:
        if vary is _padded_after and wall.name[0].isdigit():
            continue  # these count their scripts
        block = judge(served(wall, vary(wall.html)))
        assert known(block, wall), (vary.__name__, block)


@pytest.mark.parametrize("name", ["cf-mitigated", "CF-Mitigated", "CF-MITIGATED"])
def test_the_case_of_a_header_does_not_matter(name: str) -> None:
    block = judge(answer(page(WORDS * 50 + LINKS, "Kettle"), 200, ("Server", "cloudflare"), (name, "Challenge")))
    assert block == Block("challenge", "Cloudflare challenge, told by the header cf-mitigated (status 200)", "render")


@pytest.mark.parametrize(
    ("status", "kind", "cure"),
    [
        (401, "login", "identity"),
        (403, "forbidden", "proxy"),
        (429, "rate", "slow"),
        (430, "rate", "slow"),
        (451, "forbidden", "proxy"),
        (503, "rate", "slow"),
        (999, "forbidden", "proxy"),
    ],
)
@pytest.mark.parametrize("kind_of_body", ["application/json", "text/html", "image/png", ""])
def test_a_status_that_refuses_is_enough(status: int, kind: str, cure: str, kind_of_body: str) -> None:
    body = page(WORDS * 60, "Kettle") if kind_of_body == "text/html" else "{}"
    block = judge(answer(body, status, content_type=kind_of_body))
    assert block is not None
    assert (block.kind, block.cure) == (kind, cure)
    assert str(status) in block.words


@pytest.mark.parametrize("status", [200, 201, 204, 206, 301, 302, 304, 400, 404, 410, 500, 502, 504])
def test_other_statuses_are_no_block_whatever_the_kind_of_body(status: int) -> None:
    for body, label in ((b"", "text/html"), (b"{}", "application/json"), (b"\x89PNG\r\n", "image/png"), (b"ok", "")):
        assert judge(answer(body, status, content_type=label)) is None


def test_a_password_that_the_server_asks_for_openly_is_no_block() -> None:
    assert judge(answer("no", 401, ("WWW-Authenticate", "Basic realm=x"))) is None


CONTACT = (
    '<h1>Write to us</h1><form><input type="text" name="name"><input type="email" name="from"><textarea name="words">'
    '</textarea><p>Please verify you are human:</p><div class="g-recaptcha"></div><div class="cf-turnstile"></div>'
    "</form>" + script(src="https://www.google.com/recaptcha/api.js")
)
ABOUT = (
    "<h1>How challenge pages work</h1>"
    + WORDS * 30
    + "<p>You see <i>Just a moment...</i>, then <i>Press &amp; Hold</i>,"
    " then <i>Are you a robot?</i>, then <i>The requested URL was rejected. Your support ID is 1</i>.</p>"
    "<pre>&lt;script&gt;window._cf_chl_opt = {}&lt;/script&gt; /cdn-cgi/challenge-platform/h/b/orchestrate/jsch</pre>"
)
HEADER_LOGIN = (
    '<header><form><input name="user"><input type="password" name="pw"><button>Log in</button></form></header>'
)
LOGIN_WALL = next(wall for wall in WALLS if wall.kind == "login" and wall.status == 200)
ORDINARY = {
    "a contact form with widgets": answer(page(CONTACT, "Contact")),
    "an article about challenges": answer(page(ABOUT + LINKS, "Just a moment: captcha and Cloudflare explained")),
    "an article about challenges without links": answer(page(ABOUT, "Access denied? Verify you are human!")),
    "a short note about captchas": answer(page("<p>Are you a robot? About captchas.</p>" + script("a()"), "Note")),
    "a question about an error": answer(page(
        "<p>What is error code 1020? It says: our systems have detected unusual traffic.</p>" + LINKS + script("a()"),
        "Access denied | error 1020")),
    "a toy with links": answer(page("<p>Robot check is a game for two.</p>" + LINKS, "Robot check")),
    "a toy with many words": answer(page(WORDS * 20, "Robot check")),
    "a song": answer(page("<h1>Just a Moment</h1>" + WORDS * 3, "Just a moment... lyrics")),
    "a page with a login link": answer(page(WORDS + '<a href="/login">Log in</a>' + script("a()"), "Kettle")),
    "a small page with a login form on top": answer(page(HEADER_LOGIN + WORDS + script("a()"), "Kettle")),
    "a page with a login form on top": answer(page(HEADER_LOGIN + WORDS * 20 + LINKS, "Kettle, please sign in")),
    "the login page itself": answer(LOGIN_WALL.html, url="https://shop.example/users/sign_in"),
    "a page behind Cloudflare": answer(
        page(WORDS * 3 + script(src="/cdn-cgi/challenge-platform/scripts/jsd/main.js"), "Kettle"),
        200, ("CF-RAY", "8a1-FRA"), ("Server", "cloudflare")),
    "a page behind DataDome": answer(page(WORDS + LINKS, "Kettle"), 200, ("X-DataDome", "protected")),
    "a page behind Kasada": answer(page(WORDS + script("a()"), "Kettle"), 200, ("x-kpsdk-ct", "02")),
    "a page behind Imperva": answer(page(WORDS + script(src="/_Incapsula_Resource?SWJIYLWA=719d"), "Kettle")),
    "a short text": answer(page("<p>Moved. See the new place.</p>", "Moved")),
    "a greeting": answer("<html><body>Hello</body></html>"),
    "an empty answer": answer(""),
    "a refresh": answer('<html><head><meta http-equiv="refresh" content="0;url=/new"></head><body></body></html>'),
    "a script that sends on": answer(page(script("location.replace('/new')") + script() * 3)),
    "a picture with counters": answer(page('<img src="/big.jpg">' + script(src="/a.js") * 4, "Picture")),
    "a frame": answer(page('<iframe src="/inner"></iframe>' + script("a()") * 4, "Outer")),
    "frames": answer("<html>" + script("a()") * 4 + "<frameset><frame src=a></frameset></html>"),
    "JSON": answer('{"title": "Just a moment...", "x": "window._cf_chl_opt"}', content_type="application/json"),
    "JSON that calls itself HTML": answer('{"ok": true}'),
    "XML": answer("<urlset><url>captcha</url></urlset>", content_type="application/xml"),
    "robots.txt": answer("User-agent: *\nDisallow: /captcha", content_type="text/plain"),
    "a plain text": answer(page('<div id="root"></div><script></script>'), content_type="text/plain"),
    "a root with a few words": answer(page('<div id="app">Sold out.</div>' + script(src="/a.js"), "Kettle")),
    "a rendered root": answer(page(f'<div id="root"><h1>Kettle</h1>{WORDS}</div>' + script(src="/a.js"), "Kettle")),
    "words in a shadow root": answer(page(
        f'<x-page><template ShadowRootMode="open"><h1>Kettle</h1>{WORDS}</template></x-page>' + script(src="/a.js") * 4,
        "Kettle")),
    "a root with its data beside it": answer(page(
        '<div id="root"></div><script type="application/ld+json">{"@context": "https://schema.org", "@type": "Product",'
        ' "name": "Kettle"}</script>', "Kettle")),
    "a missing page": answer(page('<div class="g-recaptcha"></div><p>Verify you are human</p>', "Access denied"), 404),
    "a limited edition": answer(page(WORDS + LINKS, "Kettle, limited edition, security check robot challenge")),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_answer_is_no_block(name: str) -> None:
    assert judge(ORDINARY[name]) is None


def test_a_shell_is_only_a_shell_before_its_scripts_ran() -> None:
    for wall in WALLS:
        if wall.kind == "shell":
            assert judge(served(wall)) is not None
            assert judge(served(wall), rendered=True) is None


def test_a_challenge_stays_one_after_rendering() -> None:
    for wall in WALLS:
        if wall.kind in ("challenge", "captcha", "login"):
            assert known(judge(served(wall), rendered=True), wall)


def test_a_page_that_lost_most_of_its_size_is_suspicious() -> None:
    small = answer(page("<p>We are sorry.</p>", "Kettle"))
    block = judge(small, usual_size=45_000)
    assert block == Block("shrunk", f"{len(small.body)} bytes instead of the usual 45,000", "proxy")


@pytest.mark.parametrize(
    ("html", "usual"),
    [
        (page("<p>We are sorry.</p>", "Kettle"), None),
        (page("<p>We are sorry.</p>", "Kettle"), 5_000),  # small by nature
        (page(WORDS * 100, "Kettle"), 45_000),  # smaller, but not suddenly tiny
        (page("", head='<meta http-equiv="refresh" content="0;url=/new">'), 45_000),
    ],
)
def test_a_page_of_about_its_size_is_not(html: str, usual: int | None) -> None:
    assert judge(answer(html), usual_size=usual) is None


def test_a_shrunken_error_is_judged_by_its_status() -> None:
    assert judge(answer("{}", 404), usual_size=45_000) is None
    block = judge(answer("{}", 403), usual_size=45_000)
    assert block is not None
    assert block.kind == "forbidden"


def test_a_wall_longer_than_any_wall_is_a_page_unless_the_status_refuses() -> None:
    long = page(script("window._cf_chl_opt={}") + WORDS * 60, "Just a moment...")
    assert judge(answer(long)) is None
    block = judge(answer(long, 403))
    assert block is not None
    assert block.kind == "forbidden"


def test_a_plain_refusal_leaves_the_word_to_the_status() -> None:
    block = judge(answer(page("<p>You have been blocked.</p>", "Access denied"), 429))
    assert block == Block("rate", "status 429: too many requests", "slow")


def test_the_words_of_a_long_refusal_are_not_taken_for_signs() -> None:
    block = judge(answer(page(WORDS * 20 + "<p>Are you a robot?</p>", "Captcha"), 403))
    assert block == Block("forbidden", "status 403: the server refuses this visitor", "proxy")


_pieces = st.sampled_from(
    [b"<", b"</", b">", b"<!--", b"-->", b"<script", b"</script>", b"<noscript>", b"<title>", b"<input type=password",
     b"<div id=root>", b"&#0;", b"&#x110000;", b"&amp", b"\x00", b"\xff\xfe", b"captcha", b"<a ", b"<TITLE>sign in<"]
)  # fmt: skip
_bodies = st.one_of(st.binary(max_size=300), st.lists(st.one_of(_pieces, st.binary(max_size=8))).map(b"".join))
_names = st.text(max_size=12) | st.sampled_from(["Content-Type", "cf-mitigated", "x-datadome", "www-authenticate"])
_values = st.text(st.characters(), max_size=20) | st.sampled_from(["text/html", "challenge", "protected"])
_headers = st.lists(st.tuples(_names, _values), max_size=5)


@given(st.integers(-1, 1000), _headers, _bodies, st.none() | st.integers(), st.booleans())
def test_any_bytes_get_the_same_answer_twice(
    status: int, headers: list[tuple[str, str]], body: bytes, usual: int | None, rendered: bool
) -> None:
    response = Response(url="http://[", status=status, headers=Headers(headers), body=body)
    first = judge(response, usual_size=usual, rendered=rendered)
    assert first == judge(response, usual_size=usual, rendered=rendered)
    assert first is None or (first.kind in signatures.KINDS and first.cure in signatures.CURES and first.words)


_runs = st.builds(
    lambda begin, one, times: b"<html><script></script>" + begin + one * times,
    st.sampled_from([b"&#", b"<p>&#", b"<noscript>", b"captcha <"]),
    st.sampled_from([b"9", b"0", b" ", b"&amp;", b"&#x9"]),
    st.sampled_from([40, 5000]),
)  # nobody writes thousands of digits, except to see what happens


@given(st.sampled_from([200, 403, 500]), _runs, st.booleans())
def test_long_runs_of_one_thing_get_an_answer_too(status: int, body: bytes, rendered: bool) -> None:
    first = judge(answer(body, status), rendered=rendered)
    assert first == judge(answer(body, status), rendered=rendered)
    assert status != 403 or first is not None
