# ruff: noqa: E501 - markup is easier to read on one line
"""Themes written by hand for bench.heal, after sites as they are found: nothing in the engine is fitted to them.

A Japanese glossary of facts, web components with slots, a German table with two facts in a row, labels below the values,
props in an attribute, a stream of escaped JSON, state that is a list of names and values, attributes with their labels
beside them, words for screen readers, cells in changing order, and lines of one paragraph.
"""

from __future__ import annotations

import html
import json
import random
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from .heal_sites import Catalogue, hash_of
from .heal_themes import LANGUAGES, MONTHS

JAPANESE = {
    "title": "商品名", "price": "価格", "sku": "品番", "brand": "ブランド", "stock": "在庫", "rating": "評価",
    "reviews": "レビュー", "description": "説明", "ref": "求人番号", "company": "会社名", "city": "勤務地", "salary": "年収",
    "posted": "掲載日", "contract": "雇用形態", "remote": "在宅勤務", "rent": "賃料", "area": "専有面積", "rooms": "部屋数",
    "free": "入居可能日", "agent": "担当", "image": "写真",
}  # fmt: skip
JAPANESE_SAID = {True: "在庫あり", False: "在庫切れ", "yes": "可", "no": "不可", "permanent": "正社員",
                 "fixed": "契約社員", "freelance": "業務委託"}  # fmt: skip
LAYOUTS = ("glossary", "slots", "pairs", "below", "props", "stream", "listed", "attributes", "aria", "cells", "breaks")
MONEY = ("price", "rent")


