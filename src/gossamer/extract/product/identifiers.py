"""Product identifiers on the visible page: the shop's number (SKU), GTIN, MPN and brand.

They are found beside a label in one of many languages ("Artikelnummer: 123", "Brand | Acme"), in an element named for
them (class="sku"), or in the page's address; a number in the address counts little unless the page uses it too.
"""

from __future__ import annotations

import re
from functools import lru_cache

from turbohtml import Element

from ..structured.things import plain_text
from .claims import Claims, ClaimSource
from .identity import PageIdentity, looks_like_number
from .visible_page import Place, VisiblePage, names_of

# Labels such as "Item number", before the shop's article number.
_SKU_LABELS = (
    "sku", "item number", "item no", "item #", "item code", "item id", "item model", "product code", "product no",
    "product number", "product id", "product ref", "product reference", "product sku", "article number", "article no",
    "article code", "article id", "art. no", "art.no", "art no", "art. nr", "art.nr", "art nr", "art.-nr", "art-nr",
    "art.", "part number", "catalogue number", "catalog number", "catalogue no", "cat. no", "cat no", "stock code",
    "stock no", "stock number", "style no", "style number", "style code", "style", "ref", "ref.", "reference",
    "reference no", "model no", "code", "id", "asin", "listing id", "ad id", "post id", "dpci", "tcin", "web id",
    "plu", "ebay item number", "mfr #", "upc/sku", "artikelnummer", "artikel-nr", "artikelnr", "artikel nr",
    "artikel-nummer", "artikel-id", "bestellnummer", "bestell-nr", "bestellnr", "produktnummer", "produkt-nr",
    "produktcode", "produkt-id", "anzeigennummer", "anzeigennr", "anzeige-id", "anzeigen-id", "anzeige", "inserat-nr",
    "ean/artikelnummer", "référence", "référence produit", "réf", "réf.", "code produit", "code article",
    "numéro d'article", "numéro d'objet ebay", "n° article", "n° de référence", "codice", "codice prodotto",
    "codice articolo", "cod. prodotto", "cod. articolo", "cod. art", "cod.", "cod", "numero oggetto ebay",
    "riferimento", "rif", "rif.", "referencia", "código", "código de producto", "código del producto",
    "código de artículo", "número de artículo", "número de artículo de ebay", "número de referencia",
    "nº de referencia", "ref. producto", "referência", "código do produto", "cód", "cód.", "cód. do produto",
    "número do artigo", "id do anúncio", "artikelcode", "bestelnummer", "productcode", "productnummer",
    "artikel nummer", "advertentienummer", "varenummer", "varenr", "varenr.", "vare nr", "artnr", "art.nr.",
    "artikelnr.", "produktnr", "tuotenumero", "tuotekoodi", "tuotenro", "vörunúmer", "kod produktu",
    "numer katalogowy", "nr katalogowy", "indeks", "symbol", "numer artykułu", "kod", "kod towaru", "kód produktu",
    "kód", "katalogové číslo", "kat. č", "objednací kód", "obj. číslo", "číslo produktu", "kód tovaru", "cikkszám",
    "termékkód", "termék kód", "cod produs", "cod articol", "cod produs:", "šifra", "šifra artikla", "šifra izdelka",
    "šifra proizvoda", "sifra", "ident", "kataloški broj", "kat. broj", "код товара", "код", "артикул", "арт", "арт.",
    "код продукта", "номер товара", "номер объявления", "каталожен номер", "код на продукта", "кат. номер",
    "код товару", "артикул товару", "тауар коды", "κωδικός", "κωδικός προϊόντος", "ürün kodu", "stok kodu", "ürün no",
    "ilan no", "model kodu", "品番", "商品番号", "商品コード", "型番", "管理番号", "商品編號", "商品编号", "商品代碼",
    "商品貨號", "貨號", "货号", "商品編碼", "品號", "商品id", "料號", "상품번호", "상품코드", "품번", "รหัสสินค้า",
    "mã sản phẩm", "mã sp", "kode produk", "رقم المنتج", "رمز المنتج", 'מק"ט', "מקט", "מק״ט", "رقم الصنف", "kodas",
    "prekės kodas", "tootekood", "preces kods", "αρ. προϊόντος", "κωδ", "κωδ. προϊόντος", "cód. ref", "ref. artículo",
    "nº de artículo", "n.º de artículo", "č. artiklu", "číslo zboží", "kód zboží", "symbol produktu", "tuote nro",
    "artikkelnummer", "artikkelnr", "vörunr", "best.-nr", "best.nr", "mã hàng", "รหัส",
)  # fmt: skip

