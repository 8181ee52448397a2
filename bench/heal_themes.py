# ruff: noqa: E501 - markup is easier to read on one line
"""Themes drawn by a seed, for bench.heal: how values stand in the markup of a site, and how they are written.

A theme combines a frame (rows of elements, a table, a definition list, a list, sentences, web components, a state that
scripts render, structured data), a way of naming (what people say, BEM, modules with hashes, hashes alone, utilities,
data attributes, nothing), a language, a currency, and decoys. Nothing in the engine is fitted to one of them: a new seed
is a new site.
"""

from __future__ import annotations

import html
import json
import random
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any, Protocol

from . import heal_sites as sites

FRAMES = ("rows", "table", "columns", "definitions", "list", "sentences", "components", "state", "island", "cards")
NAMINGS = ("said", "bem", "modules", "hashed", "utility", "data", "none")
MONTHS = {
    "nl": [
        "januari",
        "februari",
        "maart",
        "april",
        "mei",
        "juni",
        "juli",
        "augustus",
        "september",
        "oktober",
        "november",
        "december",
    ],
    "es": [
        "enero",
        "febrero",
        "marzo",
        "abril",
        "mayo",
        "junio",
        "julio",
        "agosto",
        "septiembre",
        "octubre",
        "noviembre",
        "diciembre",
    ],
    "sv": [
        "januari",
        "februari",
        "mars",
        "april",
        "maj",
        "juni",
        "juli",
        "augusti",
        "september",
        "oktober",
        "november",
        "december",
    ],
    "en": [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ],
}
LANGUAGES: dict[str, dict[str, Any]] = {
    "en": {"labels": dict(sites.LABELS["en"]), "said": dict(sites.SAID["en"]), "group": ",", "point": "."},
    "de": {"labels": dict(sites.LABELS["de"]), "said": dict(sites.SAID["de"]), "group": ".", "point": ","},
    "fr": {"labels": dict(sites.LABELS["fr"]), "said": dict(sites.SAID["fr"]), "group": "\u202f", "point": ","},
    "nl": {
        "labels": {"title": "Naam", "price": "Prijs", "sku": "Artikelnr.", "brand": "Merk", "stock": "Voorraad",
                   "rating": "Waardering", "reviews": "Beoordelingen", "description": "Omschrijving", "ref": "Kenmerk",
                   "company": "Bedrijf", "city": "Plaats", "salary": "Salaris", "posted": "Geplaatst",
                   "contract": "Dienstverband", "remote": "Thuiswerken", "rent": "Huur", "area": "Oppervlakte",
                   "rooms": "Kamers", "free": "Beschikbaar", "agent": "Makelaar", "image": "Foto"},
        "said": {True: "Op voorraad", False: "Uitverkocht", "yes": "Ja", "no": "Nee", "permanent": "Vast",
                 "fixed": "Tijdelijk", "freelance": "Freelance"},
        "group": ".", "point": ",",
    },
    "es": {
        "labels": {"title": "Nombre", "price": "Precio", "sku": "Referencia", "brand": "Marca", "stock": "Disponibilidad",
                   "rating": "Valoración", "reviews": "Opiniones", "description": "Descripción", "ref": "Código",
                   "company": "Empresa", "city": "Ciudad", "salary": "Salario", "posted": "Publicado",
                   "contract": "Contrato", "remote": "Teletrabajo", "rent": "Alquiler", "area": "Superficie",
                   "rooms": "Habitaciones", "free": "Libre desde", "agent": "Agente", "image": "Imagen"},
        "said": {True: "En stock", False: "Agotado", "yes": "Sí", "no": "No", "permanent": "Indefinido",
                 "fixed": "Temporal", "freelance": "Autónomo"},
        "group": ".", "point": ",",
    },
    "sv": {
        "labels": {"title": "Namn", "price": "Pris", "sku": "Artikel", "brand": "Märke", "stock": "Lagerstatus",
                   "rating": "Betyg", "reviews": "Omdömen", "description": "Beskrivning", "ref": "Ref.nr",
                   "company": "Företag", "city": "Ort", "salary": "Lön", "posted": "Publicerad",
                   "contract": "Anställning", "remote": "Distans", "rent": "Hyra", "area": "Boyta", "rooms": "Rum",
                   "free": "Ledig", "agent": "Mäklare", "image": "Bild"},
        "said": {True: "I lager", False: "Slut", "yes": "Ja", "no": "Nej", "permanent": "Tillsvidare",
                 "fixed": "Visstid", "freelance": "Frilans"},
        "group": "\u00a0", "point": ",",
    },
}  # fmt: skip
CURRENCIES = {"EUR": ("€", "EUR"), "GBP": ("£", "GBP"), "USD": ("$", "USD"), "CHF": ("CHF", "Fr."), "SEK": ("kr", "SEK"),
              "PLN": ("zł", "PLN")}  # fmt: skip