class Written:
    """One of these sites. Used as a Theme is (heal_themes.py)."""

    def __init__(self, layout: str, kind: str) -> None:
        self.kind, self.layout = kind, layout
        self.language = {
            "glossary": "ja",
            "slots": "fr",
            "pairs": "de",
            "below": "en",
            "listed": "nl",
            "attributes": "fr",
            "aria": "es",
            "cells": "sv",
            "breaks": "nl",
        }.get(layout, "en")
        self.currency = {"ja": "JPY", "en": "GBP"}.get(self.language, "EUR")
        self.labels = JAPANESE if self.language == "ja" else LANGUAGES[self.language]["labels"]
        self.said = JAPANESE_SAID if self.language == "ja" else LANGUAGES[self.language]["said"]

    @property
    def name(self) -> str:
        return self.layout

    def prepared(self, shown: Catalogue) -> Catalogue:
        """With amounts that this currency has."""
        if self.currency != "JPY":
            return shown
        return Catalogue(shown.kind, [_in_yen(one) for one in shown.old], [_in_yen(one) for one in shown.new])

    def as_shown(self, one: dict[str, Any]) -> dict[str, Any]:
        if "contract" not in one or self.layout in ("props", "stream"):
            return one
        return {**one, "contract": self.said[one["contract"]]}

    # -- how values are written --------------------------------------------------------------------------------

    def text(self, name: str, value: Any) -> str:
        if name in MONEY:
            return self._money(value)
        if isinstance(value, date):
            return self._day(value)
        if isinstance(value, bool):
            return str(self.said[value if name == "stock" else "yes" if value else "no"])
        if name == "contract":
            return str(self.said[value])
        text = self._number(value) if isinstance(value, int | float) else str(value)
        units = {"ja": {"reviews": "件", "area": "㎡", "rooms": "部屋", "salary": "円"},
                 "de": {"area": " m²", "salary": " € brutto", "rating": " von 5"}}  # fmt: skip
        return text + units.get(self.language, {}).get(name, "")

    def _money(self, value: Decimal) -> str:
        if self.currency == "JPY":
            return f"{value:,.0f}円"
        if self.currency == "GBP":
            return f"£{value:,.2f}"
        text = self._points(f"{value:,.2f}")
        return f"{text} € inkl. MwSt." if self.language == "de" else f"{text} €"

    def _points(self, text: str) -> str:
        if self.language == "en":
            return text
        return text.replace(",", "\0").replace(".", ",").replace("\0", "\u202f" if self.language == "fr" else ".")

    def _number(self, value: float) -> str:
        return f"{value:,}" if self.language in ("en", "ja") else self._points(f"{value:,}")

    def _day(self, value: date) -> str:
        match self.language:
            case "ja":
                return f"{value.year}年{value.month}月{value.day}日"
            case "en":
                return f"{value.day} {MONTHS['en'][value.month - 1][:3]} {value.year}"
            case "nl" | "es" | "sv":
                return f"{value.day} {MONTHS[self.language][value.month - 1]} {value.year}"
        return value.strftime("%d.%m.%Y" if self.language == "de" else "%d/%m/%Y")

    # -- how it stands there -----------------------------------------------------------------------------------

    def page(self, one: dict[str, Any], near: list[dict[str, Any]]) -> str:
        money = next((name for name in ("price", "rent", "salary") if name in one), "title")
        if self.layout in ("props", "stream", "listed"):
            cards = ""
        else:
            cards = "".join(
                f"<li class={self.hashed('card')}><a href=/x/{other['_n']}>{html.escape(other['title'])}</a> "
                f"<em>{html.escape(self.text(money, other[money]))}</em></li>"
                for other in near
            )
        return (
            f"<!doctype html><html lang={self.language}><head><meta charset=utf-8><title>{html.escape(one['title'])} | Example</title></head>"
            f"<body><nav><a href=/>Home</a> <b>0</b></nav>{self.block(one, near)}<ul class=also>{cards}</ul>"
            f"<footer>Example, 1998 - 2026, {self.labels['title']}</footer></body></html>"
        )

    def block(self, one: dict[str, Any], near: Sequence[dict[str, Any]] = ()) -> str:
        """One record as markup."""
        made: str = getattr(self, f"_{self.layout}")(one, near)
        return made

    def hashed(self, what: str) -> str:
        return "s" + format(abs(hash_of(f"{self.layout}{what}")) % 16**6, "06x")

    def facts(self, one: dict[str, Any]) -> list[tuple[str, str, str]]:
        names = [name for name in one if not name.startswith("_") and name not in ("title", "image", "description")]
        return [(name, self.labels[name], html.escape(self.text(name, one[name]))) for name in names]

    def _glossary(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        image = f'<img class="{self.hashed("i")}" src="/img/w300/{_file(one)}" loading=lazy>' if "image" in one else ""
        rows = []
        for name, label, text in self.facts(one):
            after = "<small>（税込）</small>" if name in MONEY else ""
            rows.append(f"<div class={self.hashed('row')}><dt>{label}</dt><dd>{text}{after}</dd></div>")
        if one["_n"] % 4 == 0:
            rows.insert(1, f"<div class={self.hashed('row')}><dt>送料</dt><dd>{one['_n'] * 10 + 100}円</dd></div>")
        about = f"<p class={self.hashed('t')}>{html.escape(one['description'])}</p>" if "description" in one else ""
        return f"<article><h2 class={self.hashed('h')}>{html.escape(one['title'])}</h2>{image}<dl>{''.join(rows)}</dl>{about}</article>"

    def _slots(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        rows = []
        for name, label, text in self.facts(one):
            if name in MONEY:
                whole, _, cents = f"{one[name]:.2f}".partition(".")
                text = f"<b>{whole}</b><sup>€{cents}</sup>"
            elif isinstance(one[name], bool):
                text = f"<ui-badge tone={'good' if one[name] else 'muted'}>{text}</ui-badge>"
            elif name == "rating":
                text = f'<ui-stars value="{one[name]}" max="5"></ui-stars>'
            rows.append(f'<ui-line><span slot="term">{label}</span><span slot="detail">{text}</span></ui-line>')
        image = (
            f'<ui-picture slot="media" srcset="/p/{_file(one)} 1x, /p/2x/{_file(one)} 2x"></ui-picture>'
            if "image" in one
            else ""
        )
        about = f'<div slot="about">{html.escape(one["description"])}</div>' if "description" in one else ""
        return (
            f'<ui-entry><template shadowrootmode=open><h1><slot name="head"></slot></h1><slot></slot></template>'
            f'<span slot="head">{html.escape(one["title"])}</span>{image}{"".join(rows)}{about}</ui-entry>'
        )

    def _pairs(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        facts = self.facts(one)
        if one["_n"] % 3 == 1:
            facts.insert(2, ("extra", "Versand", f"{one['_n'] % 9},90 €"))
        if one["_n"] % 4 == 2:
            facts.insert(0, ("extra", "Neu seit", f"0{one['_n'] % 9 + 1}.02.2023"))
        rows = "".join(
            "<tr>" + "".join(f"<th>{label}</th><td>{text}</td>" for _, label, text in facts[at : at + 2]) + "</tr>"
            for at in range(0, len(facts), 2)
        )
        image = (
            f'<a class="{self.hashed("zoom")}" href="/gross/{_file(one)}"><img src="/klein/{_file(one)}"></a>'
            if "image" in one
            else ""
        )
        about = f"<div>{html.escape(one['description'])}</div>" if "description" in one else ""
        return f"<main><h1>{html.escape(one['title'])}</h1>{image}<table>{rows}</table>{about}</main>"

    def _below(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        cells = []
        for name, label, text in self.facts(one):
            was = ""
            if name == "price" and one["_n"] % 2:
                was = f'<span class="{self.hashed("v")}" style="text-decoration:line-through">{self._money(one[name] * Decimal("1.25"))}</span>'
            cells.append(
                f'<div class="{self.hashed("cell")}">{was}<span class="{self.hashed("v")}">{text}</span><small>{label}</small></div>'
            )
        image = (
            f'<div class="{self.hashed("pic")}" style="background-image:url(\'/m/{_file(one)}\')"></div>'
            if "image" in one
            else ""
        )
        about = (
            f'<div class="{self.hashed("about")}"><p>{html.escape(one["description"])}</p></div>'
            if "description" in one
            else ""
        )
        return f'<div class="{self.hashed("all")}"><div class="{self.hashed("h")}">{html.escape(one["title"])}</div>{image}{"".join(cells)}{about}</div>'

    def _attributes(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        facts = self.facts(one)
        facts = facts[one["_n"] % 3 :] + facts[: one["_n"] % 3]
        rows = "".join(f'<fact-row label="{label}" value="{text}"></fact-row>' for _, label, text in facts)
        image = f'<fact-media value="/m/{_file(one)}"></fact-media>' if "image" in one else ""
        about = f'<fact-text value="{html.escape(one["description"])}"></fact-text>' if "description" in one else ""
        return f'<fact-sheet heading="{html.escape(one["title"])}">{image}{rows}{about}</fact-sheet>'

    def _aria(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        rows = "".join(
            f'<div class="{self.hashed("r")}" aria-label="{label}: {text}"><svg><path d="M0 0"></path></svg></div>'
            for _, label, text in self.facts(one)
        )
        image = f'<img class="{self.hashed("i")}" alt="" src="/foto/{_file(one)}">' if "image" in one else ""
        about = f'<p class="{self.hashed("t")}">{html.escape(one["description"])}</p>' if "description" in one else ""
        return f'<div class="{self.hashed("p")}"><h1>{html.escape(one["title"])}</h1>{image}{rows}{about}</div>'

    def _cells(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        facts = self.facts(one)
        facts = facts[one["_n"] % 4 :] + facts[: one["_n"] % 4]
        cells = "".join(f'<td class="{self.hashed("c")}" data-label="{label}">{text}</td>' for _, label, text in facts)
        image = f'<img src="/bild/{_file(one)}">' if "image" in one else ""
        about = f"<div>{html.escape(one['description'])}</div>" if "description" in one else ""
        return f"<section><h2>{html.escape(one['title'])}</h2>{image}<table><tr>{cells}</tr></table>{about}</section>"

    def _breaks(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        facts = self.facts(one)
        if one["_n"] % 3 == 0:
            facts.insert(1, ("extra", "Nieuw", "ja"))
        lines = "<br>\n".join(f"{label}: {text}" for _, label, text in facts)
        image = f'<img src="/foto/{_file(one)}">' if "image" in one else ""
        about = f"<p>{html.escape(one['description'])}</p>" if "description" in one else ""
        return f"<div class=text><h1>{html.escape(one['title'])}</h1>{image}<p>{lines}</p>{about}</div>"

    def _plain(self, one: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in one.items():
            if name.startswith("_"):
                continue
            if name in MONEY:
                found[name] = {"cents": int(value * 100), "currency": self.currency}
            elif name == "image":
                found[name] = f"/cdn/{_file(one)}"
            else:
                found[name] = value.isoformat() if isinstance(value, date) else value
        return found

    def _props(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        props = html.escape(json.dumps({"item": self._plain(one), "locale": "en", "id": one["_n"]}))
        return f'<div data-component="Detail" data-props="{props}"></div>'

    def _stream(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        tree = ["$", "$L7", None, {"entry": self._plain(one), "params": {"n": one["_n"]}}]
        chunk = json.dumps(f"5:{json.dumps(tree)}\n")
        return f"<div id=root></div><script>self.__f=self.__f||[]</script><script>self.__f.push([1,{chunk}])</script>"

    def _listed(self, one: dict[str, Any], near: Sequence[dict[str, Any]]) -> str:
        rows = [{"label": label, "value": html.unescape(text)} for _, label, text in self.facts(one)]
        random.Random(one["_n"]).shuffle(rows)
        shown = {"title": one["title"], "text": one.get("description", ""), "image": f"/cdn/{_file(one)}", "rows": rows}
        related = [{"title": other["title"]} for other in near]
        state = {"view": {"detail": shown, "related": related}}
        return f"<div id=app></div><script>window.__INITIAL__={json.dumps(state)}</script>"


def _in_yen(one: dict[str, Any]) -> dict[str, Any]:
    return {name: Decimal(int(value) * 10) if name in MONEY else value for name, value in one.items()}


def _file(one: dict[str, Any]) -> str:
    return str(one.get("image", "")).rpartition("/")[2]


def written(kind: str) -> list[Written]:
    return [Written(layout, kind) for layout in LAYOUTS]