_GTIN_LABELS = (
    "ean", "gtin", "upc", "ean code", "ean-code", "barcode", "ean13", "ean-13", "gtin-13", "isbn", "isbn-13",
    "isbn13", "isbn/ean", "ean/gtin", "gtin/ean", "ean nummer", "ean-nummer", "code ean", "codice ean",
    "código de barras", "code-barres", "код ean", "штрихкод", "штрих-код", "ean kód", "kod ean", "jan", "janコード",
    "strichcode", "vonalkód", "čiarový kód", "čárový kód", "gtin13", "upc code", "ean 13", "ean kod", "código ean",
    "kod kreskowy", "strekkode", "streckkod", "stregkode", "viivakoodi", "barkod", "code barre", "codice a barre",
    "バーコード", "条码", "條碼", "바코드",
)  # fmt: skip

_MPN_LABELS = (
    "mpn", "manufacturer part number", "manufacturer number", "manufacturer's part number", "mfr part number",
    "mfr. part number", "mfg part number", "model number", "item model number", "model no", "model no.", "model code",
    "part number", "part no", "herstellernummer", "hersteller-nr", "hersteller-nummer", "herstellerartikelnummer",
    "modellnummer", "herstellerreferenz", "référence fabricant", "référence constructeur", "numéro de modèle",
    "numéro de pièce", "numéro de pièce fabricant", "numéro du modèle de l'article", "codice produttore",
    "numero modello articolo", "numero modello", "cod. produttore", "código de fabricante", "número de modelo",
    "número de modelo del producto", "referencia del fabricante", "fabrikantnummer", "modelnummer", "kod producenta",
    "kód výrobce", "kód výrobcu", "part no.", "p/n", "pn", "gyártói cikkszám", "cod producator",
    "артикул производителя", "код производителя", "модель", "型番", "型號", "型号", "メーカー型番",
    "item part number", "réf. fabricant", "ref. fabricante", "mfr. no", "mfr no", "mfg part", "model #", "mfr. part no",
    "mfr part no", "oem", "oem number", "oem-nummer", "teilenummer", "produsentnr", "produsentnummer",
    "tillverkarens artikelnummer",
)  # fmt: skip

_BRAND_LABELS = (
    "brand", "brand name", "manufacturer", "by", "sold by brand", "make", "marke", "hersteller", "marque",
    "fabricant", "marca", "produttore", "fabricante", "merk", "fabrikant", "märke", "varumärke", "merke", "mærke",
    "producent", "tuotemerkki", "valmistaja", "marka", "výrobce", "výrobca", "značka", "gyártó", "márka",
    "producător", "proizvajalec", "znamka", "blagovna znamka", "proizvođač", "бренд", "производитель", "марка",
    "торговая марка", "виробник", "производител", "κατασκευαστής", "μάρκα", "üretici", "ブランド", "メーカー", "品牌",
    "廠商", "브랜드", "제조사", "ยี่ห้อ", "แบรนด์", "thương hiệu", "merek", "العلامة التجارية", "الماركة", "מותג",
    "יצרן", "торгова марка", "hersteller / marke", "marke / hersteller", "brand / manufacturer", "tootja", "gamintojas",
    "prekės ženklas", "ražotājs", "zīmols", "vörumerki", "framleiðandi", "fabbricante",
)  # fmt: skip

_NUMBER = re.compile(r"[#№]?\s{0,2}([0-9A-Za-z][\w./+-]{1,40}(?: [\w./-]{2,20}){0,2}?)(?=$|\s|[,;|)(])")
_MARKS = ":#：№.|•–-= \u200e\u200f\u00a0"
_FAR = 400  # runs from the title; a label further away counts little

