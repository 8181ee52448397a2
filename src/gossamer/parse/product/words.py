"""The words by which shops of many languages say what a value is. Data and the patterns made of it.

They are matched against short texts, in small letters. A language is added by adding its words.
"""

from __future__ import annotations

import re

# "Item number" and its kin: what follows is the shop's number of the article.
SKU_LABELS = (
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
    "prekės kodas", "tootekood", "preces kods",
)  # fmt: skip

GTIN_LABELS = (
    "ean", "gtin", "upc", "ean code", "ean-code", "barcode", "ean13", "ean-13", "gtin-13", "isbn", "isbn-13",
    "isbn13", "isbn/ean", "ean/gtin", "gtin/ean", "ean nummer", "ean-nummer", "code ean", "codice ean",
    "código de barras", "code-barres", "код ean", "штрихкод", "штрих-код", "ean kód", "kod ean", "jan", "janコード",
    "strichcode", "vonalkód", "čiarový kód", "čárový kód", "gtin13", "upc code",
)  # fmt: skip

MPN_LABELS = (
    "mpn", "manufacturer part number", "manufacturer number", "manufacturer's part number", "mfr part number",
    "mfr. part number", "mfg part number", "model number", "item model number", "model no", "model no.", "model code",
    "part number", "part no", "herstellernummer", "hersteller-nr", "hersteller-nummer", "herstellerartikelnummer",
    "modellnummer", "herstellerreferenz", "référence fabricant", "référence constructeur", "numéro de modèle",
    "numéro de pièce", "numéro de pièce fabricant", "numéro du modèle de l'article", "codice produttore",
    "numero modello articolo", "numero modello", "cod. produttore", "código de fabricante", "número de modelo",
    "número de modelo del producto", "referencia del fabricante", "fabrikantnummer", "modelnummer", "kod producenta",
    "kód výrobce", "kód výrobcu", "part no.", "p/n", "pn", "gyártói cikkszám", "cod producator",
    "артикул производителя", "код производителя", "модель", "型番", "型號", "型号", "メーカー型番",
    "item part number",
)  # fmt: skip

BRAND_LABELS = (
    "brand", "brand name", "manufacturer", "by", "sold by brand", "make", "marke", "hersteller", "marque",
    "fabricant", "marca", "produttore", "fabricante", "merk", "fabrikant", "märke", "varumärke", "merke", "mærke",
    "producent", "tuotemerkki", "valmistaja", "marka", "výrobce", "výrobca", "značka", "gyártó", "márka",
    "producător", "proizvajalec", "znamka", "blagovna znamka", "proizvođač", "бренд", "производитель", "марка",
    "торговая марка", "виробник", "производител", "κατασκευαστής", "μάρκα", "üretici", "ブランド", "メーカー", "品牌",
    "廠商", "브랜드", "제조사", "ยี่ห้อ", "แบรนด์", "thương hiệu", "merek", "العلامة التجارية", "الماركة", "מותג",
    "יצרן",
)  # fmt: skip

BUY_WORDS = (
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
)  # fmt: skip

