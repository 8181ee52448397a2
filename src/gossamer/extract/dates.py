"""Dates as the web writes them. Machine forms first: ISO 8601 in its many spellings, RFC 822 with all its misspellings,
seconds since 1970. Dates in words are read only in visible text and in date fields of recipes.

    feed_date   feeds and sitemaps. A date without a zone is taken as UTC: an error of up to a day is
                better than no date
    page_date   metadata of a page: between 1900 and 2100, with a zone only if one is written
    shown_date  a line of visible text, in some twenty languages: the first day in it with month and year.
                CHANGE matches lines about a later change instead of the first publication
    moment_of   a field of a recipe: always with a zone: the written one, else the recipe's, else UTC. Day,
                month and year must be written, or follow from relative words ("yesterday")

How it fails: `feed_date` and `page_date` give None for anything else; `moment_of` raises ValueError with the reason.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from ..errors import MissingExtra

_LONGEST = 120  # characters; no date is longer
_LONGEST_ON_PAGE = 64
_ISO = re.compile(
    r"([0-9]{4})(?:[-/.]?([0-9]{2})(?:[-/.]?([0-9]{2}))?)?"
    r"(?:[Tt\s,]{1,4}([0-9]{1,2}):?([0-9]{2})(?::?([0-9]{2})(?:[.,]([0-9]{0,9}))?)?)?"
    r"\s{0,3}([A-Za-z]{1,5}|(?:GMT|UTC)?\s?[+-][0-9]{1,2}:?[0-9]{0,2})?"
)
_RFC = re.compile(
    r"(?:[^\W\d]{2,12}\.?,?\s{1,3})?([0-9]{1,2})(?:st|nd|rd|th)?[\s.,-]{1,3}([^\W\d]{3,12})\.?,?[\s.-]{1,3}([0-9]{2,4}),?"
    r"(?:\s{1,3}([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.[0-9]{0,9})?)?\s?([AaPp][Mm])?)?"
    r"\s{0,3}([A-Za-z]{1,5}|(?:GMT|UTC|UT)?\s?[+-][0-9]{1,2}:?[0-9]{0,2})?(?:\s{0,3}\([^()]{0,20}\))?"
)
_AMERICAN = re.compile(
    r"(?:[^\W\d]{2,12}\.?,?\s{1,3})?([^\W\d]{3,12})\.?\s{1,3}([0-9]{1,2})(?:st|nd|rd|th)?,?\s{1,3}(.{0,60}?)([0-9]{4})(.{0,40})",
    re.DOTALL,
)
# Days in visible text. Each group's name is the letter of its part and the number of the form.
_SHOWN = re.compile(
    r"(?<![\w/.:-])(?:"
    r"(?P<y1>[0-9]{4})(?P<mark>[-/.])(?P<m1>[0-9]{2})(?P=mark)(?P<d1>[0-9]{2})(?![0-9/-]|\.[0-9])"
    r"|(?P<y2>[0-9]{4})(?:\. |\s?[年년]\s?)(?P<m2>[0-9]{1,2})(?:\. |\s?[月월]\s?)(?P<d2>[0-9]{1,2})(?:\.|\s?[日일])"
    r"|(?P<d3>[0-9]{1,2})(?:st|nd|rd|th|er|[.ºª°])?[\s-]{1,2}(?:(?:de|of)\s)?(?P<n3>[^\W\d_]{3,14})\.?,?[\s-]{1,2}"
    r"(?:del?\s)?(?P<y3>[0-9]{4})\b(?:\s(?:г\.?|года|р\.|року)(?!\w))?"
    r"|(?P<n4>[^\W\d_]{3,14})\.?\s{1,2}(?P<d4>[0-9]{1,2})(?:st|nd|rd|th)?,?\s{1,2}(?P<y4>[0-9]{4})\b"
    r"|(?P<y5>[0-9]{4})\.\s(?P<n5>[^\W\d_]{3,14})\.?\s(?P<d5>[0-9]{1,2})\."
    r"|(?P<d6>[0-9]{1,2})(?P<dot>[./])(?P<m6>[0-9]{1,2})(?P=dot)(?P<y6>[0-9]{4})(?![\w/]|\.[0-9])"
    r")"
)
_RANGE = re.compile(r"\s*(?:[-–—]|to|until|bis|au|al|a|tot|till|til|do|по|до|～|~)\s*")
# English-speaking countries that write the day first. The USA does not; plain "en" is ambiguous.
_DAY_FIRST = frozenset(("au", "gb", "ie", "in", "nz", "za"))
# Lines about a later change, in the languages of the months below.
CHANGE = re.compile(
    r"updat|modifi|revis|review|edited|copyright|©|aktualis|geändert|überarbeitet|\bstand:|mis à jour|actualiz|"
    r"atualiza|aggiorna|bijgewerkt|gewijzigd|uppdater|opdater|oppdater|ändrad|endret|päivitetty|muokattu|aktualiz|"
    r"zmodyfik|upraven|frissít|módosít|обновл|измен|редакт|оновл|змінен|güncel|ενημερ|更新|修正|수정|업데이트|diperbarui|تحديث",
    re.IGNORECASE,
)
# Months in visible text, full and abbreviated, in the grammatical case used in dates: "3 maja", "3. května".
_SHOWN_MONTH_NAMES = (
    "jan january januar januari janvier janv enero ene gennaio gen janeiro stycznia sty ledna led januára január "
    "января янв січня ocak oca tammikuuta ianuarie ian jänner jän ιανουαρίου ιαν يناير",
    "feb february februar februari février févr fév febrero febbraio fevereiro fev lutego lut února úno februára "
    "február febr февраля фев февр лютого şubat şub helmikuuta februarie feber φεβρουαρίου φεβ فبراير",
    "mar march märz mrz mär mars marzo março maart mrt marca března bře марта мар март березня mart maaliskuuta "
    "martie március márc marec maret μαρτίου μαρ مارس",
    "apr april avril avr abril abr aprile kwietnia kwi dubna dub apríla апреля апр квітня nisan nis huhtikuuta "
    "aprilie április ápr απριλίου απρ أبريل إبريل",
    "may mai mayo maggio mag maio mei maj maja května kvě mája мая май травня mayıs toukokuuta május máj μαΐου "
    "μαΐ مايو",
    "jun june juni juin junio giugno giu junho czerwca cze června čvn júna июня июн червня haziran haz kesäkuuta "
    "iunie június jún ιουνίου ιουν يونيو",
    "jul july juli juillet juil julio luglio lug julho lipca lip července čvc júla июля июл липня temmuz tem "
    "heinäkuuta iulie július júl ιουλίου ιουλ يوليو",
    "aug august augusti août agosto ago augustus sierpnia sie srpna srp augusta августа авг серпня ağustos ağu "
    "elokuuta augusztus agustus αυγούστου αυγ أغسطس",
    "sep sept september septembre septiembre setiembre settembre set setembro września wrz září zář septembra "
    "сентября сен сент вересня eylül eyl syyskuuta septembrie szeptember szept σεπτεμβρίου σεπ سبتمبر",
    "oct okt october oktober octobre octubre ottobre ott outubro out października paź října říj októbra октября "
    "окт жовтня ekim eki lokakuuta octombrie október οκτωβρίου οκτ أكتوبر",
    "nov november novembre noviembre novembro listopada lis listopadu novembra ноября ноя нояб листопада kasım "
    "kas marraskuuta noiembrie νοεμβρίου νοε نوفمبر",
    "dec dez december dezember desember décembre déc diciembre dic dicembre dezembro grudnia gru prosince pro "
    "decembra декабря дек грудня aralık ara joulukuuta decembrie δεκεμβρίου δεκ ديسمبر",
)  # fmt: skip
_SHOWN_MONTHS = {name: number for number, names in enumerate(_SHOWN_MONTH_NAMES, 1) for name in names.split()}
_MONTH_NAMES = (
    "jan", "feb", "mar mär", "apr avr", "may mai", "jun", "jul", "aug aou", "sep", "oct okt", "nov",
    "dec dez déc",
)  # fmt: skip
_MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES, 1) for name in names.split()}
_NO_MARCH = "marras"  # November in Finnish
_OFFSET = re.compile(r"([+-])([0-9]{1,2}):?([0-9]{2})?")
# Names of zones that feeds use, in minutes east of Greenwich. Several are ambiguous; these are the common meanings.
_ZONES = {
    **dict.fromkeys(("z", "ut", "utc", "gmt", "wet"), 0),
    **{"est": -300, "edt": -240, "cst": -360, "cdt": -300, "mst": -420, "mdt": -360, "pst": -480, "pdt": -420},
    **{"bst": 60, "west": 60, "cet": 60, "met": 60, "mez": 60, "cest": 120, "mesz": 120, "eet": 120, "eest": 180},
    **{"msk": 180, "ist": 330, "hkt": 480, "sgt": 480, "jst": 540, "kst": 540, "aest": 600, "aedt": 660, "nzst": 720},
}
_EPOCH = re.compile(r"\d{10}(?:\d{3})?")
_COUNT = re.compile(r"\d{9,13}(?:\.\d+)?")
_SECONDS = range(10**8, 10**10)  # 1973 to 2286
_MILLISECONDS = range(10**11, 10**13)
# Tried in this order if a recipe names none. Loading all languages of the library would take seconds.
LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "sv", "da", "nb", "fi", "cs", "ru", "uk", "tr", "ja", "zh")
_DIRECTIVE = re.compile(r"%[EO]?(.)", re.DOTALL)
_WITH_YEAR = frozenset("YyGcx")  # directives that read a year
_ANOTHER_DAY = 400 * 86_400.0  # seconds since 1970: not the day, month or year of 0


def feed_date(text: str) -> datetime | None:
    """The moment of a date in a feed or sitemap, with its zone."""
    text = text.strip()
    if not text or len(text) > _LONGEST:
        return None
    found = _iso(text) or _rfc(text)
    return _zoned(found, UTC) if found is not None else None


def page_date(value: object) -> datetime | None:
    """The moment of a date in a page's metadata; midnight if no time is written. A date without day, month or year, or
    in words without a time, gives None."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or len(text) > 10 * _LONGEST_ON_PAGE:
        return None
    text = " ".join(text.split())
    if not 8 <= len(text) <= _LONGEST_ON_PAGE:
        return None
    if _EPOCH.fullmatch(text):
        found: datetime | None = datetime.fromtimestamp(int(text[:10]), UTC)
    else:
        found = _iso(text, with_day=True) or _rfc(text, with_time=True)
    return found if found is not None and 1900 <= found.year <= 2100 else None