class Theme:
    """One made-up site. The same seed gives the same site."""

    def __init__(self, seed: str, kind: str) -> None:
        self.draw = draw = random.Random(f"theme {seed} {kind}")
        self.kind = kind
        self.frame = draw.choice(FRAMES)
        self.naming = draw.choice(NAMINGS)
        self.language = draw.choice(sorted(LANGUAGES))
        self.currency = draw.choice(sorted(CURRENCIES))
        self.words = LANGUAGES[self.language]
        self.sign = draw.choice(CURRENCIES[self.currency])
        if self.sign == "$":
            self.sign = draw.choice(("US$", "USD", "$"))
        self.front = draw.random() < 0.5
        self.date_style = draw.choice(("numeric", "words", "iso", "time", "slashes"))
        self.salt = draw.randrange(10**6)
        self.split = draw.random() < 0.25
        self.struck = draw.choice(("del", "s", "", ""))
        self.colon = draw.choice((":", "", " –"))
        self.order = draw.random() < 0.3  # rows come in another order on some pages
        self.optional = draw.random() < 0.4  # rows that only some pages have
        self.boolean = draw.choice(("words", "words", "class", "icon"))
        self.units = draw.random() < 0.4
        self.title_tag = draw.choice(("h1", "h1", "h2", "div", "p"))
        self.description = draw.choice(("p", "div", "blockquote", "section"))
        self.image = draw.choice(("src", "data-src", "data-image", "style", "href"))
        self.suffix = draw.choice(("", "?w=600", ""))
        self.meta = draw.random() < 0.3
        self.label_names = self.naming == "said" and draw.random() < 0.3
        self.more = draw.choice((0, 2, 3))

    @property
    def name(self) -> str:
        return f"{self.frame}/{self.naming}/{self.language}/{self.currency}"

    # -- how values are written --------------------------------------------------------------------------------

    def amount(self, value: Decimal) -> str:
        text = f"{value:,.2f}".replace(",", "\0").replace(".", self.words["point"])
        return text.replace("\0", self.words["group"])

    def money(self, value: Decimal) -> str:
        text = self.amount(value)
        if self.front:
            return f"{self.sign}{text}" if len(self.sign) == 1 else f"{self.sign} {text}"
        return f"{text} {self.sign}"

    def number(self, value: float) -> str:
        text = f"{value:,}".replace(",", "\0").replace(".", self.words["point"])
        return text.replace("\0", self.words["group"])

    def day(self, value: date) -> str:
        if self.date_style == "iso":
            return value.isoformat()
        if self.date_style == "words" and self.language in MONTHS:
            return f"{value.day} {MONTHS[self.language][value.month - 1]} {value.year}"
        if self.date_style == "slashes":
            return value.strftime("%m/%d/%Y" if self.language == "en" else "%d/%m/%Y")
        return value.strftime("%d.%m.%Y" if self.language in ("de", "sv") else "%d-%m-%Y")

    def as_shown(self, one: dict[str, Any]) -> dict[str, Any]:
        """The record with its enumerations in the words of the page, if they stand there."""
        if "contract" not in one or self.frame in ("state", "island"):
            return one
        return {**one, "contract": self.words["said"][one["contract"]]}

    def text(self, name: str, value: Any) -> str:
        said = self.words["said"]
        if name in ("price", "rent"):
            return self.money(value)
        if name == "stock":
            return str(said[value])
        if name == "remote":
            return str(said["yes" if value else "no"])
        if name == "contract":
            return str(said[value])
        if isinstance(value, date):
            return self.day(value)
        if isinstance(value, int | float):
            return self.number(value)
        return str(value)

    # -- how it stands there -----------------------------------------------------------------------------------

    def hashed(self, what: str) -> str:
        return format(random.Random(f"{self.salt}{what}").getrandbits(28), "07x")

    def attrs(self, what: str) -> str:
        """The attributes of the element for `what`, by the naming of the theme."""
        match self.naming:
            case "said":
                return f' class="{what}"'
            case "bem":
                return f' class="entry__{what} entry__{what}--large"'
            case "modules":
                return f' class="{what.title()}_root__{self.hashed(what)[:5].upper()}"'
            case "hashed":
                return f' class="x{self.hashed(what)} x{self.hashed("all")}"'
            case "utility":
                return f' class="px-2 text-{len(what) % 4 + 1}xl leading-{len(what) % 3}"'
            case "data":
                return f' data-qa="{what}-value"'
        return ""

    def shown(self, one: dict[str, Any], name: str) -> str:
        """The value as markup."""
        value, text = one[name], html.escape(self.text(name, one[name]))
        if name in ("price", "rent"):
            if self.split:
                whole, _, cents = f"{value:.2f}".partition(".")
                return f"<span>{self.sign}</span><span{self.attrs('whole')}>{whole}</span><sup>{cents}</sup>"
            if name == "price" and self.struck and one["_n"] % 3:
                was = html.escape(self.money(value * Decimal("1.2")))
                return f"<{self.struck}>{was}</{self.struck}> <b>{text}</b>"
        if name in ("stock", "remote") and self.boolean != "words":
            word = "yes" if value else "no"
            mark = f"is-{word}" if self.boolean == "class" else f"icon-{'check' if value else 'cross'}"
            return f'<i class="{mark}" aria-hidden=true></i>' + (text if self.boolean == "class" else "")
        if isinstance(value, date) and self.date_style == "time":
            return f'<time datetime="{value.isoformat()}">{self.day(value)}</time>'
        if self.units and name in ("area", "salary", "rating", "rooms"):
            unit = {
                "area": "m²",
                "salary": f"{self.sign} / yr",
                "rating": "/ 5",
                "rooms": self.words["labels"]["rooms"],
            }
            return f"{text} {unit[name]}"
        return text

    def picture(self, one: dict[str, Any]) -> str:
        if "image" not in one:
            return ""
        url = f"/cdn/{self.salt % 97}/{one['image'].rpartition('/')[2]}{self.suffix}"
        match self.image:
            case "src" | "data-src" | "data-image":
                return f'<img{self.attrs("photo")} {self.image}="{url}" alt="">'
            case "style":
                return f'<div{self.attrs("photo")} style="background-image: url({url})" data-full="{url}"></div>'
        return f'<a{self.attrs("photo")} href="{url}"><img src="/thumb.gif"></a>'

    def rows(self, one: dict[str, Any]) -> list[tuple[str, str, str]]:
        """Name, label and markup of every value but title, image and description."""
        labels = self.words["labels"]
        names = [name for name in one if not name.startswith("_") and name not in ("title", "image", "description")]
        if self.order and one["_n"] % 3 == 0:
            names = names[1:] + names[:1]
        found = [(name, labels[name], self.shown(one, name)) for name in names]
        for number in range(one["_n"] % (self.more + 1) if self.optional else 0):
            found.insert(number, (f"extra{number}", f"Info {number}", str(one["_n"] * 3 + number)))
        return found

    def page(self, one: dict[str, Any], near: list[dict[str, Any]]) -> str:
        draw: Callable[[dict[str, Any]], str] = getattr(self, f"_{self.frame}")
        title = html.escape(one["title"])
        money = next((name for name in ("price", "rent", "salary") if name in one), "title")
        cards = "".join(
            f'<li{self.attrs("card")}><a href="/x/{other["_n"]}">{html.escape(other["title"])}</a>'
            f"<em{self.attrs('amount')}>{html.escape(self.text(money, other[money]))}</em></li>"
            for other in near
        )
        meta = f'<meta property="og:title" content="{title}">' if self.meta else ""
        return (
            f"<!doctype html><html lang={self.language}><head><title>{title} - Example {self.salt % 9}</title>{meta}</head>"
            f"<body><nav><a href=/>Home</a> <b>3</b></nav>{draw(one)}<ul{self.attrs('also')}>{cards}</ul>"
            f"<footer>Example 1998 - 2024, {self.words['labels']['title']}</footer></body></html>"
        )

    def _head(self, one: dict[str, Any]) -> str:
        tag = self.title_tag
        return f"<{tag}{self.attrs('title')}>{html.escape(one['title'])}</{tag}>{self.picture(one)}"

    def _tail(self, one: dict[str, Any]) -> str:
        if "description" not in one:
            return ""
        return f"<{self.description}{self.attrs('about')}>{html.escape(one['description'])}</{self.description}>"

    def _rows(self, one: dict[str, Any]) -> str:
        rows = "".join(
            f"<div{self.attrs('row')}><span{self.attrs('label')}>{label}{self.colon}</span><div{self.attrs(name)}>{value}</div></div>"
            for name, label, value in self.rows(one)
        )
        return f"<main>{self._head(one)}{rows}{self._tail(one)}</main>"

    def _table(self, one: dict[str, Any]) -> str:
        rows = "".join(
            f"<tr><th>{label}{self.colon}</th><td{self.attrs(name)}>{value}</td></tr>"
            for name, label, value in self.rows(one)
        )
        return f"<main>{self._head(one)}<table{self.attrs('facts')}>{rows}</table>{self._tail(one)}</main>"

    def _columns(self, one: dict[str, Any]) -> str:
        rows = self.rows(one)
        heads = "".join(f"<th>{label}</th>" for _, label, _ in rows)
        cells = "".join(f"<td>{value}</td>" for _, _, value in rows)
        return f"<main>{self._head(one)}<table><tr>{heads}</tr><tr>{cells}</tr></table>{self._tail(one)}</main>"

    def _definitions(self, one: dict[str, Any]) -> str:
        rows = "".join(
            f"<dt>{label}{self.colon}</dt><dd{self.attrs(name)}>{value}</dd>" for name, label, value in self.rows(one)
        )
        return f"<main>{self._head(one)}<dl>{rows}</dl>{self._tail(one)}</main>"

    def _list(self, one: dict[str, Any]) -> str:
        rows = "".join(
            f"<li{self.attrs(name)}><strong>{label}{self.colon}</strong> {value}</li>"
            for name, label, value in self.rows(one)
        )
        return f"<main>{self._head(one)}<ul>{rows}</ul>{self._tail(one)}</main>"

    def _sentences(self, one: dict[str, Any]) -> str:
        rows = "".join(f"<p>{label}: {value}</p>" for _, label, value in self.rows(one))
        return f"<article>{self._head(one)}{rows}{self._tail(one)}</article>"

    def _cards(self, one: dict[str, Any]) -> str:
        rows = "".join(
            f"<section{self.attrs(name)}><h4>{label}</h4><div><span>{value}</span></div></section>"
            for name, label, value in self.rows(one)
        )
        return f"<main>{self._head(one)}<div>{rows}</div>{self._tail(one)}</main>"

    def _components(self, one: dict[str, Any]) -> str:
        rows = "".join(
            f'<my-fact name="{name if self.naming != "hashed" else self.hashed(name)}"><template shadowrootmode="open">'
            f"<style>:host{{}}</style><b>{label}</b><slot></slot><span>{value}</span></template></my-fact>"
            for name, label, value in self.rows(one)
        )
        return f"<my-page><template shadowrootmode=open>{self._head(one)}{rows}{self._tail(one)}</template></my-page>"

    def _plain(self, one: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in one.items():
            if name.startswith("_"):
                continue
            if name in ("price", "rent"):
                found[name] = {"value": float(value), "currency": self.currency}
            elif isinstance(value, date):
                found[name] = value.isoformat()
            elif name == "image":
                found[name] = {"url": f"/cdn/{value.rpartition('/')[2]}"}
            else:
                found[name] = value
        return {
            f"{name[:3]}{self.hashed(name)[:2]}" if self.naming == "hashed" else name: one
            for name, one in found.items()
        }

    def _state(self, one: dict[str, Any]) -> str:
        shown = {"page": {"data": {"entity": self._plain(one)}}, "build": self.salt}
        return f"<div id=root></div><script>window.__DATA__ = {json.dumps(shown)};</script>"

    def _island(self, one: dict[str, Any]) -> str:
        shown = {"props": {"pageProps": {"item": self._plain(one)}}, "buildId": str(self.salt)}
        return f'<div id=__app></div><script id="__APP_DATA__" type="application/json">{json.dumps(shown)}</script>'


class Pages(Protocol):
    def page(self, one: dict[str, Any], near: list[dict[str, Any]]) -> str: ...


def pages_of(shown: sites.Catalogue, theme: Pages) -> list[str]:
    return [
        theme.page(one, [shown.new[(one["_n"] * 3 + step) % len(shown.new)] for step in (1, 2, 5)]) for one in shown.new
    ]