IN_STOCK_WORDS = (
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

OUT_OF_STOCK_WORDS = (
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
)  # fmt: skip

BACK_ORDER_WORDS = (
    "backordered", "back-ordered", "back ordered", "on backorder", "on back-order", "on back order", "backorder",
    "back-order", "available on backorder", "nachbestellt", "in nachlieferung", "en réapprovisionnement",
    "in riassortimento", "in nabestelling",
)  # fmt: skip

PRE_ORDER_WORDS = (
    "pre-order", "preorder", "vorbestellen", "vorbestellbar", "précommander", "précommande", "preordina", "preordine",
    "pré-venda", "przedsprzedaż", "předobjednávka", "predobjednávka", "предзаказ", "予約受付中", "預購", "预购",
)  # fmt: skip

# Texts beside a number that is no price of this product now.
NOT_THE_PRICE = re.compile(
    # sending
    r"shipping|delivery|postage|versand|liefer|livraison|spedizion|envío|envio|verzend|frakt|doprav|dostaw|доставк|kargo|運費|운송|"
    # parts of it, month by month
    r"per month|/month|/mo\b|monthly|monat|par mois|al mes|al mese|/ ?mes\b|měsíčně|mesačne|miesięcznie|в месяц|мес\.|"
    r"installment|instalment|rate[n ]|mensualit|cuotas|splátk|рассрочк|кредит|分期|每期|期|juros|parcelas|"
    r"(?<![\d.,])\d{1,2} ?[x×] ?(?:(?:de|of|à|a|von|di|за|po) )?(?=[^\W\d_]{0,3}[$€£¥]|\d+[.,]\d\d)|"
    r"payments? of|pay in \d|interest.free|sans frais|senza interessi|sin intereses|"
    # what is saved
    r"save|you save|sparen|ersparnis|économi|risparmi|ahorra|poupa|oszczęd|ušetř|ušetrí|экономия|скидка|現省|"
    # what it was, or should be
    r"rrp|uvp|msrp|was |list price|statt|instead of|prezzo consigliato|precio recomendado|listenpreis|prix conseillé|"
    r"old price|regular price|původní|pôvodn|stara cena|redna cena|старая цена|原價|定價|市價|建議售價|"
    # what one gets, or needs
    r"cashback|voucher|gift card|bonus|bonn?i|points|over |from orders|minimum|off\b|deposit|"
    # without tax
    r"ohne mwst|bez dph|brez ddv|bez pdv|bez vat|excl|ex\.? vat|without vat|netto|hors taxe|\bht\b|iva esclusa|без ндс",
    re.IGNORECASE,
)

# What is written before a price that counts no more, and before the one that counts.
OLD_PRICE = re.compile(
    r"(?<!\w)(?:was|were|rrp|r\.r\.p|msrp|uvp|list price|regular price|old price|original price|retail price|before|"
    r"instead of|statt|bisher|früher|vorher|war|ehemals|au lieu de|ancien prix|avant|prix conseillé|prezzo di listino|"
    r"anziché|invece di|prima|era|antes|precio anterior|en lugar de|em vez de|van|normaal|ordinarie pris|"
    r"ord\. pris|før|förr|tidigare|norm\. ?pris|cena regularna|zamiast|było|poprzednia cena|najniższa cena|"
    r"původní cena|původně|pôvodná cena|pôvodne|místo|eredeti ár|helyett|preț vechi|în loc de|redna cena|stara cena|"
    r"старая цена|было|вместо|стара ціна|замість|стара цена|αρχική τιμή|eski fiyat|yerine)(?!\w)"
    r"|定価|通常価格|原價|原价|定價|市價|市价|建議售價|정가",
    re.IGNORECASE,
)
NEW_PRICE = re.compile(
    r"(?<!\w)(?:now|only|our price|sale price|special price|your price|today|nur|jetzt|nun|aktuell|unser preis|"
    r"maintenant|désormais|seulement|ora|adesso|solo|oggi|ahora|hoy|sólo|agora|apenas|por|voor|nu|endast|kun|nyt|teraz|"
    r"tylko|nyní|teď|teraz|jen|most|csak|acum|doar|sedaj|samo|sada|сейчас|теперь|только|зараз|тепер|лише|сега|само|"
    r"τώρα|μόνο|şimdi|sadece)(?!\w)|特價|特价|優惠價|現在價格|セール価格|今なら|할인가",
    re.IGNORECASE,
)

UNIT_PRICE = re.compile(
    r"^\s{0,3}(?:/|per |pro |je |par |al |por |za )\s{0,3}(?:\d{1,4}\s{0,2})?"
    r"(?:kg|g|l|ml|cl|m|m²|m2|cm|100|unit|each|stück|stk|litre|liter|kilo|unité|кг|л|шт|oz|lb|sheet|count|wash)\b",
    re.IGNORECASE,
)