class ShownDay(NamedTuple):
    """A day in a line of text, and its position there."""

    start: int
    end: int
    day: datetime


def shown_date(text: str, language: str = "") -> datetime | None:
    """The first of the `shown_dates`."""
    return next((found.day for found in shown_dates(text, language)), None)


def shown_dates(text: str, language: str = "") -> list[ShownDay]:
    """The days that a line of text names with month and year: "by Ann, 3 May 2024", "3 de mayo de 2024".

    A numeric month must be distinguishable from the day: the year comes first, dots separate the parts (3.5.2024 is
    always day first), or one number is above 12. For 3/5 the `language` of the page decides; with plain "en" it is
    ambiguous and not a date. A range of days belongs to an event, and none of them counts.
    """
    found = [
        ShownDay(match.start(), match.end(), day)
        for match in _SHOWN.finditer(text[:_LONGEST])
        if (day := _shown(match, language)) is not None
    ]
    if any(_RANGE.fullmatch(text, before.end, after.start) for before, after in pairwise(found)):
        return []
    return found


def without_dates(text: str, language: str = "") -> str:
    """The line with each day replaced by a bar."""
    for found in reversed(shown_dates(text, language)):
        text = f"{text[: found.start]} | {text[found.end :]}"
    return text


def _shown(match: re.Match[str], language: str) -> datetime | None:
    form = {name[0]: value for name, value in match.groupdict().items() if value is not None and name[1:].isdigit()}
    year, day = int(form["y"]), int(form["d"])
    if "n" in form:
        name = form["n"].lower()
        month = _SHOWN_MONTHS.get(name)
        # November in Polish and Czech, October in Croatian, which puts a dot after the day.
        if month is None or (name == "listopada" and match[0].lstrip("0123456789")[:1] == "."):
            return None
    else:
        month = int(form["m"])
        if match["dot"] == "/":
            if month > 12 or (day <= 12 and language.lower() == "en-us"):
                day, month = month, day
            elif day <= 12 and not _begins_with_day(language):
                return None
    return _moment(year, month, day, (None, None, None), "") if 1900 <= year <= 2100 else None


