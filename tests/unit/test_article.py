"""The article of a page: what belongs to the text stays, what stands around it and between it goes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gossamer.extract.article import Article, article_of, main_text, markdown
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page

FIRST = "The harbour was quiet in the morning, and the boats lay still, their ropes slack in the cold air."
SECOND = "By noon, though, the fishermen had come back, and with them the noise of the market, which went on till dusk."
THIRD = "Nobody could say, when it was over, who had sold the last basket, or where the money had gone that evening."


def page_of(body: str | bytes, *, content_type: str = "text/html; charset=utf-8") -> Page:
    return Page(
        Snapshot(
            url="https://news.example/2024/harbour",
            requested_url="https://news.example/2024/harbour",
            status=200,
            headers=Headers([("Content-Type", content_type)]),
            body=body.encode() if isinstance(body, str) else body,
            fetched_at=1_800_000_000.0,
        )
    )


def story(inside: str = "", *, around: str = "", head: str = "") -> Page:
    """A page with three paragraphs of text; `inside` stands between the second and the third."""
    return page_of(
        f"<head><title>The harbour | News</title>{head}</head><body><nav><a href=/>Home</a> <a href=/w>World</a></nav>"
        f"<div class=post-content><p>{FIRST}</p><p>{SECOND}</p>{inside}<p>{THIRD}</p></div>{around}"
        "<footer>All rights reserved by the paper, its heirs, and its printers, for all times.</footer></body>"
    )


def found(page: Page) -> Article:
    article = article_of(page)
    assert article is not None
    return article


def test_the_text_is_the_paragraphs_with_an_empty_line_between_them() -> None:
    assert found(story()).text == f"{FIRST}\n\n{SECOND}\n\n{THIRD}"


@pytest.mark.parametrize(
    "margin",
    [
        '<div class="share-bar"><p>Share this story with all your friends, family, and whoever else.</p></div>',
        '<div id="relatedPosts"><p>Five harbours that you should see, before they are all gone.</p></div>',
        '<aside><p>A boat is a thing that swims, as a rule, and mostly on the water.</p></aside>',
        '<form><p>Leave your address, and we shall write to you, every single day.</p></form>',
        '<div class="newsletter-signup"><p>Our letter comes every morning, and costs you nothing.</p></div>',
        '<figure><img src=/a.jpg><figcaption>The harbour, seen from the hill.</figcaption></figure>',
        '<div class=photo><img src=/a.jpg>The harbour, seen from the hill.</div>',
        '<div style="display: none"><p>Nobody sees this, and nobody should, whatever it may say.</p></div>',
        '<p>Related: <a href=/other>Another harbour, and what came of it in the end</a></p>',
        '<p><a href=/other>ANOTHER HARBOUR BURNS DOWN OVER NIGHT</a></p>',
        '<p>Advertisement</p>',
        '<p>Lesen Sie auch: <a href=/other>Ein anderer Hafen, und was aus ihm wurde</a></p>',
        '<p class=byline>By Ann Author, who has been to many harbours, and likes them all.</p>',
    ],
)  # fmt: skip
def test_what_is_put_between_the_paragraphs_is_left_out(margin: str) -> None:
    assert found(story(margin)).text == f"{FIRST}\n\n{SECOND}\n\n{THIRD}"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("<h2>The market</h2>", "The market"),
        ("<blockquote>We sold it all.</blockquote>", "We sold it all."),
        ("<ul><li>herring<li><a href=/cod>cod</a></ul>", "herring\n\ncod"),
        ("<p>Next, they left.</p>", "Next, they left."),
        ("<p>See <a href=/map>the map</a>.</p>", "See the map."),
        ("<table><tr><th>fish<th>price<tr><td>cod<td>3</table>", "fish | price\n\ncod | 3"),
        ("<p>One line<br>and another</p>", "One line\nand another"),
        ("<pre>if fish:\n    sell()</pre>", "if fish:\n    sell()"),
        ("<p>A <b>b</b>old w<i>or</i>d</p>", "A bold word"),
    ],
)
def test_what_belongs_to_the_text_stays(part: str, text: str) -> None:
    assert found(story(part)).text == f"{FIRST}\n\n{SECOND}\n\n{text}\n\n{THIRD}"


def test_paragraphs_that_are_only_parted_by_empty_lines_are_paragraphs() -> None:
    page = page_of(f"<div>{FIRST}<br><br>{SECOND}<br> <br>{THIRD}</div>")

    assert found(page).text == f"{FIRST}\n\n{SECOND}\n\n{THIRD}"


def test_comments_are_no_text_even_when_they_are_longer() -> None:
    said = "".join(
        f"<p>I have been there too, number {n}, and it was nothing like that, believe me.</p>" for n in range(50)
    )

    assert found(story(around=f"<div id=comments>{said}</div>")).text.endswith(THIRD)


def test_a_list_of_links_behind_the_text_is_left_out() -> None:
    links = "<h3>More harbours</h3><ul><li><a href=/1>The old harbour</a><li><a href=/2>The new harbour</a></ul>"
    page = page_of(f"<article><p>{FIRST}</p><p>{SECOND}</p>{links}</article>")

    assert found(page).text == f"{FIRST}\n\n{SECOND}"


def test_a_text_in_several_boxes_is_put_together() -> None:
    boxes = "".join(f"<div class=box><div><p>{text}</p></div></div>" for text in (FIRST, SECOND, THIRD))

    assert found(page_of(f"<body><div id=x>{boxes}</div></body>")).text == f"{FIRST}\n\n{SECOND}\n\n{THIRD}"


def test_the_most_of_a_page_is_its_text_whatever_it_is_called() -> None:
    page = page_of(f"<div class='has-sidebar widget'><p>{FIRST}</p><p>{SECOND}</p></div><div class=tags>a</div>")

    assert found(page).text == f"{FIRST}\n\n{SECOND}"


def test_the_title_is_the_heading_and_no_part_of_the_text() -> None:
    page = page_of(f"<title>The harbour - News</title><article><h1>The harbour</h1><p>{FIRST}</p><p>{SECOND}</p>")

    article = found(page)

    assert (article.title, article.text) == ("The harbour", f"{FIRST}\n\n{SECOND}")


def test_the_page_says_who_wrote_it_and_when() -> None:
    facts = (
        '<html lang=en><script type="application/ld+json">{"@type": "NewsArticle", "headline": "Still boats",'
        '"author": [{"name": "Ann Author"}, {"name": "Bo Writer"}], "datePublished": "2024-05-06T07:08:09+00:00",'
        '"publisher": {"name": "News"}, "image": "/boats.jpg"}</script>'
        '<meta name=description content="Of boats."><link rel=canonical href=/harbour>'
    )

    article = found(story(head=facts))

    assert article.url == "https://news.example/harbour"
    assert article.title == "Still boats"
    assert article.authors == ("Ann Author", "Bo Writer")
    assert article.published == datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert (article.site_name, article.image) == ("News", "https://news.example/boats.jpg")
    assert article.description == "Of boats."
    assert article.words == len(f"{FIRST} {SECOND} {THIRD}".split())


def test_a_page_that_scripts_would_fill_gives_the_body_that_its_json_ld_has() -> None:
    body = f"<p>{FIRST}</p><p>{SECOND}</p>"
    page = page_of(
        f'<script type="application/ld+json">{{"@type": "Article", "articleBody": "{body}"}}</script><div id=app></div>'
    )

    assert found(page).text == f"{FIRST}\n\n{SECOND}"


@pytest.mark.parametrize(
    "body", [f"{FIRST} Tom &amp; Jerry&#39;s.", f"&lt;p&gt;{FIRST} Tom &amp;amp; Jerry's.&lt;/p&gt;"]
)
def test_entities_in_the_body_of_json_ld_are_undone(body: str) -> None:
    page = page_of(
        f'<script type="application/ld+json">{{"@type": "Article", "articleBody": "{body}"}}</script><div id=app></div>'
    )

    assert found(page).text == f"{FIRST} Tom & Jerry's."


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<nav><a href=/1>One of the links to elsewhere</a> <a href=/2>And one of more</a></nav>", "text/html"),
        ("<p>Not found.</p>", "text/html"),
        ("", "text/html"),
        ('{"a": 1}', "application/json"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
    ],
)  # fmt: skip
def test_a_page_without_prose_has_no_article(body: str | bytes, content_type: str) -> None:
    page = page_of(body, content_type=content_type)

    assert article_of(page) is None
    assert main_text(page) in ("", "Not found.")


def test_chinese_characters_are_words() -> None:
    text = (
        "港口早晨很安静，船只静静地停泊着，绳索在寒冷的空气中松弛。渔民们中午回来了，市场的喧闹声一直持续到黄昏，没有人知道钱去了哪里。"
        * 2
    )

    assert found(page_of(f"<article><p>{text}</p></article>")).words == sum(1 for sign in text if sign.isalpha())


def test_markdown_has_the_title_absolute_links_lists_code_and_tables() -> None:
    parts = (
        '<h2>The market</h2><p>A <a href="/map?a=1">map</a>,\N{NO-BREAK SPACE}<em>“old”</em>.</p>'
        '<ol><li>herring<li>cod</ol><pre><code class="language-python">sell()</code></pre>'
        "<table><tr><th>a<th>b<tr><td>1<td>2</table>"
        '<figure><img data-src="/boat.jpg" src="data:image/gif;base64,AA" alt=boat></figure><a href=/top> </a><hr>'
    )
    page = page_of(f"<nav><a href=/>Home</a></nav><article><h1>The harbour</h1><p>{FIRST}</p>{parts}</article>")

    assert markdown(page).split("\n\n") == [
        "# The harbour",
        FIRST,
        "## The market",
        "A [map](https://news.example/map?a=1), *“old”*.",
        "1. herring\n2. cod",
        "```python\nsell()\n```",
        "| a | b |\n| --- | --- |\n| 1 | 2 |",
        "![boat](https://news.example/boat.jpg)",
    ]


def test_reading_leaves_the_page_as_it_was() -> None:
    page = story('<p>See <a href="/map">the map</a>. <img data-src=/a.jpg></p><aside>Gone</aside>')
    before = page.selector.get()

    found(page)
    markdown(page)

    assert page.selector.get() == before


def test_markdown_of_a_page_in_which_nothing_stands_out_is_the_whole_page() -> None:
    page = page_of("<nav><a href=/a>Apples</a></nav><p>Pears</p><script>var x</script>")

    assert markdown(page) == "[Apples](https://news.example/a)\n\nPears"


@pytest.mark.parametrize(
    "code",
    [
        "<pre><code><div class=line>a = 1</div><div class=line>  b = 2</div></code></pre>",
        "<pre><code><span class=line>a = 1</span><span class=line>  b = 2</span></code></pre>",
        "<table><tr><td class=gutter><pre>1\n2\n</pre></td><td><pre>a = 1\n  b = 2\n</pre></td></tr></table>",
    ],
)
def test_code_keeps_its_lines_whatever_they_stand_in(code: str) -> None:
    article = found(story(code))

    assert "\n\na = 1\n  b = 2\n\n" in article.text
    assert "\n\n```\na = 1\n  b = 2\n```\n\n" in article.markdown


@pytest.mark.parametrize(
    "frame",
    [
        "<pre data-lang=go>{}</pre>",
        "<pre><code data-language=go>{}</code></pre>",
        "<div class='highlight-go notranslate'><div class=highlight><pre>{}</pre></div></div>",
        "<div class='highlight highlight-source-go'><pre>{}</pre></div>",
        "<div class=code-toolbar><pre class=language-go><code>{}</code></pre><div class=toolbar>Copy</div></div>",
    ],
)
def test_a_fence_names_the_language_that_a_frame_of_the_code_names(frame: str) -> None:
    assert "```go\nx := 1\n```" in found(story(frame.format("x := 1"))).markdown


def test_a_sign_that_links_a_heading_to_itself_is_not_read() -> None:
    article = found(story("<h2 id=boats>Boats<a class=headerlink href=#boats>¶</a></h2>"))

    assert "\n\nBoats\n\n" in article.text
    assert "\n\n## Boats\n\n" in article.markdown
