"""Word, Excel, PowerPoint, OpenDocument and EPUB files as HTML.

All are packed folders of XML. DOCX is read by mammoth and XLSX by openpyxl (`gossamer[documents]`), the others here:
what Gossamer needs of them is little. How it fails: a file that is broken, or that unpacks to too much, raises
DocumentUnreadable.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from datetime import date, datetime, time
from html import escape
from io import BytesIO
from urllib.parse import unquote
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

import turbohtml

from .contract import MOST_PAGES, MOST_UNPACKED, DocumentUnreadable, MarkupWriter

_MOST_CELLS = 2_000_000
_MOST_REPEATS = 200  # of an empty cell or row that a sheet repeats
_DC = "{http://purl.org/dc/elements/1.1/}"
_TERMS = "{http://purl.org/dc/terms/}"
_META = "{urn:oasis:names:tc:opendocument:xmlns:meta:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_DRAW = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_REL = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_SLIDE = re.compile(r"ppt/slides/slide(\d+)\.xml")


def open_package(body: bytes) -> ZipFile:
    """Raises DocumentUnreadable."""
    try:
        package = ZipFile(BytesIO(body))
    except (BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise DocumentUnreadable("It is broken: it cannot be unpacked.") from error
    if sum(one.file_size for one in package.infolist()) > MOST_UNPACKED:
        raise DocumentUnreadable(f"It unpacks to more than {MOST_UNPACKED // 1024**2} MiB.")
    return package


def _xml(package: ZipFile, name: str) -> ElementTree.Element:
    """A part of the package. Raises DocumentUnreadable."""
    try:
        return ElementTree.fromstring(package.read(name))  # noqa: S314 in a child with bounds; expat limits entities
    except (KeyError, BadZipFile, ElementTree.ParseError, RuntimeError, OSError, ValueError, EOFError) as error:
        raise DocumentUnreadable(f"Its part {name!r:.100} is broken or not there.") from error
    except Exception as error:
        if type(error).__module__ == "zlib":
            raise DocumentUnreadable(f"Its part {name!r:.100} is broken.") from error
        raise


def _is_there(package: ZipFile, name: str) -> bool:
    return name in package.NameToInfo


def _write_facts(writer: MarkupWriter, facts: dict[str, str]) -> None:
    for name in ("author", "description", "keywords", "pages"):
        writer.meta(name, facts.get(name, ""))
    writer.meta("article:published_time", facts.get("created", ""), name="property")
    writer.meta("article:modified_time", facts.get("modified", ""), name="property")


def _office_facts(package: ZipFile) -> dict[str, str]:
    """Title, author and dates of a DOCX, XLSX or PPTX."""
    if not _is_there(package, "docProps/core.xml"):
        return {}
    root = _xml(package, "docProps/core.xml")
    keywords = root.find("{http://schemas.openxmlformats.org/package/2006/metadata/core-properties}keywords")
    return {
        "title": root.findtext(f"{_DC}title") or "",
        "author": root.findtext(f"{_DC}creator") or "",
        "description": root.findtext(f"{_DC}description") or root.findtext(f"{_DC}subject") or "",
        "keywords": (keywords.text or "") if keywords is not None else "",
        "created": root.findtext(f"{_TERMS}created") or "",
        "modified": root.findtext(f"{_TERMS}modified") or "",
    }


def docx_html(body: bytes) -> str:
    """Raises DocumentUnreadable."""
    import mammoth

    package = open_package(body)
    facts = _office_facts(package)
    try:
        result = mammoth.convert_to_html(
            BytesIO(body),
            convert_image=mammoth.images.img_element(lambda image: {"src": ""}),
            external_file_access=False,
        )
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # mammoth raises what its XML reader and the broken file give it
        raise DocumentUnreadable("It is broken, or no Word document.") from error
    tree = turbohtml.parse(result.value)
    heading = tree.select_one("h1")
    title = facts.get("title", "") or (" ".join(heading.text.split())[:300] if heading is not None else "")
    writer = MarkupWriter(title=title)
    _write_facts(writer, facts)
    for table in tree.select("table"):  # the first row of Word's tables is the head where it says nothing else
        first = table.select_one("tr")
        if first is not None and table.select_one("th") is None:
            for cell in first.select("td"):
                head = turbohtml.parse_fragment(f"<table><tr><th>{cell.inner_html}</th></tr></table>").select_one("th")
                if head is not None:
                    cell.replace_with(head)
    inside = tree.select_one("body")
    writer.raw(re.sub(r'<img src="" ?/?>', "", inside.inner_html) if inside is not None else "")
    return writer.html()


def xlsx_html(body: bytes) -> str:
    """Raises DocumentUnreadable."""
    import openpyxl

    package = open_package(body)
    facts = _office_facts(package)
    writer = MarkupWriter(title=facts.get("title", ""))
    try:
        book = openpyxl.load_workbook(BytesIO(body), read_only=True, data_only=True, keep_links=False)
        _write_facts(writer, {**facts, "pages": str(len(book.worksheets))})
        room = _MOST_CELLS
        for sheet in book.worksheets:
            rows = []
            for row in sheet.iter_rows(values_only=True):
                room -= len(row)
                if room < 0:
                    break
                rows.append([_cell_text(value) for value in row])
            _write_sheet(writer, str(sheet.title), rows)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # openpyxl raises what its XML reader and the broken file give it
        raise DocumentUnreadable("It is broken, or no Excel workbook.") from error
    return writer.html()


def _cell_text(value: object) -> str:
    """A cell as people read it, in ISO form for dates: midnight is a day without a time."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _write_sheet(writer: MarkupWriter, name: str, rows: list[list[str]]) -> None:
    """A sheet without the empty rows and columns around its cells."""
    rows = [row for row in rows if any(row)]
    width = max((i + 1 for row in rows for i, cell in enumerate(row) if cell), default=0)
    first = min((i for row in rows for i, cell in enumerate(row) if cell), default=0)
    if not rows:
        return
    writer.raw(f"<section><h2>{escape(name)}</h2>")
    padded = ([*row[first:width], *[""] * (width - max(len(row), first))] for row in rows)
    writer.table([[escape(cell) for cell in row] for row in padded])
    writer.raw("</section>")