def _begins_with_day(language: str) -> bool:
    name, _, country = language.lower().partition("-")
    return country in _DAY_FIRST if name == "en" else bool(name)


def moment_of(
    text: str, *, zone: str | None, formats: tuple[str, ...], languages: tuple[str, ...], now: float | None
) -> datetime:
    """The moment that the text names. `now` is the base of "yesterday"; None refuses relative words. Raises ValueError,
    MissingExtra."""
    text = " ".join(text.split())[:_LONGEST]
    if not text:
        raise ValueError("it is empty")
    local = zone_of(zone or "UTC")
    if formats:
        return _zoned(_by_format(text, formats), local)
    if _COUNT.fullmatch(text):
        return _by_seconds(text)
    found = _iso(text, with_day=True) or _rfc(text, with_time=True)
    if found is None:
        found = _by_words(text, local, zone or "UTC", languages, now or 0.0)
        if now is None and found != _by_words(text, local, zone or "UTC", languages, _ANOTHER_DAY):
            raise ValueError("it is relative to today; write day, month and year")
    return _zoned(found, local)


def check_spelling(formats: tuple[str, ...], languages: tuple[str, ...]) -> None:
    """Raise ValueError if `moment_of` could not use these formats or languages. Raises MissingExtra."""
    for form in formats:
        try:
            datetime.strptime("", form)
        except ValueError as error:
            if "directive" in str(error) or "stray" in str(error):
                raise ValueError(f"{form!r} is not a date format ({error}); write it like %d.%m.%Y") from None
        except re.error as error:
            raise ValueError(f"{form!r} is not a date format ({error}); write it like %d.%m.%Y") from None
        if not _WITH_YEAR & set(_DIRECTIVE.findall(form)):
            raise ValueError(f'"{form[:60]}" has no year; write it like %d.%m.%Y')
    if languages:
        _parser().parse("1", languages=list(languages))


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo:
    """The time zone with that name. Raises ValueError."""
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # KeyError: not found; the others: not even a valid name
        raise ValueError(f"{name!r} is not a time zone; write it like Europe/Berlin or UTC") from error


