# ruff: noqa: E501, C408 - markup is easier to read on one line
"""Made-up catalogues before and after a redesign, for bench.heal: records of three kinds, drawn by themes.

A theme is a layout (how values stand in the markup) with a locale (how they are written). Half of the layouts say
nothing in the names of their elements. `HELD_OUT` are kept aside: nothing is fitted to them.
"""

from __future__ import annotations

import html
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

WORDS = {
    "shop": ("Desk Floor Wall Table Reading Corner Garden Studio", "lamp chair shelf clock vase stool mirror basket"),
    "jobs": (
        "Senior Junior Lead Assistant Interim Chief Deputy Trainee",
        "welder nurse baker analyst driver tutor clerk",
    ),
    "flats": ("Bright Quiet Renovated Spacious Cosy Modern Sunny Compact", "flat loft studio house maisonette attic"),
}
MAKERS = [
    "Orb & Loom",
    "Halden",
    "Kestrel Works",
    "Nordlicht",
    "Mira Bau",
    "Tamsin Co.",
    "Ostara",
    "Pell & Sons",
    "Quarry",
    "Vale",
]
CITIES = ["Lund", "Graz", "Porto", "Leeds", "Ghent", "Turku", "Brno", "Split", "Cork", "Basel"]
LONG = (
    "made by hand in a small workshop near the river",
    "with a base of solid oak and a shade of linen",
    "which keeps its shape for many years",
    "and can be repaired with parts that are sold for a decade",
    "delivered in a box that folds flat",
)
# Field -> its type in the words of recipes.
FIELDS: dict[str, dict[str, str]] = {
    "shop": {
        "title": "text", "price": "money", "sku": "text", "brand": "text", "stock": "bool", "rating": "float",
        "reviews": "int", "image": "url", "description": "text",
    },
    "jobs": {
        "title": "text", "ref": "text", "company": "text", "city": "text", "salary": "int", "posted": "day",
        "contract": "text", "remote": "bool", "description": "text",
    },
    "flats": {
        "title": "text", "ref": "text", "rent": "money", "area": "float", "rooms": "int", "city": "text", "free": "day",
        "agent": "text", "image": "url",
    },
}  # fmt: skip
KEYS = {"shop": "sku", "jobs": "ref", "flats": "ref"}
VOLATILE = {
    "shop": ("price", "stock", "rating", "reviews", "description"),
    "jobs": ("salary", "posted", "contract", "remote", "description"),
    "flats": ("rent", "free", "agent", "area"),
}
LABELS = {
    "en": dict(title="Name", price="Price", sku="Article number", brand="Brand", stock="Availability", rating="Rating", reviews="Reviews", description="About", ref="Reference", company="Company", city="City", salary="Salary", posted="Posted", contract="Contract", remote="Remote work", rent="Rent", area="Area", rooms="Rooms", free="Free from", agent="Agent", image="Photo"),
    "de": dict(title="Bezeichnung", price="Preis", sku="Art.-Nr.", brand="Marke", stock="Verfügbarkeit", rating="Bewertung", reviews="Rezensionen", description="Beschreibung", ref="Kennung", company="Firma", city="Ort", salary="Gehalt", posted="Veröffentlicht", contract="Vertrag", remote="Homeoffice", rent="Miete", area="Wohnfläche", rooms="Zimmer", free="Frei ab", agent="Ansprechpartner", image="Bild"),
    "fr": dict(title="Nom", price="Prix", sku="Réf.", brand="Marque", stock="Disponibilité", rating="Note", reviews="Avis", description="Détails", ref="Référence", company="Société", city="Ville", salary="Salaire", posted="Publié le", contract="Contrat", remote="Télétravail", rent="Loyer", area="Surface", rooms="Pièces", free="Libre le", agent="Contact", image="Photo"),
}  # fmt: skip
SAID: dict[str, dict[Any, str]] = {
    "en": {True: "In stock", False: "Sold out", "yes": "Yes", "no": "No", "permanent": "Permanent", "fixed": "Fixed term", "freelance": "Freelance"},
    "de": {True: "Auf Lager", False: "Ausverkauft", "yes": "Ja", "no": "Nein", "permanent": "Unbefristet", "fixed": "Befristet", "freelance": "Freie Mitarbeit"},
    "fr": {True: "En stock", False: "Épuisé", "yes": "Oui", "no": "Non", "permanent": "CDI", "fixed": "CDD", "freelance": "Indépendant"},
}  # fmt: skip


