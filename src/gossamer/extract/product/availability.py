"""`Availability`: whether a product can be bought, according to structured data and to the page's words, buttons and
forms.

Phrases in many languages are matched against short texts in lower case. To add a language, add its phrases.
"""

from __future__ import annotations

import re
from enum import StrEnum

from turbohtml import Document, Element

from .claims import Claim, Claims, ClaimSource
from .visible_page import Place, VisiblePage, names_of, text_of, with_parents


class Availability(StrEnum):
    """Whether a product can be bought, in the terms of schema.org."""

    IN_STOCK = "InStock"
    OUT_OF_STOCK = "OutOfStock"
    PRE_ORDER = "PreOrder"
    PRE_SALE = "PreSale"
    BACK_ORDER = "BackOrder"
    LIMITED = "LimitedAvailability"
    SOLD_OUT = "SoldOut"
    DISCONTINUED = "Discontinued"
    IN_STORE_ONLY = "InStoreOnly"
    ONLINE_ONLY = "OnlineOnly"
    MADE_TO_ORDER = "MadeToOrder"
    RESERVED = "Reserved"


_BUY_WORDS = frozenset((
    "add to cart", "add to basket", "add to bag", "add to trolley", "add to shopping bag", "add to shopping cart",
    "buy now", "buy it now", "buy", "order now", "pre-order", "preorder", "add", "purchase", "buy tickets",
    "in den warenkorb", "in den einkaufswagen", "in die einkaufstasche", "in den warenkorb legen", "kaufen",
    "jetzt kaufen", "sofort-kaufen", "zum warenkorb hinzufügen", "bestellen", "ajouter au panier", "acheter",
    "achat immédiat", "acheter maintenant", "commander", "aggiungi al carrello", "acquista", "acquista ora",
    "compralo subito", "compra", "compra ora", "aggiungi alla borsa", "añadir al carrito", "agregar al carrito",
    "añadir a la cesta", "comprar", "comprar ahora", "añadir al carro", "¡cómpralo ya!", "adicionar ao carrinho",
    "comprar agora", "adicionar ao cesto", "adicionar", "in winkelwagen", "in winkelmand", "bestel", "koop nu",
    "toevoegen aan winkelwagen", "lägg i varukorgen", "lägg i varukorg", "köp", "legg i handlekurv", "kjøp",
    "læg i kurv", "køb", "lisää ostoskoriin", "osta", "do koszyka", "dodaj do koszyka", "kup teraz", "kup",
    "do košíku", "do košíka", "přidat do košíku", "pridať do košíka", "vložit do košíku", "vložiť do košíka",
    "koupit", "kúpiť", "kosárba", "kosárba teszem", "adauga in cos", "adaugă în coș", "adaugă în coş", "cumpără",
    "v košarico", "dodaj v košarico", "naroči", "kupi zdaj", "dodaj u košaricu", "u košaricu", "kupi",
    "dodaj u korpu", "купить", "в корзину", "добавить в корзину", "купить сейчас", "заказать", "купити", "до кошика",
    "добави в количката", "купи", "себетке салу", "προσθήκη στο καλάθι", "αγορά", "sepete ekle", "satın al",
    "hemen al", "カートに入れる", "カートに追加", "かごに追加", "買い物かごに入れる", "今すぐ買う", "購入する",
    "加入購物車", "加入购物车", "放入購物車", "立即購買", "立即购买", "直接購買", "我要購買", "馬上買", "장바구니",
    "장바구니 담기", "구매하기", "바로구매", "เพิ่มลงตะกร้า", "ซื้อเลย", "หยิบใส่ตะกร้า", "thêm vào giỏ",
    "thêm vào giỏ hàng", "mua ngay", "tambah ke keranjang", "beli sekarang", "أضف إلى السلة", "أضف للسلة",
    "اشتر الآن", "הוסף לסל", "הוספה לסל", "į krepšelį", "lisa korvi", "ielikt grozā",
))  # fmt: skip