# Short ambiguous words are weak evidence.
_WEAK = frozenset(
    """id code cod kod код ref réf style symbol model модель art арт by make jan indeks ident rif pn
    anzeige""".split()  # noqa: SIM905
)


def _table() -> dict[str, str]:
    table: dict[str, str] = {}
    for field, labels in (("brand", _BRAND_LABELS), ("mpn", _MPN_LABELS), ("gtin", _GTIN_LABELS), ("sku", _SKU_LABELS)):
        for label in labels:
            table.setdefault(label.casefold().rstrip("."), field)
    return table


_FIELDS = _table()
_HEAD = re.compile(r"[\W_]*([^\W_]+)")
_HEADS = frozenset(head[1] for head in map(_HEAD.match, _FIELDS) if head is not None)
_NUMBER_NAMES = re.compile(
    r"sku|product-?_?(?:code|number|no|ref|id)|cat-?number|(?:item|article|artikel|art)-?_?(?:number|nummer|nr|no|id|code)"
    r"|reference|adno|offer-?id",
    re.IGNORECASE,
)
_BRAND_PAGE = re.compile(
    r"/(?:brands?|marken?|hersteller|marques?|fabricants?|marc(?:a|he|as)|produttori|merken?|manufacturers?|producen\w{1,3}|"
    r"znack[ay]|vyrobc[ei]|brend\w{0,2}|stores?/[^/]{1,60}/page)/[^/]",
    re.IGNORECASE,
)
_STORE = re.compile(
    r"(?:visit|shop|explore|discover) the (?P<en>.{2,40}) (?:brand )?store"
    r"|(?:visiter|découvrir) la boutique (?P<fr>.{2,40})|besuche(?:n sie)? den (?P<de>.{2,40})[- ]store"
    r"|visitar? la tienda (?:de )?(?P<es>.{2,40})|visita lo store (?:di )?(?P<it>.{2,40})"
    r"|visit[ae] a loja (?:d[aeo] )?(?P<pt>.{2,40})",
    re.IGNORECASE,
)
# The start of a link to more of a brand, whose name follows.
_MORE_OF = re.compile(
    r"(?:(?:see|show|view|shop) (?:all|more)|(?:all|more|other) (?:products|items|articles))"
    r" (?:products |items )?(?:from|by|of)(?: the)?(?: brand)?(?: ?:)? "
    r"|(?:mehr|alles?|weitere) (?:artikel |produkte )?(?:von )?(?:der )?marke(?: ?:)? "
    r"|ver (?:mais|más|todos)(?: \w+){0,3} d[ae](?: la)? marca(?: ?:)? "
    r"|voir (?:plus|tous)(?: \w+){0,3} de la marque(?: ?:)? "
    r"|vedi (?:altri|tutti)(?: \w+){0,3} (?:del marchio|della marca)(?: ?:)? ",
    re.IGNORECASE,
)
_SKU_ATTRIBUTES = ("data-sku", "data-product-sku", "data-product_sku", "data-product-code", "data-item-number")
_BRAND_NAMES = re.compile(r"(?<![a-z])(?<!navbar-)brand(?!ing|ed|s)|manufacturer|(?<![a-z])vendor", re.IGNORECASE)
_BARE_NUMBER = re.compile(r"(?:[^\W\d_]{1,20}[\s.:#°№-]{1,4}){0,3}((?=[^\s]*\d)[A-Za-z0-9][\w./-]{2,30})\W{0,2}")
_BEFORE, _AFTER = 40, 160
_MOST_PLACES = 60  # occurrences of one number in the source that are examined
_KEY_BEFORE = re.compile(r"([A-Za-z][\w.:-]{0,40})[\"'\]]{0,2}\s{0,3}[:=]\s{0,3}[\"'\[]{0,2}$")
_SKU_KEY = re.compile(
    r"sku|article|artikel|item-?_?(?:id|no|num|code)|asin|product_?-?(?:code|no|num|id)|prod_?-?id|offer_?-?id"
    r"|listing_?-?id|(?<![a-z])ad_?-?id|goods_?-?id|catentry|^pid$|codart|adno|partnumber",
    re.IGNORECASE,
)
_ID_KEY = re.compile(r"(?:^|[^a-z])id$|Id$|value|content|code|ref", re.IGNORECASE)