@dataclass
class Locale:
    language: str
    money: Callable[[Decimal], str]
    number: Callable[[float], str]
    day: Callable[[date], str]


def _grouped(amount: Decimal, group: str, point: str) -> str:
    return f"{amount:,.2f}".replace(",", "\0").replace(".", point).replace("\0", group)


LOCALES = {
    "en": Locale("en", lambda a: f"€{_grouped(a, ',', '.')}", lambda n: f"{n:,}", lambda d: d.strftime("%d %B %Y")),
    "us": Locale("en", lambda a: f"EUR {_grouped(a, ',', '.')}", lambda n: f"{n:,}", lambda d: d.strftime("%m/%d/%Y")),
    "de": Locale(
        "de",
        lambda a: f"{_grouped(a, '.', ',')} €",
        lambda n: f"{n:,}".replace(",", "\0").replace(".", ",").replace("\0", "."),
        lambda d: d.strftime("%d.%m.%Y"),
    ),
    "fr": Locale(
        "fr",
        lambda a: f"{_grouped(a, chr(0x202F), ',')} EUR",
        lambda n: f"{n:,}".replace(",", "\u202f").replace(".", ","),
        lambda d: d.strftime("%d/%m/%Y"),
    ),
}


@dataclass
class Catalogue:
    kind: str
    old: list[dict[str, Any]]  # what was stored
    new: list[dict[str, Any]]  # what the pages show now, the first ones of the old records


def catalogue(kind: str, seed: int, count: int = 60, changed: float = 0.3, fresh: float = 0.2) -> Catalogue:
    draw = random.Random(f"{kind}{seed}")
    records = [_record(kind, draw, number) for number in range(count)]
    keep = int(count * (1 - fresh))
    old, new = records[:keep], []
    for record in old:
        now = dict(record)
        for name in VOLATILE[kind]:
            if draw.random() < changed:
                now[name] = _value(name, draw, now["_n"])
        new.append(now)
    return Catalogue(kind, old, [*new, *records[keep:]])


def _record(kind: str, draw: random.Random, number: int) -> dict[str, Any]:
    first, second = (words.split() for words in WORDS[kind])
    record: dict[str, Any] = {"_n": number, "_kind": kind}
    for name in FIELDS[kind]:
        record[name] = _value(name, draw, number)
    record["title"] = f"{draw.choice(first)} {draw.choice(second)} {draw.choice(CITIES)} {number % 7 + 1}"
    return record


def _value(name: str, draw: random.Random, number: int) -> Any:
    match name:
        case "price":
            return Decimal(draw.randint(500, 250_000)) / 100
        case "rent":
            return Decimal(draw.randint(300, 2500) * 100 + draw.choice((0, 50))) / 100
        case "sku" | "ref":
            return f"{'ABCDEFGH'[number % 8]}{draw.choice('KLMN')}-{1000 + number * 7}"
        case "brand" | "company" | "agent":
            return draw.choice(MAKERS)
        case "stock":
            return draw.random() < 0.7
        case "remote":
            return draw.random() < 0.4
        case "rating":
            return draw.randint(10, 50) / 10
        case "reviews":
            return draw.randint(0, 2400)
        case "image":
            return f"https://img.example/p/{number}-{draw.randint(100, 999)}.jpg"
        case "description":
            return f"No. {draw.randint(2, 900)}, {', '.join(draw.sample(LONG, 3))}."
        case "city":
            return draw.choice(CITIES)
        case "salary":
            return draw.randint(24, 96) * 1000
        case "posted" | "free":
            return date(2024, 1, 1) + timedelta(days=draw.randint(0, 500))
        case "contract":
            return draw.choice(("permanent", "fixed", "freelance"))
        case "area":
            return draw.randint(180, 1400) / 10
        case "rooms":
            return draw.randint(1, 6)
    return ""