def _zoned(moment: datetime, local: tzinfo) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=local)


def _iso(text: str, *, with_day: bool = False) -> datetime | None:
    """ISO 8601, also with slashes, without separators, or without a day; naive if no zone is written."""
    if text[4:5] == "-" and (len(text) <= 10 or text[10] in "Tt "):  # the most common form
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass  # try the other forms
    match = _ISO.fullmatch(text)
    if match is None or (with_day and match[3] is None):
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    return _moment(int(year), int(month or 1), int(day or 1), (hour, minute, second), zone or "", fraction or "")


def _rfc(text: str, *, with_time: bool = False) -> datetime | None:
    """RFC 822 as people write it, ctime, and American dates; naive without a known zone."""
    if american := _AMERICAN.fullmatch(text):
        name, day, between, year, after = american.groups()
        text = f"{day} {name} {year} {(between + after).strip(', ')}".strip()
    match = _RFC.fullmatch(text)
    if match is None:
        return None
    day, name, year, hour, minute, second, half, zone = match.groups()
    month = _MONTHS.get(name[:3].lower())
    if month is None or name.lower().startswith(_NO_MARCH) or (with_time and hour is None):
        return None
    if half and hour:
        hour = str(int(hour) % 12 + (12 if half.lower() == "pm" else 0))
    if zone == "-0000" or (zone and zone.isalpha() and zone.lower() not in _ZONES):
        zone = ""  # RFC 2822: unknown zone
    century = 0 if len(year) == 4 else 1900 if len(year) == 3 or int(year) >= 69 else 2000
    return _moment(int(year) + century, month, int(day), (hour, minute, second), zone or "")


