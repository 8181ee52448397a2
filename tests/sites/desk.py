"""A desk that is asked by forms and APIs, in the server of the club: what it was asked is in `hits`.

    /search          a search over two selects: the second is there when the first is chosen, and each page has a
                     ViewState that belongs to it, signed, another one each time
    /offers/N        JSON, paged by POST: {"page": 0}
    /graphql         GraphQL with a cursor: {"query": ..., "variables": {"list": N, "after": 0}}
    /basic/N, /digest/N    pages for who logs in by HTTP itself

`truth` is what is there to be had, by path.
"""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import parse_qs

from .club import PASSWORD, USER, Answer, Club

REGIONS, CITIES, STREETS = 4, 5, 3
LISTS, LENGTH = 4, 12
_KEY = b"of the desk alone"


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


@dataclass
class Desk(Club):
    nonces: int = 0

    @property
    def truth(self) -> dict[str, set[str]]:
        streets = {
            f"{region}-{city}-{street}"
            for region in range(REGIONS) for city in range(CITIES) for street in range(STREETS)
        }  # fmt: skip
        entries = {f"{one}-{number}" for one in range(LISTS) for number in range(LENGTH)}
        pages = {str(number) for number in range(self.pages)}
        return {"search": streets, "offers": entries, "graphql": entries, "basic": pages, "digest": pages}

    def asked(self, path: str) -> list[str]:
        """What each POST asked for, in few words."""
        return [self._words(hit.path, hit.body) for hit in self.seen(path, "POST")]

    def _words(self, path: str, body: str) -> str:
        if path == "/search":
            fields = parse_qs(body)
            return "-".join(fields[name][0] for name in ("region", "city") if name in fields)
        asked = json.loads(body)
        return f"{path}-{asked['page']}" if "page" in asked else f"{asked['variables']}"

    def answer(self, method: str, path: str, body: str, cookies: dict[str, str], address: str) -> Answer:
        kind = path.split("/")[1]
        if kind == "search":
            return self._search(method, body)
        if kind in ("offers", "graphql"):
            return self._list(kind, path, body)
        if kind in ("basic", "digest"):
            return self._door(kind, method, path)
        return super().answer(method, path, body, cookies, address)

    def _search(self, method: str, body: str) -> Answer:
        if method == "GET":
            return Answer(200, _form(_state({}), region=range(REGIONS)))
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        state = _read(fields.get("__VIEWSTATE", ""))
        region, city = fields.get("region", ""), fields.get("city", "")
        if state is None or (city and state.get("region") != region) or not region.isdigit():
            return Answer(500, "<h1>The state of this page is corrupt</h1>")
        if not city:
            here = [f"{region}{number}" for number in range(CITIES)]
            return Answer(200, _form(_state({"region": region}), region=[region], city=here))
        if not city.startswith(region):
            return Answer(500, "<h1>That city lies elsewhere</h1>")
        names = [f"{region}-{city[len(region) :]}-{street}" for street in range(STREETS)]
        return Answer(200, "<ul>" + "".join(f"<li>{name}</li>" for name in names) + "</ul>")

    def _list(self, kind: str, path: str, body: str) -> Answer:
        asked = json.loads(body)
        if kind == "offers":
            number, place = path.split("/")[2], asked["page"]
        else:
            number, place = asked["variables"]["list"], asked["variables"]["after"]
        next_place = place + 1 if place + 1 < LENGTH else None
        return Answer(200, json.dumps({"nodes": [f"{number}-{place}"], "next": next_place}))

    def _door(self, kind: str, method: str, path: str) -> Answer:
        given = self.asked_with.get("authorization", "")
        if kind == "basic":
            inside = given == "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            challenge = 'Basic realm="desk"'
        else:
            inside = _is_right(given, method, path)
            challenge = f'Digest realm="desk", qop="auth", algorithm=SHA-256, nonce="{secrets.token_hex(8)}"'
        if not inside:
            return Answer(401, "<h1>Who?</h1>", [("WWW-Authenticate", challenge)])
        links = "".join(f"<a href=/{kind}/{number}>{number}</a>" for number in range(self.pages))
        return Answer(200, f"<h1>{path.split('/')[2]}</h1>{links}<p>{'words ' * 100}</p>")


def _is_right(given: str, method: str, path: str) -> bool:
    if not given.startswith("Digest "):
        return False
    words = dict(part.strip().split("=", 1) for part in given.removeprefix("Digest ").split(","))
    fields = {name: value.strip('"') for name, value in words.items()}
    who, what = _hash(f"{USER}:desk:{PASSWORD}"), _hash(f"{method}:{path}")
    answer = _hash(f"{who}:{fields['nonce']}:{fields['nc']}:{fields['cnonce']}:auth:{what}")
    return fields["uri"] == path and fields["response"] == answer


def _state(values: dict[str, str]) -> str:
    text = b64encode(json.dumps({**values, "nonce": secrets.token_hex(8)}).encode()).decode()
    return f"{text}.{hmac.digest(_KEY, text.encode(), 'sha256').hex()}"


def _read(state: str) -> dict[str, str] | None:
    text, _, sign = state.partition(".")
    if not hmac.compare_digest(hmac.digest(_KEY, text.encode(), "sha256").hex(), sign):
        return None
    found: dict[str, str] = json.loads(b64decode(text))
    return found


def _form(state: str, **selects: object) -> str:
    fields = "".join(
        f"<select name={name}>{''.join(f'<option value={one}>{one}</option>' for one in options)}</select>"  # type: ignore[attr-defined]
        for name, options in selects.items()
    )
    hidden = f"<input type=hidden name=__VIEWSTATE value='{state}'>"
    return f"<form id=search action=/search method=post>{hidden}{fields}</form>"