_IN_STOCK_WORDS = (
    "in stock", "available now", "available to order", "available online", "ready to ship", "ships in",
    "left in stock", "available for delivery", "usually dispatched", "usually ships", "instock", "auf lager",
    "sofort lieferbar", "lieferbar", "vorrätig", "verfügbar", "sofort verfügbar", "lagernd", "en stock", "disponible",
    "disponibile", "disponibilità immediata", "disponível", "em stock", "em estoque", "op voorraad", "leverbaar",
    "i lager", "på lager", "varastossa", "heti saatavilla", "w magazynie", "dostępny", "skladem", "skladom",
    "na sklade", "na skladě", "dostupné", "raktáron", "készleten", "în stoc", "in stoc", "na zalogi", "na voljo",
    "na lageru", "dostupno", "na stanju", "в наличии", "есть в наличии", "в наявності", "в наличност", "налично",
    "διαθέσιμο", "σε απόθεμα", "stokta", "stokta var", "在庫あり", "有現貨", "現貨", "有货", "现货", "재고 있음",
    "มีสินค้า", "còn hàng", "stok tersedia", "متوفر", "במלאי", "yra sandėlyje", "ir noliktavā",
)  # fmt: skip

_OUT_OF_STOCK_WORDS = (
    "out of stock", "currently unavailable", "temporarily out of stock", "sold out", "no longer available",
    "not available", "unavailable", "item has ended", "listing has ended", "temporarily unavailable",
    "not currently available", "outofstock", "discontinued", "nicht auf lager", "ausverkauft",
    "derzeit nicht verfügbar", "nicht verfügbar", "nicht lieferbar", "vergriffen", "momentan nicht verfügbar",
    "zurzeit nicht verfügbar", "nicht vorrätig", "nicht mehr verfügbar", "rupture de stock", "en rupture", "épuisé",
    "actuellement indisponible", "indisponible", "non disponible", "esaurito", "non disponibile",
    "attualmente non disponibile", "agotado", "no disponible", "sin stock", "fuera de stock",
    "actualmente no disponible", "esgotado", "indisponível", "sem stock", "fora de estoque", "niet op voorraad",
    "uitverkocht", "niet leverbaar", "momenteel niet verkrijgbaar", "slutsåld", "slut i lager", "ej i lager",
    "för närvarande inte tillgänglig", "utsolgt", "ikke på lager", "udsolgt", "loppu", "loppuunmyyty",
    "ei varastossa", "niedostępny", "brak w magazynie", "wyprzedany", "produkt niedostępny", "vyprodáno", "vypredané",
    "není skladem", "nie je skladom", "nedostupné", "nincs raktáron", "elfogyott", "stoc epuizat", "indisponibil",
    "ni na zalogi", "razprodano", "nije dostupno", "rasprodano", "nema na stanju", "нет в наличии", "распродано",
    "товар закончился", "нет на складе", "снят с продажи", "немає в наявності", "изчерпан", "няма наличност",
    "εξαντλημένο", "μη διαθέσιμο", "tükendi", "stokta yok", "在庫切れ", "品切れ", "売り切れ", "現在在庫切れです",
    "缺貨", "已售完", "售完", "售罄", "缺货", "補貨中", "完売", "품절", "일시품절", "สินค้าหมด", "hết hàng",
    "stok habis", "غير متوفر", "نفذ", "אזל מהמלאי", "לא במלאי", "išparduota", "läbi müüdud", "nav noliktavā",
    "not in stock", "no stock", "no longer in stock", "momentan nicht lieferbar", "zurzeit nicht lieferbar",
    "derzeit nicht lieferbar", "nicht mehr lieferbar", "kein bestand", "plus en stock", "pas en stock",
    "plus disponible", "hors stock", "en rupture de stock", "non in stock", "prodotto terminato", "sin existencias",
    "sin inventario", "no hay stock", "no hay existencias", "agotada", "sem estoque", "não disponível", "esgotada",
    "niet beschikbaar", "niet meer leverbaar", "niet in voorraad", "inte i lager", "ikke tilgjengelig",
    "ikke tilgængelig", "tilfälligt slut", "ei saatavilla", "tilapäisesti loppu", "nie ma na składzie",
    "nie ma w magazynie", "brak na składzie", "brak towaru", "chwilowo niedostępny", "niedostępna", "niedostępne",
    "není na skladě", "nie je na sklade", "momentálně nedostupné", "momentálne nedostupné", "nedostupný",
    "nem elérhető", "nincs készleten", "nu este in stoc", "nu este în stoc", "nema na lageru", "nije na stanju",
    "nije na lageru", "nedostupno", "trenutno nedostupno", "нету в наличии", "товар отсутствует", "нет в продаже",
    "временно отсутствует", "нема в наявності", "немає на складі", "нема на складі", "товар відсутній",
    "товар закінчився", "розпродано", "няма в наличност", "не е в наличност", "εκτός αποθέματος", "μη διαθέσιμος",
    "δεν είναι διαθέσιμο", "stokta bulunmuyor", "stokta bulunmamaktadır", "tükenmiştir", "在庫なし", "在庫がありません",
    "在庫無し", "在庫はありません", "入荷待ち", "売切れ", "売切", "無貨", "无货", "没有库存", "沒有庫存",
    "暫無庫存", "暂无库存", "暂时缺货", "暫時缺貨", "已售罄", "已售空", "재고 없음", "재고없음", "일시 품절",
    "หมดสต็อก", "tạm hết hàng", "stok kosong", "غير متاح", "نفدت الكمية", "نفذت الكمية", "غير متوفر حاليا", "נגמר במלאי",
    "נגמר המלאי", "אזל המלאי", "אזל במלאי", "אזל", "חסר במלאי", "אין במלאי", "לא זמין", "nėra sandėlyje", "pole laos",
    "wyprzedane", "wyprzedana", "notify me when", "email me when", "tell me when", "when back in stock",
    "sobald verfügbar", "sobald der artikel verfügbar", "wenn wieder verfügbar", "m'alerter", "prévenez-moi",
    "être alerté", "avísame", "avisarme", "avvisami", "avise-me", "powiadom o dostępności", "hlídat dostupnost",
    "strážiť dostupnosť", "сообщить о поступлении", "уведомить о поступлении", "再入荷お知らせ", "再入荷通知",
    "到貨通知", "到货通知", "재입고 알림",
)  # fmt: skip

