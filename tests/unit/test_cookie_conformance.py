"""The jar against the cases of the public http-state test set, told in our own addresses: a bakery at home.example.org
sets cookies on /baker, and a customer asks for /jar.

Each case is: what it is about, the lines that were set, the header that is sent (and to where, if not to /jar). RFC
6265bis has changed its mind about cookies without a name: those cases are apart, with the answer of today.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gossamer.clock import VirtualClock
from gossamer.fetch.cookies import CookieJar, read_date
from gossamer.model.page import Headers
from gossamer.model.url import parse_url

HOME = "http://home.example.org:8888"
IN_2015 = 1_420_070_400.0
SUB, SIBLING = "http://subdomain.home.example.org:8888/jar", "http://sibling.example.org:8888/jar"
YEARS_ON = "Expires=Fri, 07 Aug 2019 08:04:19 GMT"
LONG = "a" * 4500
NAMES = ("a", "1", "$", "!a", "@a", "#a", "$a", "%a", "^a", "&a", "*a", "(a", ")a", "-a", "_a", "+")

Case = tuple[str, list[str], str] | tuple[str, list[str], str, str]

CASES: list[Case] = [
    # plain ones, and when they expire
    ("one", ["foo=bar"], "foo=bar"),
    ("later", [f"foo=bar; {YEARS_ON}"], "foo=bar"),
    ("one of two is over", ["foo=bar; Expires=Fri, 07 Aug 2007 08:04:19 GMT", f"foo2=bar2; {YEARS_ON}"], "foo2=bar2"),
    ("max-age", ["foo=bar; max-age=10000;"], "foo=bar"),
    ("max-age of nothing", ["foo=bar; max-age=0;"], ""),
    ("version", ["foo=bar; version=1;"], "foo=bar"),
    ("a great version", ["foo=bar; version=1000;"], "foo=bar"),
    ("an unknown attribute", ["foo=bar; customvalue=1000;"], "foo=bar"),
    ("secure, in the clear", ["foo=bar; secure;"], ""),
    ("a quoted attribute", ['foo=bar; customvalue="1000 or more";'], "foo=bar"),
    ("no semicolon at the end", ['foo=bar; customvalue="no trailing semicolon"'], "foo=bar"),
    ("the same name", ["foo=bar", "foo=qux"], "foo=qux"),
    ("two names", ["foo1=bar", "foo2=qux"], "foo1=bar; foo2=qux"),
    ("in order", ["a=b", "z=y"], "a=b; z=y"),
    ("in order of setting", ["z=y", "a=b"], "z=y; a=b"),
    ("a comma does not part", ["z=y, a=b"], "z=y, a=b"),
    ("nor in an attribute", ["z=y; foo=bar, a=b"], "z=y"),
    ("nor in max-age", ["foo=b;max-age=3600, c=d;path=/"], "foo=b"),
    ("nothing but =", ["a=b", "=", "c=d"], "a=b; c=d"),
    ("an empty value", ["a=b", "x=", "c=d"], "a=b; x=; c=d"),
    # attributes
    ("Secure", ["foo=bar; Secure"], ""),
    ("in any case", ["foo=bar; seCURe"], ""),
    ("quoted, it is another word", ['foo=bar; "Secure"'], "foo=bar"),
    ("with an empty value", ["foo=bar; Secure="], ""),
    ("with a value", ["foo=bar; Secure=aaaa"], ""),
    ("with another word", ["foo=bar; Secure qux"], "foo=bar"),
    ("a blank before =", ["foo=bar; Secure =aaaaa"], ""),
    ("a blank behind =", ["foo=bar; Secure= aaaaa"], ""),
    ("another one behind", ["foo=bar; Secure; qux"], ""),
    ("and close to it", ["foo=bar; Secure;qux"], ""),
    ("blanks behind", ["foo=bar; Secure    ; qux"], ""),
    ("blanks before", ["foo=bar;                Secure"], ""),
    ("blanks around", ["foo=bar;       Secure     ;"], ""),
    ("path alone", ["foo=bar; Path"], "foo=bar"),
    ("an empty path", ["foo=bar; Path="], "foo=bar"),
    ("the root", ["foo=bar; Path=/"], "foo=bar"),
    ("elsewhere", ["foo=bar; Path=/qux"], ""),
    ("elsewhere, with blanks", ["foo=bar; Path    =/qux"], ""),
    ("blanks before the value", ["foo=bar; Path=    /qux"], ""),
    ("blanks behind the value", ["foo=bar; Path=/qux      ; taz"], ""),
    ("the last path counts: root", ["foo=bar; Path=/qux; Path=/"], "foo=bar"),
    ("the last path counts: elsewhere", ["foo=bar; Path=/; Path=/qux"], ""),
    ("the last path counts: here", ["foo=bar; Path=/qux; Path=/jar"], "foo=bar"),
    ("the last path counts: not here", ["foo=bar; Path=/jar; Path=/qux"], ""),
    ("unknown before Secure", ["foo=bar; qux; Secure"], ""),
    ("quotes hold nothing together", ['foo=bar; qux="aaa;bbb"; Secure'], ""),
    # characters
    ("a value in Chinese", ["foo=春节回家路·春运完全手册"], "foo=春节回家路·春运完全手册"),
    ("a name in Chinese", ["春节回=家路·春运完全手册"], "春节回=家路·春运完全手册"),
    ("an attribute in Chinese", ["春节回=家路·春运; 完全手册"], "春节回=家路·春运"),
    ("quoted", ['foo="春节回家路·春运完全手册"'], 'foo="春节回家路·春运完全手册"'),
    # quotes and blanks
    ("short", ["a=b"], "a=b"),
    ("quotes stay", ['aBc="zzz "   ;'], 'aBc="zzz "'),
    ("quotes stay, one blank", ['aBc="zzz " ;'], 'aBc="zzz "'),
    ("a semicolon between quotes ends it", ['aBc="zz;pp" ; ;'], 'aBc="zz'),
    ("one quote", ['aBc="zz ;'], 'aBc="zz'),
    ("two quoted parts", ['aBc="zzz "   "ppp"  ;'], 'aBc="zzz "   "ppp"'),
    ("two quoted parts, one blank", ['aBc="zzz "   "ppp" ;'], 'aBc="zzz "   "ppp"'),
    ("a quote inside", ['aBc=A"B ;'], 'aBc=A"B'),
    ("a quote first", ['a="B'], 'a="B'),
    ("empty, with a path", ["ABC=;  path = /"], "ABC="),
    ("blanks everywhere", ["  A  = BC  ;foo;;;   bar"], "A=BC"),
    ("more = than needed", ["  A=== BC  ;foo;;;   bar"], "A=== BC"),
    ("a date with dashes", ['foo="zoh"  ; expires=Sun, 18-Apr-2027 21:06:29 GMT ; path=/  ;  '], 'foo="zoh"'),
    ("without quotes", ["foo=zoh  ; expires=Sun, 18-Apr-2027 21:06:29 GMT ; path=/  ;  "], "foo=zoh"),
    ("only blanks", ["    "], ""),
    ("too long", [LONG], ""),
    ("nothing at all", [""], ""),
    # commas
    ("comma in a value", ["foo=bar, baz=qux"], "foo=bar, baz=qux"),
    ("comma between quotes", ['foo="bar, baz=qux"'], 'foo="bar, baz=qux"'),
    ("comma in an attribute", ["foo=bar; b,az=qux"], "foo=bar"),
    ("comma in its value", ["foo=bar; baz=q,ux"], "foo=bar"),
    ("comma in max-age", ["foo=bar; Max-Age=50,399"], "foo=bar"),
    ("comma in a date", [f"foo=bar; {YEARS_ON}"], "foo=bar"),
    ("comma behind a date", ["foo=bar; Expires=Fri 07 Aug 2019 08:04:19 GMT, baz=qux"], "foo=bar"),
    # domains
    ("its own", ["foo=bar; domain=home.example.org"], "foo=bar"),
    ("its own is not the sibling's", ["foo=bar; domain=home.example.org"], "", SIBLING),
    ("with a dot", ["foo=bar; domain=.home.example.org"], "foo=bar"),
    ("subdomains", ["foo=bar; domain=home.example.org"], "foo=bar", SUB),
    ("subdomains, with a dot", ["foo=bar; domain=.home.example.org"], "foo=bar", SUB),
    ("siblings, with a dot", ["foo=bar; domain=.home.example.org"], "", SIBLING),
    ("for a sibling", ["foo=bar; domain=sibling.example.org"], "", SIBLING),
    ("the parent, with a dot", ["foo=bar; domain=.example.org"], "foo=bar"),
    ("the parent", ["foo=bar; domain=example.org"], "foo=bar"),
    ("two dots first", ["foo=bar; domain=..home.example.org"], ""),
    ("two dots inside", ["foo=bar; domain=home..example.org"], ""),
    ("blanks before the dot", ["foo=bar; domain=  .home.example.org"], "foo=bar"),
    ("blanks behind the dot", ["foo=bar; domain=  .  home.example.org"], ""),
    ("a dot at the end", ["foo=bar; domain=home.example.org."], ""),
    ("two dots at the end", ["foo=bar; domain=home.example.org.."], ""),
    ("a lone dot at the end", ["foo=bar; domain=home.example.org ."], ""),
    ("a public suffix", ["foo=bar; domain=.org"], ""),
    ("a public suffix between dots", ["foo=bar; domain=.org."], ""),
    ("dot or not", ["foo=bar; domain=home.example.org", "foo2=bar2; domain=.home.example.org"], "foo=bar; foo2=bar2"),
    ("not or dot", ["foo2=bar2; domain=.home.example.org", "foo=bar; domain=home.example.org"], "foo2=bar2; foo=bar"),
    ("quoted domain", ['foo=bar; domain="home.example.org"'], ""),
    ("own and parent", ["foo=bar; domain=home.example.org", "foo2=bar2; domain=.example.org"], "foo=bar; foo2=bar2"),
    ("parent and own", ["foo2=bar2; domain=.example.org", "foo=bar; domain=home.example.org"], "foo2=bar2; foo=bar"),
    ("the last domain counts: own", ["foo=bar; domain=.example.org; domain=home.example.org"], "", SIBLING),
    ("the last domain counts: parent", ["foo=bar; domain=home.example.org; domain=.example.org"], "foo=bar", SIBLING),
    ("in any letters", ["foo=bar; domain=home.eXaMpLe.org"], "foo=bar"),
    ("with a port", ["foo=bar; domain=home.example.org:8888"], ""),
    ("for a subdomain", ["foo=bar; domain=subdomain.home.example.org"], "", SUB),
    ("without a domain", ["foo=bar"], "", SUB),
    ("the parent last", ["foo=bar; domain=home.example.org; domain=.example.org"], "foo=bar", SIBLING),
    ("asked in any letters", ["foo=bar; domain=home.example.org"], "foo=bar", "http://hoMe.eXaMplE.org:8888/jar"),
    ("a stranger last", ["foo=bar; domain=home.example.org; domain=home.example.com"], ""),
    ("a stranger first", ["foo=bar; domain=home.example.com; domain=home.example.org"], "foo=bar"),
    ("a stranger between", ["foo=bar; domain=home.example.org; domain=a.com; domain=home.example.org"], "foo=bar"),
    ("strangers around", ["foo=bar; domain=a.example.com; domain=home.example.org; domain=a.example.com"], ""),
    ("twice", ["foo=bar; domain=home.example.org; domain=home.example.org"], "foo=bar"),
    ("then the parent", ["foo=bar; domain=home.example.org; domain=example.org"], "foo=bar"),
    ("first the parent", ["foo=bar; domain=example.org; domain=home.example.org"], "foo=bar"),
    ("for a sibling, with a dot", ["foo=bar; domain=.sibling.example.org"], "", SIBLING),
    ("for a child, with a dot", ["foo=bar; domain=.sibling.home.example.org"], "", "http://sibling.home.example.org/jar"),
    ("an empty domain", ["foo=bar; domain="], "foo=bar"),
    ("emptied", ["foo=bar; domain=example.org; domain="], "foo=bar"),
    ("emptied, at a subdomain", ["foo=bar; domain=foo.example.org; domain="], "", SUB),
    # taking back
    ("an age below nothing", ["foo=bar; max-age=-1"], ""),
    ("no age", ["foo=bar; max-age=0"], ""),
    ("long ago", ["foo=bar; expires=Thu, 10 Apr 1980 16:33:12 GMT"], ""),
    ("a minute", ["foo=bar; max-age=60"], "foo=bar"),
    ("further below", ["foo=bar; max-age=-20"], ""),
    ("two for a minute", ["foo=bar; max-age=60", "foo1=bar; max-age=60"], "foo=bar; foo1=bar"),
    ("taken back", ["foo=bar; max-age=60", "foo1=bar; max-age=60", "foo=other; max-age=0"], "foo1=bar"),
    (
        "what was never there",
        ["foo=bar; max-age=60", "foo1=bar; max-age=60", "foo=other; max-age=0", "foo2=more; max-age=0"],
        "foo1=bar",
    ),
    ("rubbish", ["test=parser; domain=.parser.test; ;; ;=; ,,, ===,abc,=; abracadabra! max-age=20;=;;"], ""),
    ("killed", ["test=kill; max-age=0", "five; max-age=0"], ""),
    # names
    *((f"name {name}", [f"{name}=bar"], f"{name}=bar") for name in NAMES),
    ("a blank behind the name", ["a =bar"], "a=bar"),
    ("a quote in the name", ['"a=bar'], '"a=bar'),
    ("quotes around =", ['"a=b"=bar'], '"a=b"=bar'),
    ("the same quoted name", ['"a=b"=bar', '"a=qux'], '"a=qux'),
    ("blanks before the name", ["   foo=bar"], "foo=bar"),
    ("an old attribute as a name", ["$Version=1; foo=bar"], "$Version=1"),
    ("blanks at the end", ["foo=bar    "], "foo=bar"),
    ("blanks before the semicolon", ["foo=bar    ;"], "foo=bar"),
    ("only =", ["="], ""),
    ("a blank in the name", ["foo bar=baz"], "foo bar=baz"),
    # order and paths
    (
        "longer paths first",
        [
            "key=val0;", "key=val1; path=/jar", "key=val2; path=/", "key=val3; path=/bar",
            "key=val4; domain=.example.org", "key=val5; domain=.example.org; path=/jar/foo",
        ],
        "key=val5; key=val1; key=val2; key=val4",
        f"{HOME}/jar/foo/baz",
    ),
    ("root, then here", ["a=b; path=/", "x=y; path=/jar"], "x=y; a=b"),
    ("here, then root", ["a=b; path=/jar", "x=y; path=/"], "a=b; x=y"),
    ("root x, here a", ["x=y; path=/", "a=b; path=/jar"], "a=b; x=y"),
    ("here x, root a", ["x=y; path=/jar", "a=b; path=/"], "x=y; a=b"),
    ("deeper", ["foo=bar; path=/jar/foo"], ""),
    ("the deeper one stays away", ["foo=bar", "foo=qux; path=/jar/foo"], "foo=bar"),
    ("asked for there", ["foo=bar; path=/jar/foo"], "foo=bar", f"{HOME}/jar/foo"),
    ("beside", ["foo=bar; path=/jar/foo"], "", f"{HOME}/jar/bar"),
    ("above", ["foo=bar; path=/jar/foo/qux"], "", f"{HOME}/jar/foo"),
    ("deep", ["foo=bar; path=/jar/foo/qux"], "foo=bar", f"{HOME}/jar/foo/qux"),
    ("deep elsewhere", ["foo=bar; path=/jar/foo/qux"], "", f"{HOME}/jar/bar/qux"),
    ("deep beside", ["foo=bar; path=/jar/foo/qux"], "", f"{HOME}/jar/foo/baz"),
    ("a slash, beside", ["foo=bar; path=/jar/foo/qux/"], "", f"{HOME}/jar/foo/baz"),
    ("a slash that is not asked for", ["foo=bar; path=/jar/foo/qux/"], "", f"{HOME}/jar/foo/qux"),
    ("a slash that is", ["foo=bar; path=/jar/foo/qux/"], "foo=bar", f"{HOME}/jar/foo/qux/"),
    ("behind a slash", ["foo=bar; path=/jar/foo/"], "foo=bar", f"{HOME}/jar/foo/qux"),
    ("behind two", ["foo=bar; path=/jar/foo/"], "foo=bar", f"{HOME}/jar/foo//qux"),
    ("only part of a name", ["foo=bar; path=/jar/foo/"], "", f"{HOME}/jar/fooqux"),
    ("no path", ["foo=bar; path"], "foo=bar"),
    ("empty path", ["foo=bar; path="], "foo=bar"),
    ("root path", ["foo=bar; path=/"], "foo=bar"),
    ("a blank and the root", ["foo=bar; path= /"], "foo=bar"),
    ("other letters", ["foo=bar; Path=/JAR"], ""),
    ("a question mark", ["foo=bar; path=/jar/foo/qux?"], "", f"{HOME}/jar/foo/qux?x"),
    ("a fragment", ["foo=bar; path=/jar/foo/qux#"], "", f"{HOME}/jar/foo/qux?x"),
    ("a semicolon", ["foo=bar; path=/jar/foo/qux;"], "foo=bar", f"{HOME}/jar/foo/qux?x"),
    ("a quoted path is none", ['foo=bar; path="/jar/foo/qux;"'], "foo=bar", f"{HOME}/jar/foo/qux?x"),
    ("escapes are not read", ["foo=bar; path=/jar/f%6Fo/bar"], "", f"{HOME}/jar/foo/bar?x"),
    ("blanks around the path", ["a=b;       path    =       /jar   ", "x=y;       path    =       /book   "], "a=b"),
    ("the last path is empty", ["foo=bar; path=/dog; path="], "foo=bar"),
    ("the first path is empty", ["foo=bar; path=; path=/dog"], ""),
    ("a slash more is longer", ["foo=bar; path=/jar", "foo=qux; path=/jar/"], "foo=qux; foo=bar", f"{HOME}/jar/dog"),
    # values
    ("blanks before a value", ["foo=  bar"], "foo=bar"),
    ("a quoted value", ['foo="bar"'], 'foo="bar"'),
    ("blanks between quotes", ['foo="  bar "'], 'foo="  bar "'),
    ("half a quoted value", ['foo="bar;baz"'], 'foo="bar'),
    ("= between quotes", ['foo="bar=baz"'], 'foo="bar=baz"'),
    ("blanks all over", ["   foo     =       bar             ;       ttt"], "foo=bar"),
]  # fmt: skip

NAMELESS: list[Case] = [  # http-state: ignored; RFC 6265bis: a value without a name, one for each domain and path
    ("a lone word", ["foo"], "foo"),
    ("an empty name", ["a=b", "=x", "c=d"], "a=b; x; c=d"),
    ("then nothing", ["foo", ""], "foo"),
    ("then =", ["foo", "="], "foo"),
    ("then an attribute", ["foo", "; bar"], "foo"),
    ("then blanks", ["foo", "   "], "foo"),
    ("the last one stays", ["foo", "bar"], "bar"),
    ("with a path", ["BLAHHH; path=/;"], "BLAHHH"),
    ("in quotes", ['"BLA\\"HHH"; path=/;'], '"BLA\\"HHH"'),
    ("= first", ["=ABC"], "ABC"),
    (
        "behind a quoted value",
        ['test="fubar! = foo;bar\\";" parser; max-age=6', "five; max-age=2.63,"],
        'test="fubar! = foo; five',
    ),
    ("six", ["six"], "six"),
    ("six, seven", ["six", "seven"], "seven"),
    ("six, seven, eight", ["six", "seven", " =eight"], "eight"),
    ("and one with a name", ["six", "seven", " =eight", "test=six"], "eight; test=six"),
    ("= and a pair", ["=a=bar"], "a=bar"),
    ("a lone name and an attribute", ["foo;bar=baz"], "foo"),
    ("many =", ["===a=bar"], "==a=bar"),
    ("= and a letter", ["=a"], "a"),
    ("a quoted name with a semicolon", ['"foo;bar"=baz'], '"foo'),
    ("two of them", ['"foo\\"bar', '"foo\\"bar;baz"=qux'], '"foo\\"bar'),
    ("one after the other", ["=foo=bar", "aaa"], "aaa"),
    ("a strange domain that was taken back", ["foo=bar; domain=foo.example.org; domain="], "foo=bar"),
]  # fmt: skip


def sent(lines: list[str], to: str = f"{HOME}/jar") -> str:
    jar = CookieJar(VirtualClock(IN_2015))
    for line in lines:
        jar.absorb(f"{HOME}/baker", Headers((("Set-Cookie", line),)))
    return jar.header_for(parse_url(to)) or ""


@pytest.mark.parametrize("case", [*CASES, *NAMELESS], ids=lambda case: case[0])
def test_the_jar_sends_what_the_rfc_says(case: Case) -> None:
    assert sent(case[1], *case[3:]) == case[2]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        *(
            (text, "2017-04-15T21:01:22")
            for text in (
                "Sat, 15-Apr-17 21:01:22 GMT", '"Sat, 15-Apr-17\\"21:01:22\\"GMT"', "Sat, 15-Apr-17 21:01:22",
                "Sat, 15-Apr-17 21:01:22 GMT-2", "Sat, 15-Apr-17 21:01:22 GMT BLAH", "Sat, 15-Apr-17 21:01:22 GMT-0400",
                "Sat, 15-Apr-17 21:01:22 GMT-0400 (EDT)", "Sat, 15-Apr-17 21:01:22 DST",
                "Sat, 15-Apr-17 21:01:22 -0400", "Sat, 15-Apr-17 21:01:22 (hello there)",
                "Sat, 15-Apr-17 21:01:22 11:22:33", "Sat, 15-Apr-17 ::00 21:01:22",
                "Sat, 15-Apr-17 boink:z 21:01:22", "15-Sat, Apr-17 21:01:22 GMT", "15-Sat, Apr 21:01:22 GMT 17",
                "15-Sat, Apr 21:01:22 GMT 2017", "15 Apr 21:01:22 2017", "15 17 Apr 21:01:22", "Apr 15 17 21:01:22",
                "Apr 15 21:01:22 17", "2017 April 15 21:01:22", "15 April 2017 21:01:22",
            )
        ),
        *(
            (text, "2007-04-18T22:50:12")
            for text in (
                "Wed,18-Apr-07 22:50:12 GMT", "WillyWonka  , 18-Apr-07 22:50:12 GMT",
                "WillyWonka  , 18-Apr-07 22:50:12",
                "WillyWonka  ,  18-apr-07   22:50:12", "Partyday, 18- April-07 22:50:12",
                "Partyday, 18 - Apri-07 22:50:12", "Thu Apr 18 22:50:12 2007 GMT", "22:50:12 Thu Apr 18 2007 GMT",
                "Thu 22:50:12 Apr 18 2007 GMT", "Thu Apr 22:50:12 18 2007 GMT", "Thu Apr 18 2007 22:50:12 GMT",
                "Thu Apr 18 2007 GMT 22:50:12",
            )
        ),
        *(
            (text, "2003-01-01T00:00:00")
            for text in (
                "Wednesday, 1-Jan-2003 00:00:00 GMT", ", 1-Jan-2003 00:00:00 GMT", " 1-Jan-2003 00:00:00 GMT",
                "1-Jan-2003 00:00:00 GMT", "Wednes, 1-Januar-2003 00:00:00 GMT",
            )
        ),
        ("Thu, 19-Apr-2007 16:00:00 GMT", "2007-04-19T16:00:00"),
        ("Thu, 19/Apr\\2007 16:00:00 GMT", "2007-04-19T16:00:00"),
        ("Wed, 25 Apr 2007 21:02:13 GMT", "2007-04-25T21:02:13"),
        ("Fri, 1 Jan 2010 01:01:50 GMT", "2010-01-01T01:01:50"),
        ("Mon, 18-Apr-1977 22:50:13 GMT", "1977-04-18T22:50:13"),
        ("Mon, 18-Apr-77 22:50:13 GMT", "1977-04-18T22:50:13"),
        ("Mon, 10-Dec-2007 17:02:24 GMT", "2007-12-10T17:02:24"),
        ("Wed, 09 Dec 2009 16:27:23 GMT", "2009-12-09T16:27:23"),
        ("Thursday, 01-Jan-1970 00:00:00 GMT", "1970-01-01T00:00:00"),
        ("Mon Dec 10 16:32:30 2007 GMT", "2007-12-10T16:32:30"),
        ("Wednesday, 01-Jan-10 00:00:00 GMT", "2010-01-01T00:00:00"),
        ("Mon, 10-Dec-07 20:35:03 GMT", "2007-12-10T20:35:03"),
        ("Wed, 1 Jan 2020 00:00:00 GMT", "2020-01-01T00:00:00"),
        ("Saturday, 8-Dec-2012 21:24:09 GMT", "2012-12-08T21:24:09"),
        ("Thu, 31 Dec 23:55:55 2037 GMT", "2037-12-31T23:55:55"),
        ("Sun,  9 Dec 2012 13:42:05 GMT", "2012-12-09T13:42:05"),
        ("Wed Dec 12 2007 08:44:07 GMT-0500 (EST)", "2007-12-12T08:44:07"),
        ("Sun, 1-Jan-1995 00:00:00 GMT", "1995-01-01T00:00:00"),
        ("Wednesday, 01-Jan-10 0:0:00 GMT", "2010-01-01T00:00:00"),
        ("Thu, 10 Dec 2009 13:57:2 GMT", "2009-12-10T13:57:02"),
        *(
            (text, None)
            for text in (
                "Sat, 15-Apr-17 91:22:33 21:01:22", "98 April 17 21:01:22", "Thu, 012-Aug-2008 20:49:07 GMT",
                "Thu, 12-Aug-31841 20:49:07 GMT", "Thu, 12-Aug-9999999999 20:49:07 GMT",
                "Thu, 999999999999-Aug-2007 20:49:07 GMT", "Thu, 12-Aug-2007 20:61:99999999999 GMT", "IAintNoDateFool",
                "Mon, 01-Jan-2011 00: 00:00 GMT",  # http-state reads a time from it; by the RFC's algorithm it has none
            )
        ),
    ],
)  # fmt: skip
def test_dates_are_read_by_the_algorithm_of_the_rfc(text: str, wanted: str | None) -> None:
    at = read_date(text)
    assert (None if at is None else datetime.fromtimestamp(at, UTC).isoformat()[:19]) == wanted
