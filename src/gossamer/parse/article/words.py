"""What the names of an element (class, id, role, itemprop) say about it: content, margin, or neither.

Names are split into words ("postShareBar" is post, share, bar), so that "ad" is found in "ad-slot" and not in
"header". Only the sense of common words is used; no name of any one site is known here. Names that say nothing are
the usual case and no failure.
"""

from __future__ import annotations

import re
from functools import lru_cache

CONTENT = 1  # the words of a body of text
BODY = 2  # it is called the body of an article outright
MARGIN = 4  # share bars, menus, teasers, forms: what is around a text, or put into it
REPLIES = 8  # what readers wrote under a text
HIDDEN = 16  # not shown to the reader
LABEL = 32  # bylines, dates, captions, credits: small print that belongs to a text and is none of it
PICTURE = 64  # a frame around a picture

LONGEST_NAMES = 400  # characters of names that are read; meanings are remembered, so names must not be endless
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

_SENSES = {
    CONTENT: "article articles blog body content contents entry main page paragraph post story text",
    BODY: "articlebody",
    MARGIN: """
        ad ads adslot adunit advert adverts advertise advertisement advertisements advertising adwrapper affiliate
        addthis addtoany banner billboard breadcrumb breadcrumbs btn button buttons carousel consent cookie cookies
        cta donate donation dropdown footer gdpr hamburger hashtag hashtags infobox inread leaderboard login masthead
        menu menus modal mostread nav navbar navi navigation newsletter newsletters optin outbrain overlay pager
        pagination paginator paywall player poll popover popular popup prefooter prevnext promo promoted promos
        promotion promotional rail readmore readnext recirc recirculation recommend recommendation recommendations
        recommended register related relatedarticles relatedcontent relatedposts reklama share sharebar sharebuttons
        shared sharedaddy shares sharethis sharing sidebar sidebars signin signup skip skyscraper slideshow sociable
        social socials sponsor sponsored sponsors subscribe subscription subscriptions survey taboola tag tagbox
        taglist tags teaser teasers toc toolbar toolbox tools tooltip trend trending upsell widget widgets
    """,
    REPLIES: "comment comments commenting commentlist discussion disqus livefyre replies respond reviews",
    HIDDEN: "hidden hide invisible offscreen sronly noprint visuallyhidden",
    LABEL: """
        author authors avatar bio byline bylines caption captions copyright credit credits date dateline datetime
        figcaption legend meta metadata postdate postmeta pubdate published source timestamp updated vcard writer
    """,
    PICTURE: "figure gallery image images img photo photos pic pics picture pictures thumb thumbnail",
}
_PAIRED_SENSES = {
    BODY: "article body, article content, article text, entry content, post body, post content, story body",
    MARGIN: """
        also like, call out, editors picks, email signup, follow us, in read, key points, latest news, log in,
        more articles, more from, more news, more on, more stories, most popular, most read, most viewed,
        next article, next prev, next up, prev next, pull quote, read also, read more, read next, see also, sign in,
        sign up, story package, top stories, up next, you may
    """,
    HIDDEN: "d none, no print, print only, screen reader, sr only, visually hidden",
}


def _flags_by_name() -> dict[str, int]:
    flags: dict[str, int] = {}
    for flag, names in _SENSES.items():
        for name in names.split():
            flags[name] = flags.get(name, 0) | flag
    for flag, names in _PAIRED_SENSES.items():
        for name in names.split(","):
            flags[" ".join(name.split())] = flag
    return flags


_FLAGS = _flags_by_name()


@lru_cache(maxsize=16_384)
def meaning_of(names: str) -> int:
    """The flags that fit the words of `names` and the pairs of words that follow each other; 0 for none.

    `names` must be no longer than LONGEST_NAMES.
    """
    words = [word.lower() for word in _WORD.findall(names)]
    flags, before = 0, ""
    for word in words:
        flags |= _FLAGS.get(word, 0) | _FLAGS.get(f"{before} {word}", 0)
        before = word
    return flags