_BACK_ORDER_WORDS = (
    "backordered", "back-ordered", "back ordered", "on backorder", "on back-order", "on back order", "backorder",
    "back-order", "available on backorder", "nachbestellt", "in nachlieferung", "en réapprovisionnement",
    "in riassortimento", "in nabestelling",
)  # fmt: skip

_PRE_ORDER_WORDS = (
    "pre-order", "preorder", "vorbestellen", "vorbestellbar", "précommander", "précommande", "preordina", "preordine",
    "pré-venda", "przedsprzedaż", "předobjednávka", "predobjednávka", "предзаказ", "予約受付中", "預購", "预购",
)  # fmt: skip

_STATED = {each.value.lower(): each for each in Availability} | {
    "oos": Availability.OUT_OF_STOCK,
    "outstock": Availability.OUT_OF_STOCK,
    "available": Availability.IN_STOCK,
    "instockonline": Availability.IN_STOCK,
    "availablefororder": Availability.BACK_ORDER,
    "limitedstock": Availability.LIMITED,
    "true": Availability.IN_STOCK,
    "backordered": Availability.BACK_ORDER,
    "onbackorder": Availability.BACK_ORDER,
    "pending": Availability.PRE_ORDER,
}
# Which statements in data each visible statement contradicts.
_TO_BE_HAD = frozenset((Availability.IN_STOCK, Availability.LIMITED, Availability.ONLINE_ONLY))
_CONTRADICTED: dict[Availability, frozenset[Availability]] = {
    Availability.OUT_OF_STOCK: _TO_BE_HAD,
    Availability.IN_STOCK: frozenset((Availability.OUT_OF_STOCK, Availability.SOLD_OUT)),
}
_LAST = re.compile(r"[^/#:]*$")
_MARKS = re.compile(r"[\W_]+")
_CART = re.compile(
    r"cart|basket|buy|bag(?![a-z])|koszyk|kosik|panier|warenkorb|carrello|carrito|trolley|purchase|(?<!b)order|checkout|korzin|bask|acheter|kaufen",
    re.IGNORECASE,
)
_FORMS = (
    'form[action*="cart" i], form[action*="basket" i], form[action*="checkout" i], form[id*="addtocart" i], '
    'form[id*="add-to-cart" i], button[id*="cart" i], button[name*="cart" i], button[class*="cart" i], '
    'button[class*="buy" i], button[class*="basket" i], input[id*="add-to-cart" i], input[name*="add-to-cart" i], '
    '[id*="buybox" i] input[type="submit"], a[class*="add-to-cart" i], a[class*="addtocart" i]'
)
_NOT_A_BUY_FORM = re.compile(r"mini|header|nav|search|view", re.IGNORECASE)
_STOCK = '[class*="stock" i], [id*="stock" i], [class*="availab" i], [id*="availab" i], [itemprop="availability"]'
_MOST = 120  # buttons, forms or elements about stock that are examined