def _moment(
    year: int, month: int, day: int, clock: tuple[str | None, str | None, str | None], zone: str, fraction: str = ""
) -> datetime | None:
    hour, minute, second = (int(part or 0) for part in clock)
    time = timedelta(hours=hour, minutes=minute, seconds=second)
    if time > timedelta(days=1) or minute > 59 or second > 60:
        return None
    try:
        offset = _offset(zone)
        # 24:00 is the next day's midnight, and a leap second is the next second.
        return datetime(year, month, day, tzinfo=offset) + time + timedelta(microseconds=int(f"{fraction:0<6.6}"))
    except (ValueError, OverflowError):
        return None


def _offset(zone: str) -> timezone | None:
    """The zone of an offset or a name; None for "". Raises ValueError for an impossible one."""
    if not zone:
        return None
    match = _OFFSET.search(zone)
    if match is None:
        minutes = _ZONES.get(zone.lower())
    else:
        hours, rest = int(match[2]), int(match[3] or 0)
        minutes = (hours * 60 + rest) * (-1 if match[1] == "-" else 1) if hours < 24 and rest < 60 else None
    if minutes is None:
        raise ValueError(f"{zone!r} is not a zone")
    return timezone(timedelta(minutes=minutes)) if minutes else UTC


def _by_format(text: str, formats: tuple[str, ...]) -> datetime:
    for form in formats:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    raise ValueError(f"it is not written like {' or '.join(formats)}")


def _by_seconds(text: str) -> datetime:
    count = float(text)
    if int(count) in _MILLISECONDS:
        count /= 1000
    if int(count) not in _SECONDS:
        raise ValueError("as seconds since 1970 it is not a plausible date")
    return datetime.fromtimestamp(count, UTC)


def _by_words(text: str, local: tzinfo, zone: str, languages: tuple[str, ...], now: float) -> datetime:
    if not any(char.isalnum() for char in text):
        raise ValueError("it has neither digits nor words")
    found = _parser().parse(
        text,
        languages=list(languages or LANGUAGES),
        settings={
            "TIMEZONE": zone,
            "RETURN_AS_TIMEZONE_AWARE": True,
            "RELATIVE_BASE": datetime.fromtimestamp(now, local).replace(tzinfo=None),
            "REQUIRE_PARTS": ["day", "month", "year"],
        },
    )
    if not isinstance(found, datetime):
        raise ValueError("no day, month and year can be found in it; set `format` to its form, or list its `languages`")
    # The library has its own zone classes; convert to one of Python's.
    offset = found.utcoffset()
    return found.replace(tzinfo=local) if offset is None else found.astimezone(local)


def _parser() -> Any:  # Any: the package has no types
    try:
        return import_module("dateparser")  # only when needed
    except ImportError as error:
        raise MissingExtra("Dates in words need the package dateparser: pip install dateparser.") from error
