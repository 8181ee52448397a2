"""The sites that the forty spiders read."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

WARES = 18
HTML, JSON, XML, CSV = "text/html; charset=utf-8", "application/json", "application/xml", "text/csv"
FORM = '<form action="/enter" method="post"><input type="hidden" name="token" value="t7"><input name="user"></form>'
FORMS = """<form id=a action=/mirror><input name=x value=1></form>
<form id=b name=bb action=/mirror method=post><input type=hidden name=csrf value=tok><input name=user>
<input type=checkbox name=c checked value=1><input type=checkbox name=d value=2>
<select name=sel><option value=1>a<option value=2 selected>b</select><textarea name=t>hi</textarea>
<input type=submit name=s1 value=Go><input type=submit name=s2 value=Other></form>"""
SITE = "http://shop.example"
FLAKY: dict[str, int] = {}  # how often each was asked for
Answer = tuple[int, list[tuple[str, str]], bytes]


def page(text: str, status: int = 200, kind: str = HTML, *more: tuple[str, str]) -> Answer:
    return status, [("Content-Type", kind), *more], text.encode()


def answer(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
    parts = urlsplit(url)
    steps = [step for step in parts.path.split("/") if step]
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
    cookies = dict(pair.partition("=")[::2] for pair in headers.get("cookie", "").split("; ") if pair)
    match steps:
        case ["robots.txt"]:
            return page("", 404)
        case [] | ["list"]:
            return listing(int(query.get("page", 1)))
        case ["ware", number]:
            return ware(int(number))
        case ["old", number]:
            return page("moved", 302, HTML, ("Location", f"/ware/{number}"))
        case ["missing", *_]:
            return page("<h1>missing</h1>", 404)
        case ["gone"]:
            return page("<h1>gone</h1>", 410)
        case ["sitemap.xml"]:
            listed = "".join(f"<url><loc>{url.rpartition('/')[0]}/ware/{n}</loc></url>" for n in range(1, 9))
            return page(f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{listed}</urlset>', kind=XML)
        case ["rows.csv"]:
            return page("id;name\n1;Lamp\n2;Chair\n3;Desk\n", kind=CSV)
        case ["nodes.xml"]:
            nodes = "".join(f"<product id='{n}'><name>Ware {n}</name></product>" for n in range(1, 6))
            return page(f"<?xml version='1.0'?><products>{nodes}</products>", kind=XML)
        case ["api", "wares"]:
            at = int(query.get("page", 1))
            rows = [{"id": at * 10 + n, "name": f"Ware {at * 10 + n}"} for n in range(3)]
            return page(json.dumps({"rows": rows, "next": at + 1 if at < 4 else None}), kind=JSON)
        case ["api", "search"]:
            return page(json.dumps({"method": method, "asked": json.loads(body or b"{}")}), kind=JSON)
        case ["login"]:
            return page(f"<h1>Login</h1>{FORM}")
        case ["enter"]:
            if method == "POST" and form == {"token": "t7", "user": "ada"}:
                return page("<h1>Welcome</h1>", 200, HTML, ("Set-Cookie", "member=ada; Path=/"))
            return page("<h1>No</h1>", 403)
        case ["club"]:
            return page(f"<h1>{cookies.get('member', 'nobody')}</h1>")
        case ["basket", name]:
            return page(
                f"<h1>{cookies.get('basket', 'empty')}</h1>", 200, HTML, ("Set-Cookie", f"basket={name}; Path=/")
            )
        case ["guarded"]:
            told = headers.get("authorization", "").partition(" ")[2]
            return page(f"<h1>{b64decode(told).decode()}</h1>") if told else page("<h1>who?</h1>", 401)
        case ["echo"]:
            kept = {name: value for name, value in headers.items() if name.startswith("x-own")}
            return page(f"<h1>{json.dumps(kept, sort_keys=True)}</h1><i>{headers.get('user-agent', '')}</i>")
        case ["files", name]:
            return 200, [("Content-Type", "application/octet-stream")], f"file {name}".encode() * 50
        case ["sitemap_index.xml"]:
            listed = "".join(f"<sitemap><loc>{SITE}/sm-{one}.xml.gz</loc></sitemap>" for one in ("stores", "news"))
            return page(
                f'<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{listed}</sitemapindex>', kind=XML
            )
        case ["sm-stores.xml.gz"]:
            listed = "".join(
                f"<url><loc>{SITE}/store/{n}</loc>"
                f'<xhtml:link rel="alternate" hreflang="de" href="{SITE}/store/1{n}"/></url>'
                for n in range(1, 4)
            )
            spaces = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml"'
            text = f"<urlset {spaces}>{listed}</urlset>"
            return 200, [("Content-Type", "application/x-gzip")], gzip.compress(text.encode())
        case ["store", number]:
            facts = json.dumps({"@type": "Store", "name": f"Store {number}"})
            return page(f"<h1>Store</h1><script type='application/ld+json'>{facts}</script>")
        case ["stores"]:
            at = int(query.get("page", 1))
            cards = "".join(f'<a href="/store/{n}?utm_source=x">s</a>' for n in range(at * 3 - 2, at * 3 + 1))
            onward = f'<a class="next" href="/stores?page={at + 1}">next</a>' if at < 3 else ""
            return page(f"{cards}<a href='/list.pdf'>list</a><a href='mailto:a@b.example'>m</a>{onward}")
        case ["forms"]:
            return page(FORMS)
        case ["mirror", *_]:
            asked = {"method": method, "body": body.decode(), "query": parts.query}
            return page(json.dumps(asked | {"own": headers.get("x-own", "")}), kind=JSON)
        case ["moved", code, number]:
            return page("", int(code), HTML, ("Location", f"/mirror/{number}"))
        case ["empty"]:
            return page("")
        case ["flaky", number]:
            FLAKY[url] = FLAKY.get(url, 0) + 1
            return page("busy", 503) if FLAKY[url] % 2 else page(f"<h1>flaky {number}</h1>")
        case ["refresh"]:
            return page('<head><meta http-equiv="refresh" content="0; url=/ware/3"></head>')
        case ["feed.xml"]:
            entries = "".join(f"<entry><g:id>{n}</g:id><title>T{n}</title></entry>" for n in (1, 2))
            text = f'<feed xmlns="http://feed.example/" xmlns:g="http://base.example/ns">{entries}</feed>'
            return page(f'<?xml version="1.0"?>{text}', kind=XML)
        case ["latin"]:
            return 200, [("Content-Type", "text/html; charset=iso-8859-1")], "<h1>caf\u00e9</h1>".encode("latin-1")
        case ["declared"]:
            text = "<html><head><meta charset='windows-1252'><base href='/sub/'></head><h1>\u20ac 5</h1></html>"
            return 200, [("Content-Type", "text/html")], text.encode("cp1252")
        case ["self"]:
            return page('<h1>self</h1><a href="/self">self</a><a href="/ware/1">one</a>')
        case ["tree", depth]:
            here = int(depth)
            return page(f"<h1>{here}</h1><a href='/tree/{here + 1}'>deeper</a>")
    return page("<h1>nothing</h1>", 404)


def listing(at: int) -> Answer:
    cards = "".join(
        f'<div class="card" data-id="{n}"><a href="/ware/{n}">Ware {n}</a><span class="price">{n}.50 EUR</span></div>'
        for n in range(at * 6 - 5, at * 6 + 1)
    )
    onward = f'<a class="next" href="/list?page={at + 1}">next</a>' if at * 6 < WARES else ""
    far = '<a class="far" href="http://elsewhere.example/ware/1">elsewhere</a>'
    return page(f"<html><body><h1>Page {at}</h1>{cards}{onward}{far}</body></html>")


def ware(number: int) -> Answer:
    rows = "".join(
        f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in (("Weight", f"{number} kg"), ("Colour", "red"))
    )
    tags = "".join(f'<span class="tag"> {tag} </span>' for tag in ("new", "light"))
    text = (
        f"<h1> Ware {number} </h1><p class='price'>Price: {number}.50 EUR</p><table>{rows}</table>{tags}"
        f"<a class='doc' href='/files/{number}.bin'>manual</a>"
    )
    return page(f"<html><body>{text}</body></html>")