@dataclass
class Drawn:
    """A record on its way to a page: its texts in the locale."""

    record: dict[str, Any]
    locale: Locale
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        return LABELS[self.locale.language]


def drawn(record: dict[str, Any], locale: Locale) -> Drawn:
    said = SAID[locale.language]
    one = Drawn(record, locale)
    for name, value in record.items():
        if name.startswith("_"):
            continue
        if name in ("price", "rent"):
            text = locale.money(value)
        elif name == "stock":
            text = said[value]
        elif name == "remote":
            text = said["yes" if value else "no"]
        elif name == "contract":
            text = said[value]
        elif isinstance(value, date):
            text = locale.day(value)
        elif name in ("reviews", "salary", "area") or name == "rating":
            text = locale.number(value)
        else:
            text = str(value)
        one.texts[name] = html.escape(text)
    return one


def image_of(record: dict[str, Any], folder: str = "/media/full") -> str:
    return f"{folder}/{record['image'].rpartition('/')[2]}" if "image" in record else ""


def neighbours(record: dict[str, Any], everyone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [everyone[(record["_n"] * 3 + step) % len(everyone)] for step in (1, 2, 5)]


Layout = Callable[[Drawn, list[Drawn]], str]


def _page(one: Drawn, body: str, head: str = "") -> str:
    title = f"<title>{one.texts['title']} | Example</title>"
    return (
        f"<!doctype html><html lang={one.locale.language}><head><meta charset=utf-8>{title}{head}</head>"
        f"<body><header class=top><a href=/>Home</a> <a href=/cart>0,00</a> <span>24/7</span></header>{body}"
        f"<footer><p>Example Ltd, 12 Mill Road, since 1998. {one.labels['title']}</p></footer></body></html>"
    )


def _rest(one: Drawn) -> list[str]:
    return [name for name in one.texts if name not in ("title", "image", "description")]


def old_layout(one: Drawn, near: list[Drawn]) -> str:
    rows = "".join(f'<p class="{name}">{one.texts[name]}</p>' for name in _rest(one))
    image = f'<img class=main src="{one.record["image"]}">' if "image" in one.texts else ""
    return _page(
        one,
        f"<main><h1>{one.texts['title']}</h1>{image}{rows}<div class=description>{one.texts.get('description', '')}</div></main>",
    )


def semantic(one: Drawn, near: list[Drawn]) -> str:
    rows = []
    for name in _rest(one):
        extra = ""
        if name == "price":
            was = one.locale.money(one.record["price"] * Decimal("1.25"))
            extra = f"<del class=was>{was}</del> " if one.record["_n"] % 3 else ""
        rows.append(f'<div class="fact {name}-row">{extra}<span itemprop="{name}">{one.texts[name]}</span></div>')
    cards = "".join(
        f"<li class=card><a href=#><h3>{o.texts['title']}</h3><b class=amount>{o.texts.get('price', o.texts.get('rent', o.texts.get('salary', '')))}</b></a></li>"
        for o in near
    )
    image = f'<figure><img itemprop=image src="{image_of(one.record)}"></figure>' if "image" in one.texts else ""
    return _page(
        one,
        f"<article><h1 itemprop=name>{one.texts['title']}</h1>{image}{''.join(rows)}<section itemprop=description>{one.texts.get('description', '')}</section></article><ul class=also>{cards}</ul>",
    )


def hashed(one: Drawn, near: list[Drawn]) -> str:
    def name_of(what: str) -> str:
        return "c" + format(abs(hash_of(what)) % 16**6, "06x")

    rows = "".join(
        f'<div class="{name_of("row")}"><div class="{name_of("k" + name)}">{one.labels[name]}</div><div class="{name_of("v" + name)} {name_of("v")}">{one.texts[name]}</div></div>'
        for name in _rest(one)
    )
    cards = "".join(
        f'<div class="{name_of("card")}"><div class="{name_of("vprice")}">{o.texts.get("price", o.texts.get("rent", ""))}</div><i>{o.texts["title"]}</i></div>'
        for o in near
    )
    image = (
        f'<img class="{name_of("img")}" data-src="{image_of(one.record, "/i/800")}" src="data:image/gif;base64,R0">'
        if "image" in one.texts
        else ""
    )
    return _page(
        one,
        f'<div class="{name_of("wrap")}"><div class="{name_of("title")}">{one.texts["title"]}</div>{image}{rows}<div class="{name_of("text")}">{one.texts.get("description", "")}</div></div><div class="{name_of("others")}">{cards}</div>',
    )


def hash_of(text: str) -> int:
    return random.Random(text).getrandbits(60)


def tables(one: Drawn, near: list[Drawn]) -> str:
    names = _rest(one)
    if one.record["_n"] % 3 == 0:
        names = [*names[2:], *names[:2]]
    rows = "".join(f"<tr><th>{one.labels[name]}</th><td>{one.texts[name]}</td></tr>" for name in names)
    filler = "".join(f"<tr><th>Extra {n}</th><td>{n * 7}</td></tr>" for n in range(one.record["_n"] % 3))
    also = "".join(
        f"<tr><td>{o.texts['title']}</td><td>{o.texts.get('price', o.texts.get('rent', ''))}</td></tr>" for o in near
    )
    image = (
        f'<a href="{image_of(one.record, "/big")}"><img src="{image_of(one.record, "/thumb")}" width=90></a>'
        if "image" in one.texts
        else ""
    )
    return _page(
        one,
        f"<h2>{one.texts['title']}</h2>{image}<table><tbody>{filler}{rows}</tbody></table><p>{one.texts.get('description', '')}</p><table class=also>{also}</table>",
    )


def definitions(one: Drawn, near: list[Drawn]) -> str:
    unit = {
        "area": " m²",
        "rooms": f" {one.labels['rooms']}",
        "salary": " EUR / year",
        "rating": " / 5",
        "reviews": f" {one.labels['reviews']}",
    }
    rows = "".join(
        f"<dt>{one.labels[name]}:</dt><dd><span>{one.texts[name]}{unit.get(name, '')}</span></dd>"
        for name in _rest(one)
    )
    also = "".join(f"<dl><dt>{o.labels['title']}</dt><dd>{o.texts['title']}</dd></dl>" for o in near)
    image = (
        f'<div style="background:url({image_of(one.record)})" data-image="{image_of(one.record)}"></div>'
        if "image" in one.texts
        else ""
    )
    return _page(
        one,
        f"<section id=detail><h1><small>{one.labels['title']}</small> {one.texts['title']}</h1>{image}<dl>{rows}</dl><blockquote>{one.texts.get('description', '')}</blockquote></section><aside>{also}</aside>",
    )


def components(one: Drawn, near: list[Drawn]) -> str:
    rows = "".join(
        f'<x-fact name="{name}"><template shadowrootmode=open><slot></slot></template><span slot=value>{one.texts[name]}</span></x-fact>'
        for name in _rest(one)
    )
    cards = "".join(
        f'<x-card price="{o.texts.get("price", "")}"><span slot=title>{o.texts["title"]}</span></x-card>' for o in near
    )
    image = f'<x-image src="{image_of(one.record)}"></x-image>' if "image" in one.texts else ""
    return _page(
        one,
        f"<x-detail><template shadowrootmode=open><x-title>{one.texts['title']}</x-title>{image}<div class=facts><slot></slot></div></template>{rows}<p slot=text>{one.texts.get('description', '')}</p></x-detail>{cards}",
    )


def sentences(one: Drawn, near: list[Drawn]) -> str:
    rows = "".join(f"<li>{one.labels[name]}: {one.texts[name]}</li>" for name in _rest(one))
    bold = (
        "".join(f"<b>{one.labels[name]}</b> {one.texts[name]}<br>" for name in _rest(one))
        if one.record["_kind"] == "jobs"
        else f"<ul>{rows}</ul>"
    )
    image = f'<img alt="" src="{image_of(one.record)}?w=300">' if "image" in one.texts else ""
    also = "".join(f"<li>{o.texts['title']}</li>" for o in near)
    return _page(
        one,
        f"<div><div><h1>{one.texts['title']}</h1>{image}<div>{bold}</div><div><p>{one.texts.get('description', '')}</p></div></div><ul>{also}</ul></div>",
    )


def utility(one: Drawn, near: list[Drawn]) -> str:
    rows = []
    for name in _rest(one):
        text = one.texts[name]
        if name in ("price", "rent"):
            amount = one.record[name]
            whole = int(amount)
            text = f'<span class="text-sm">€</span><span class="text-3xl font-bold">{whole}</span><sup class="text-xs">{int(amount * 100) % 100:02}</sup>'
            if name == "price" and one.record["_n"] % 2:
                text += f'<s class="ml-2 text-gray-400">{one.locale.money(amount + 20)}</s>'
        elif name == "rating":
            text = f'<div class="stars"><div class="bg-yellow-400" style="width: {round(one.record[name] * 20)}%"></div></div>'
        rows.append(
            f'<div class="flex justify-between py-2" data-testid="{name}-line"><span class="text-gray-500">{one.labels[name]}</span><div class="font-medium">{text}</div></div>'
        )
    image = f'<img class="w-full rounded" loading=lazy src="{image_of(one.record)}">' if "image" in one.texts else ""
    also = "".join(
        f'<div class="p-2"><div class="font-medium">{o.texts["title"]}</div><div class="text-3xl font-bold">{o.texts.get("price", "")}</div></div>'
        for o in near
    )
    return _page(
        one,
        f'<div class="grid gap-4"><div class="p-4"><h1 class="text-2xl">{one.texts["title"]}</h1>{image}{"".join(rows)}<p class="mt-4">{one.texts.get("description", "")}</p></div><div class="p-2">{also}</div></div>',
    )


def state(one: Drawn, near: list[Drawn]) -> str:
    record = {
        name: (float(value) if isinstance(value, Decimal) else value.isoformat() if isinstance(value, date) else value)
        for name, value in one.record.items()
        if not name.startswith("_")
    }
    if "image" in record:
        record["image"] = image_of(one.record)
    shown = {"props": {"entry": {"facts": record, "related": [{"title": o.record["title"]} for o in near]}, "v": 3}}
    return _page(
        one,
        f"<div id=app><noscript>Please enable JavaScript</noscript></div><script>window.__STATE__ = {json.dumps(shown)};</script>",
    )


LAYOUTS: dict[str, tuple[Layout, str]] = {
    "semantic": (semantic, "en"),
    "hashed": (hashed, "de"),
    "tables": (tables, "de"),
    "definitions": (definitions, "us"),
    "sentences": (sentences, "fr"),
    "state": (state, "en"),
    "components": (components, "fr"),
    "utility": (utility, "en"),
    "tables-us": (tables, "us"),
}
HELD_OUT = ("components", "utility", "tables-us")


def json_ld(record: dict[str, Any]) -> str:
    """What search engines are told, of the fields for which schema.org has a word."""
    names = {"shop": "Product", "jobs": "JobPosting", "flats": "Apartment"}
    said = {
        name: (str(value) if isinstance(value, Decimal) else value.isoformat() if isinstance(value, date) else value)
        for name, value in record.items()
        if not name.startswith("_")
    }
    if "image" in said:
        said["image"] = image_of(record)
    return f'<script type="application/ld+json">{json.dumps({"@context": "https://schema.org", "@type": names[record["_kind"]], **said})}</script>'


def pages_of(shown: Catalogue, layout: str, *, structured: bool = False) -> list[str]:
    """The pages of all records after the redesign, in their order."""
    draw, place = LAYOUTS[layout]
    everyone = [drawn(record, LOCALES[place]) for record in shown.new]
    made = []
    for one in everyone:
        near = [everyone[other["_n"] % len(everyone)] for other in neighbours(one.record, shown.new)]
        text = draw(one, near)
        if structured:
            text = text.replace("</head>", f"{json_ld(one.record)}</head>")
        made.append(text)
    return made