def pptx_html(body: bytes) -> str:
    """Raises DocumentUnreadable."""
    package = open_package(body)
    facts = _office_facts(package)
    slides = sorted((int(found[1]), found[0]) for name in package.NameToInfo if (found := _SLIDE.fullmatch(name)))
    writer = MarkupWriter(title=facts.get("title", ""))
    _write_facts(writer, {**facts, "pages": str(len(slides))})
    for number, name in slides[:MOST_PAGES]:
        root = _xml(package, name)
        relations = _relations(package, name)
        writer.raw(f'<section data-page="{number}">')
        in_tables = {paragraph for table in root.iter(f"{_DRAW}tbl") for paragraph in table.iter(f"{_DRAW}p")}
        titled = False
        for element in root.iter():
            if element.tag == f"{_DRAW}tbl":
                rows = element.iter(f"{_DRAW}tr")
                cells = ([_slide_text(cell, relations) for cell in row.iter(f"{_DRAW}tc")] for row in rows)
                writer.table(list(cells))
            elif element.tag == f"{_DRAW}p" and element not in in_tables and (text := _slide_text(element, relations)):
                writer.raw(f"<p>{text}</p>" if titled else f"<h2>{text}</h2>")
                titled = True
        writer.raw("</section>")
    return writer.html()


def _relations(package: ZipFile, name: str) -> dict[str, str]:
    folder, file = posixpath.split(name)
    path = f"{folder}/_rels/{file}.rels"
    if not _is_there(package, path):
        return {}
    return {one.get("Id", ""): one.get("Target", "") for one in _xml(package, path)}


def _slide_text(element: ElementTree.Element, relations: dict[str, str]) -> str:
    parts = []
    for run in element.iter():
        if run.tag == f"{_DRAW}br":
            parts.append(" ")
        if run.tag != f"{_DRAW}r":
            continue
        text = escape(run.findtext(f"{_DRAW}t") or "")
        link = run.find(f"{_DRAW}rPr/{_DRAW}hlinkClick")
        href = relations.get(link.get(_REL, ""), "") if link is not None else ""
        parts.append(f'<a href="{escape(href)}">{text}</a>' if href.startswith(("http:", "https:")) else text)
    return "".join(parts).strip()


# -- OpenDocument ------------------------------------------------------------------------------------------------------


def open_document_html(body: bytes) -> str:
    """An ODT or ODS. Raises DocumentUnreadable."""
    package = open_package(body)
    facts: dict[str, str] = {}
    if _is_there(package, "meta.xml"):
        root = _xml(package, "meta.xml")
        one = {name: root.find(f".//{tag}") for name, tag in _OPEN_FACTS.items()}
        facts = {name: (element.text or "") for name, element in one.items() if element is not None}
    content = _xml(package, "content.xml")
    spreadsheet = content.find(".//{urn:oasis:names:tc:opendocument:xmlns:office:1.0}spreadsheet")
    heading = content.find(f".//{_TEXT}h")
    title = facts.get("title", "") or ("".join(heading.itertext()).strip()[:300] if heading is not None else "")
    writer = MarkupWriter(title=title)
    _write_facts(writer, facts)
    if spreadsheet is not None:
        for sheet in spreadsheet.iter(f"{_TABLE}table"):
            _write_sheet(writer, sheet.get(f"{_TABLE}name", ""), list(_open_rows(sheet)))
        return writer.html()
    text = content.find(".//{urn:oasis:names:tc:opendocument:xmlns:office:1.0}text")
    for element in text if text is not None else ():
        _write_open_block(writer, element)
    return writer.html()


