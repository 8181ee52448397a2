"""The currencies of the world and the signs they are written with. Data only."""

from __future__ import annotations

CODES = frozenset(
    """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD
    CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF
    GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK
    LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD
    OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN
    SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XOF XPF
    YER ZAR ZMW ZWL
    """.split()  # noqa: SIM905 - one code per word reads better
)  # fmt: skip

# Codes that shops also write in lower case, and that are not words of a language.
SMALL_CODES = frozenset("usd eur gbp chf nzd sek nok dkk pln czk huf jpy cny inr brl mkd".split())  # noqa: SIM905

# Currencies with three decimals: "1.250" is one and a quarter.
THREE_DECIMALS = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})

# Currencies without decimals: in "250.000" the point separates thousands.
NO_DECIMALS = frozenset("CLP COP HUF IDR ISK JPY KRW LAK PYG UGX VND XAF XOF XPF".split())  # noqa: SIM905

SIGNS = {
    # Dollars and pesos
    "US$": "USD", "US $": "USD", "U$S": "USD", "A$": "AUD", "AU$": "AUD", "AU $": "AUD", "C$": "CAD", "CA$": "CAD",
    "CAN$": "CAD", "CDN$": "CAD", "NZ$": "NZD", "NZ $": "NZD", "HK$": "HKD", "S$": "SGD", "SG$": "SGD",
    "NT$": "TWD", "NT": "TWD", "MX$": "MXN", "AR$": "ARS", "CL$": "CLP", "COL$": "COP", "RD$": "DOP", "TT$": "TTD",
    "BZ$": "BZD", "G$": "GYD", "GY$": "GYD", "J$": "JMD", "N$": "NAD", "$U": "UYU", "$b": "BOB", "Bs": "BOB",
    "S/": "PEN", "S/.": "PEN", "R$": "BRL", "$": "USD", "＄": "USD",
    # Europe
    "€": "EUR", "Euro": "EUR", "euro": "EUR", "euros": "EUR", "Euros": "EUR", "£": "GBP", "￡": "GBP", "zł": "PLN",
    "Zł": "PLN", "ZŁ": "PLN", "zl": "PLN", "Kč": "CZK", "KČ": "CZK", "Ft": "HUF", "lei": "RON", "Lei": "RON",
    "LEI": "RON", "лв": "BGN", "лв.": "BGN", "Fr.": "CHF", "SFr.": "CHF", "SFr": "CHF", "sFr.": "CHF", "CHf": "CHF",
    "kr.": "kr", "kr": "kr", "Kr": "kr", "KR": "kr", "Kr.": "kr", "ден": "MKD", "ден.": "MKD", "дин": "RSD",
    "дин.": "RSD", "din": "RSD", "din.": "RSD",
    # Turkey, Russia and its neighbours
    "₺": "TRY", "TL": "TRY", "₽": "RUB", "руб": "RUB", "руб.": "RUB", "р.": "RUB", "₴": "UAH", "грн": "UAH",
    "грн.": "UAH", "hrn": "UAH", "₸": "KZT", "тг": "KZT", "тг.": "KZT", "тңг": "KZT", "₼": "AZN", "₾": "GEL",
    "ლარი": "GEL", "lari": "GEL", "֏": "AMD", "so'm": "UZS", "сум": "UZS",
    # Asia
    "¥": "JPY", "￥": "JPY", "円": "JPY", "yen": "JPY", "CN¥": "CNY", "元": "CNY", "圓": "TWD", "圆": "CNY",
    "人民币": "CNY", "yuan": "CNY", "RMB": "CNY", "₹": "INR", "Rs.": "INR", "Rs": "INR", "₨": "PKR", "৳": "BDT",
    "රු": "LKR", "ரூ": "LKR", "₩": "KRW", "원": "KRW", "₫": "VND", "đ": "VND", "VNĐ": "VND", "฿": "THB", "บาท": "THB",
    "₱": "PHP", "Rp": "IDR", "RM": "MYR", "₮": "MNT", "₭": "LAK", "៛": "KHR",
    # The Middle East and Africa
    "₪": "ILS", 'ש"ח': "ILS", "ש״ח": "ILS", "ש'ח": "ILS", "NIS": "ILS", "nis": "ILS", "د.إ": "AED", "درهم": "AED",
    "Dhs": "AED", "ر.س": "SAR", "ر.س.": "SAR", "ر.ق": "QAR", "ر.ع": "OMR", "ر.ع.": "OMR", "د.ك": "KWD", "KD": "KWD",
    "دينار كويتي": "KWD", "د.ب": "BHD", ".د.ب": "BHD", "BD": "BHD", "د.أ": "JOD", "د.ا": "JOD", "دينار أردني": "JOD",
    "JD": "JOD", "ج.م": "EGP", "E£": "EGP", "LE": "EGP", "ل.ل": "LBP", "ل.س": "SYP", "ع.د": "IQD", "د.ع": "IQD",
    "ل.د": "LYD", "د.ل": "LYD", "د.ت": "TND", "DT": "TND", "د.م": "MAD", "د.م.": "MAD", "Dh": "MAD", "د.ج": "DZD",
    "دج": "DZD", "DA": "DZD", "ج.س": "SDG", "ج.س.": "SDG", "ر.ي": "YER", "تومان": "تومان", "ريال": "ريال",
    "₦": "NGN", "₵": "GHS", "GH₵": "GHS", "KSh": "KES", "KShs": "KES", "Ksh": "KES", "TSh": "TZS", "USh": "UGX",
    "ብር": "ETB", "R": "ZAR", "FCFA": "XOF", "CFA": "XOF", "MT": "MZN", "Ar": "MGA",
}  # fmt: skip

# Too short to be trusted before a number; reliable after one.
AFTER_ONLY = frozenset({"NT", "din", "din.", "nis", "LE", "DA", "DT", "MT", "Ar", "сум", "р."})

# Signs that several currencies share: for these the caller's currency takes precedence over the one in SIGNS.
_DOLLARS = (
    "USD AUD CAD NZD HKD SGD TWD MXN ARS CLP COP UYU DOP BBD BMD BND BSD BZD FJD GYD JMD KYD LRD NAD SBD SRD TTD XCD"
    " BRL CVE MOP NIO"
)
_CROWNS = "SEK NOK DKK ISK CZK"
SHARED = {
    "$": _DOLLARS, "＄": _DOLLARS, "¥": "JPY CNY", "￥": "JPY CNY", "元": "CNY TWD HKD",
    "£": "GBP EGP LBP SYP GIP FKP SHP SDG SSP",
    "kr": _CROWNS, "kr.": _CROWNS, "Kr": _CROWNS, "Kr.": _CROWNS, "KR": _CROWNS,
    "Rs": "INR PKR LKR NPR MUR SCR", "Rs.": "INR PKR LKR NPR MUR SCR", "₨": "PKR INR LKR NPR MUR SCR",
    "R": "ZAR", "din": "RSD", "din.": "RSD", "lei": "RON MDL", "Lei": "RON MDL", "LEI": "RON MDL",
    "ريال": "SAR IRR QAR OMR YER", "درهم": "AED MAD", "Dh": "MAD AED", "Dhs": "AED MAD", "C$": "CAD NIO",
    "Bs": "BOB VES", "FCFA": "XOF XAF", "CFA": "XOF XAF",
}  # fmt: skip