def claim_labels(claims: Claims, visible: VisiblePage, identity: PageIdentity) -> int:
    """Claim the values beside labels. Return the number of article numbers near the title."""
    runs = visible.runs
    near = 0
    for at, run in enumerate(runs):
        text = run.text
        if len(text) > 120:
            continue
        head = _HEAD.match(text[:60])
        if head is None or head[1].casefold() not in _HEADS:
            continue
        label, rest, clear = _label_of(text)
        if not label:
            continue
        if not rest:
            rest = next((each.text for each in runs[at + 1 : at + 4] if each.text.strip(_MARKS)), "")
        elif not clear and _FIELDS[label] == "brand":
            continue
        distance = visible.distance(at)
        share = 0.7 if distance is None else 1.0 if 0 <= distance <= 60 else 0.85 if -30 <= distance <= _FAR else 0.5
        place = visible.place(run.element)
        if place & Place.OTHERS or (place & Place.LINK and not clear):
            share *= 0.4
        share *= 0.7 if label in _WEAK else 1.0
        share *= 1.0 if clear else 0.7
        near += _claim_labelled(claims, _FIELDS[label], rest[:80], share, identity, clear=clear)
    return near


def without_label(text: str, field: str) -> str:
    """A value without a label inside it: "Marca: Acme" gives "Acme"."""
    label, rest, clear = _label_of(text)
    clear = clear or (" " not in rest and any(char.isdigit() for char in rest))
    return rest if rest and clear and _FIELDS[label] == field else text


def _label_of(text: str) -> tuple[str, str, bool]:
    """The label at the start of a text ("" without one), the rest, and whether a mark such as ":" separates them."""
    for mark in (":", "：", "#", "№"):
        head, found, rest = text.partition(mark)
        if found:
            label = head.strip(_MARKS + "()").casefold()
            if mark == "#" and f"{label} #" in _FIELDS:
                label = f"{label} #"
            if label in _FIELDS:
                return label, rest.lstrip(_MARKS).rstrip(), True
    if len(text) <= 40 and text.strip(_MARKS).casefold() in _FIELDS:
        return text.strip(_MARKS).casefold(), "", True
    words = text.split(None, 5)
    for count in range(min(4, len(words) - 1), 0, -1):
        label = " ".join(words[:count]).strip(_MARKS).casefold()
        if label in _FIELDS:
            return label, " ".join(words[count:]).strip(_MARKS), False
    return "", "", False


def _claim_labelled(claims: Claims, field: str, rest: str, share: float, identity: PageIdentity, *, clear: bool) -> int:
    if field == "brand":
        rest = rest.strip(_MARKS.replace(".", ""))
        if 2 <= len(rest) <= 40 and (clear or not rest[0].isdigit()) and rest.count(" ") <= 4:
            claims.add("brand", rest, ClaimSource.PAGE, 0.6 * share)
        return 0
    rest = rest.strip(_MARKS)
    match = _NUMBER.match(rest)
    number = match[1].rstrip(".-/") if match is not None else ""
    if not any(char.isdigit() for char in number) or len(number) < 3:
        return 0
    if field == "gtin":
        claims.add("gtin", gtin_of(rest), ClaimSource.PAGE, 0.75 * share)
        return 1 if gtin_of(rest) else 0
    named = identity.names_number(number)
    claims.add(field, number, ClaimSource.PAGE, 0.9 * max(share, 0.8) if named else 0.8 * share)
    return 1 if share > 0.4 else 0