_QUESTION = re.compile(r"[?？؟]")


def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(re.escape(word) for word in sorted(words, key=len, reverse=True))})(?!\w)")


# Such a word may be followed by the only thing that is unavailable: "not available for collection".
_OUT = re.compile(rf"{_pattern(_OUT_OF_STOCK_WORDS).pattern}(?! (?:for|at|on your|in your)(?!\w))")
_IN = _pattern(_IN_STOCK_WORDS)
_PRE = _pattern(_PRE_ORDER_WORDS)
_BACK = _pattern(_BACK_ORDER_WORDS)
# Words that negate or qualify: "not in stock", "if available", "check availability".
_DOUBT = re.compile(
    r"(?<!\w)(?:not|no|nicht|non|pas|niet|ikke|inte|nie|není|ni|не|нет|when|if|once|notify|email|falls|sobald|wenn|"
    r"quando|lorsque|cuando|show|only show|filter|check|where|kein|keine|brak|nincs|nem|"
    r"nema|nije|ne|ei|ej|yok|нема|немає|нету|няма|відсутн\w{0,4}|отсутств\w{0,5}|δεν|μη|tidak|không|غير|ليس|לא|אין|נגמר|אזל|"
    r"חסר|pole|nėra|nav)(?!\w)"
)
# "0 in stock", "Stock: 0".
_NONE_LEFT = re.compile(
    r"(?<![\d.,])0 (?:in stock|left|available|auf lager|verfügbar|en stock|disponib\w{1,5}|op voorraad|i lager)"
    r"|(?:stock|lager|bestand|voorraad|disponibilità|existencias|varasto|остаток|在庫|库存|庫存|재고)\s?[:：]\s?0(?![\d.,])"
)
_NOT_IN = re.compile(r"n['’]t (?:\w{1,10} )?(?:in stock|available)(?!\w)")


def availability_of(text: str) -> Availability | None:
    """Parse a stated availability: a schema.org URL, a feed keyword, or words of a language."""
    text = text.strip()[:200]
    if not text:
        return None
    known = _STATED.get(_MARKS.sub("", (_LAST.search(text.rstrip("/")) or [""])[0]).lower())
    return known or spoken_availability(text)