_OPEN_FACTS = {
    "title": f"{_DC}title",
    "author": f"{_DC}creator",
    "description": f"{_DC}description",
    "keywords": f"{_META}keyword",
    "created": f"{_META}creation-date",
    "modified": f"{_DC}date",
}


def _write_open_block(writer: MarkupWriter, element: ElementTree.Element) -> None:
    """A block, with those inside it: sections, indexes, frames."""
    stack = [element]
    while stack:
        one = stack.pop()
        if one.tag == f"{_TEXT}h":
            level = one.get(f"{_TEXT}outline-level", "1")
            level = level if level in ("1", "2", "3", "4", "5", "6") else "6"
            writer.raw(f"<h{level}>{_open_text(one)}</h{level}>")
        elif one.tag == f"{_TEXT}p":
            if text := _open_text(one):
                writer.raw(f"<p>{text}</p>")
        elif one.tag == f"{_TEXT}list":
            for item in one.iter(f"{_TEXT}list-item"):
                text = " ".join(_open_text(p) for p in item if p.tag in (f"{_TEXT}p", f"{_TEXT}h"))
                if text:
                    writer.item(text)
        elif one.tag == f"{_TABLE}table":
            writer.table([[escape(cell) for cell in row] for row in _open_rows(one) if any(row)])
        else:
            stack.extend(reversed(list(one)))


def _open_text(element: ElementTree.Element) -> str:
    """The text of a paragraph with its links, escaped."""
    parts = [escape(element.text or "")]
    for child in element:
        inside = " " if child.tag in (f"{_TEXT}s", f"{_TEXT}tab", f"{_TEXT}line-break") else _open_text(child)
        href = child.get(_XLINK, "") if child.tag == f"{_TEXT}a" else ""
        parts.append(f'<a href="{escape(href)}">{inside}</a>' if href else inside)
        parts.append(escape(child.tail or ""))
    return "".join(parts).strip() if element.tag == f"{_TEXT}p" else "".join(parts)


def _open_rows(table: ElementTree.Element) -> Iterator[list[str]]:
    """The cells of a table. Rows and cells that are repeated for ever are empty, and stand there once."""
    room = _MOST_CELLS
    for row in table.iter(f"{_TABLE}table-row"):
        cells: list[str] = []
        for cell in row:
            if cell.tag not in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                continue
            text = " ".join("".join(one.itertext()) for one in cell if one.tag == f"{_TEXT}p")
            cells += [text] * min(_count(cell, "number-columns-repeated"), _MOST_REPEATS if text or cells else 1)
        times = min(_count(row, "number-rows-repeated"), _MOST_REPEATS) if any(cells) else 1
        for _ in range(times):
            room -= len(cells)
            if room < 0:
                return
            yield cells


def _count(element: ElementTree.Element, name: str) -> int:
    text = element.get(f"{_TABLE}{name}", "1")
    return int(text) if text.isdecimal() and len(text) < 9 else 1


# -- EPUB --------------------------------------------------------------------------------------------------------------

_OPF = "{http://www.idpf.org/2007/opf}"
_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}rootfile"


def epub_html(body: bytes) -> str:
    """The chapters of a book in the order of its spine. Raises DocumentUnreadable."""
    package = open_package(body)
    root = _xml(package, "META-INF/container.xml").find(f".//{_CONTAINER}")
    path = root.get("full-path", "") if root is not None else ""
    book = _xml(package, path)
    facts = {
        "title": book.findtext(f".//{_DC}title") or "",
        "author": ", ".join(one.text or "" for one in book.iter(f"{_DC}creator")),
        "description": book.findtext(f".//{_DC}description") or "",
        "created": book.findtext(f".//{_DC}date") or "",
    }
    files = {one.get("id", ""): unquote(one.get("href", "")) for one in book.iter(f"{_OPF}item")}
    chapters = [files.get(one.get("idref", ""), "") for one in book.iter(f"{_OPF}itemref")][:MOST_PAGES]
    writer = MarkupWriter(title=facts["title"])
    _write_facts(writer, {**facts, "pages": str(len(chapters))})
    for number, chapter in enumerate(chapters, 1):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(path), chapter))
        if not chapter or not _is_there(package, name):
            continue
        tree = turbohtml.parse(package.read(name), detect_encoding=True)
        inside = tree.select_one("body")
        if inside is not None:
            inside.remove("script, style, iframe, template")
            writer.raw(f'<section data-page="{number}">{inside.inner_html}</section>')
    return writer.html()