def claim_named(claims: Claims, visible: VisiblePage, identity: PageIdentity) -> int:
    """Claim the texts near the title in elements named for a field: class="sku", class="brand".

    Returns the number of article numbers.
    """
    count = 0
    for at, run in visible.near(_BEFORE, _AFTER):
        text = run.text
        if not 2 <= len(text) <= 50:
            continue
        called = _field_named(names_of(run.element))
        store = _STORE.fullmatch(text)
        if store is not None or (not called and _leads_to_brand(run.element)):
            called, text = "brand", brand_in_link(text)
        if not called or visible.place(run.element) & Place.OTHERS or visible.of_another(run.element):
            continue
        if called == "brand":
            distance = visible.distance(at)
            close = distance is not None and -8 <= distance <= 30
            if close and len(text) <= 30 and text.casefold() not in _FIELDS and text.count(" ") <= 3:
                claims.add("brand", plain_text(text), ClaimSource.PAGE, 0.45)
            continue
        match = _BARE_NUMBER.fullmatch(text)
        if match is not None:
            claims.add("sku", match[1], ClaimSource.PAGE, 0.85 if identity.names_number(match[1]) else 0.7)
            count += 1
    return count


def brand_in_link(text: str) -> str:
    """The brand in the text of a link to its store or to more of it; any other text as it is."""
    store = _STORE.fullmatch(text)
    if store is not None:
        return next(name for name in store.groups() if name)
    more = _MORE_OF.match(text)
    return text[more.end() :].strip() if more is not None else text


def _leads_to_brand(element: Element) -> bool:
    """True for the text of a link to the page of a brand."""
    link = element if element.tag == "a" else element.parent
    href = link.attr("href") if isinstance(link, Element) and link.tag == "a" else None
    return href is not None and _BRAND_PAGE.search(href[:300]) is not None


def claim_attributes(claims: Claims, visible: VisiblePage) -> None:
    """Claim the number in the attributes of the page's own buttons and boxes, if there is only one."""
    numbers: set[str] = set()
    for element in visible.tree.select(", ".join(f"[{name}]" for name in _SKU_ATTRIBUTES))[:_MOST_PLACES]:
        if not visible.place(element) & Place.OTHERS and not visible.of_another(element):
            values = (element.attr(name) or "" for name in _SKU_ATTRIBUTES)
            numbers |= {value.strip() for value in values if looks_like_number(value.strip())}
    if len(numbers) == 1:
        claims.add("sku", numbers.pop(), ClaimSource.PAGE, 0.6)


@lru_cache(maxsize=4096)
def _field_named(names: str) -> str:
    """The field that an element with these names holds; "" for other names."""
    return "sku" if _NUMBER_NAMES.search(names) else "brand" if _BRAND_NAMES.search(names) else ""


def claim_address(claims: Claims, identity: PageIdentity, source: bytes) -> int:
    """Claim the numbers in the address, with more confidence if the page uses them under a telling name. Return their
    count.

    `source` is the body of the page: the numbers are ASCII, so there is no need to decode it.
    """
    confirmed = 0
    for rank, number in enumerate(identity.numbers[:6]):
        telling = plain = 0
        wanted = number.encode()
        at = -1
        for _ in range(_MOST_PLACES):
            at = source.find(wanted, at + 1)
            if at < 0:
                break
            end = at + len(wanted)
            if source[end : end + 1].isalnum():
                continue
            key = _KEY_BEFORE.search(source[max(0, at - 50) : at].decode("ascii", "replace"))
            if key is None:
                continue
            if _SKU_KEY.search(key[1]):
                telling += 1
            elif _ID_KEY.search(key[1]):
                plain += 1
        sure = 0.62 if telling >= 2 else 0.55 if telling else 0.4 if plain >= 2 else 0.3 if plain else 0.15
        confirmed += telling > 0
        claims.add("sku", number, ClaimSource.ADDRESS, sure - 0.02 * rank)
        if telling >= 2:
            break  # the other numbers are less likely
    return confirmed


def gtin_of(text: str) -> str:
    """The digits of a GTIN, EAN, UPC or ISBN-13; "" for a text of another length or with a wrong check digit."""
    digits = "".join(char for char in text[:40] if char.isascii() and char.isdigit())
    if len(digits) not in (8, 12, 13, 14) or not digits.strip("0"):
        return ""
    weighted = sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(reversed(digits)))
    return digits if weighted % 10 == 0 else ""