def spoken_availability(text: str) -> Availability | None:
    """The availability that a short text expresses, or None."""
    text = text.casefold()
    if _QUESTION.search(text):
        return None  # "Sold out? Tell us your size" does not say that it is sold out
    if _OUT.search(text) or _NOT_IN.search(text) or _NONE_LEFT.search(text):
        return Availability.OUT_OF_STOCK
    if _BACK.search(text):
        return Availability.BACK_ORDER
    if _PRE.search(text):
        return Availability.PRE_ORDER
    if _IN.search(text) and not _DOUBT.search(text):
        return Availability.IN_STOCK
    return None


def buy_buttons(visible: VisiblePage) -> list[int]:
    """The indices of text runs in buy buttons, without those of other products."""
    found: list[int] = []
    for at, run in enumerate(visible.runs):
        text = run.text
        if len(text) > 30 or text.casefold().rstrip("!. ") not in _BUY_WORDS:
            continue
        if _pressable(run.element) and not visible.place(run.element) & Place.OTHERS:
            found.append(at)
            if len(found) >= _MOST:
                break
    return found


def has_buy_form(tree: Document) -> bool:
    """True if the page has a form or a button that adds to a cart."""
    return any(not _NOT_A_BUY_FORM.search(names_of(element)) for element in tree.select(_FORMS)[:_MOST])


def claim_stock(claims: Claims, visible: VisiblePage, *, button: bool, form: bool, has_price: bool) -> bool:
    """Claim the availability on the visible page. True if a text states it.

    A visible button is better evidence than a form, which some shops leave in the page after selling out. Data that the
    page contradicts is stale: the visible words win if the button agrees with them.
    """
    said = _from_stock_elements(visible) or _from_texts(visible)
    gone = said is not None and said[0] is Availability.OUT_OF_STOCK
    if said is not None and button != gone:
        _distrust(claims, _CONTRADICTED.get(said[0], frozenset()))
    if said is not None:
        claims.add("availability", said[0], ClaimSource.PAGE, said[1] * (0.75 if gone and button else 1.0))
    if button or form:
        claims.add("availability", Availability.IN_STOCK, ClaimSource.PAGE, 0.5 if button else 0.2 if gone else 0.4)
    elif has_price and not gone:
        claims.add("availability", Availability.IN_STOCK, ClaimSource.PAGE, 0.3)
    return said is not None


def _distrust(claims: Claims, stated: frozenset[Availability]) -> None:
    claims.revise(
        "availability", lambda one: Claim(one.value, one.source, one.confidence * (0.3 if one.value in stated else 1.0))
    )


def _from_stock_elements(visible: VisiblePage) -> tuple[Availability, float] | None:
    found: Availability | None = None
    for element in visible.tree.select(_STOCK)[:_MOST]:
        place = visible.place(element)
        if place & (Place.OTHERS | Place.HIDDEN) or element.tag in ("body", "html", "script", "option", "label"):
            continue
        text = text_of(element, 200)
        if not 2 < len(text) <= 160:
            continue
        value = spoken_availability(text)
        if value is Availability.OUT_OF_STOCK:
            # A sold-out size is one of a list of sizes; the product's own notice stands alone.
            if place & Place.LIST or element.tag in ("li", "button", "input"):
                continue
            return value, 0.6
        found = found or value
    return (found, 0.6) if found is not None else None


def _from_texts(visible: VisiblePage) -> tuple[Availability, float] | None:
    for at, run in enumerate(visible.runs):
        distance = visible.distance(at)
        if distance is None or distance < -20 or distance > 160 or len(run.text) > 60:
            continue
        value = spoken_availability(run.text)
        if value is None:
            continue
        if visible.place(run.element) & (Place.OTHERS | Place.HIDDEN | Place.LIST | Place.LINK):
            continue
        return value, 0.5 if distance <= 60 else 0.4
    return None


def _pressable(element: Element) -> bool:
    return any(
        each.tag in ("button", "a", "input", "label") or _CART.search(names_of(each))
        for each in with_parents(element, 4)
    )
