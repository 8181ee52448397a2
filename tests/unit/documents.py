"""Documents made for the tests: PDFs with words at given places, and packed XML of every kind."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

import msgspec
import openpyxl

FONTS = {"plain": "Helvetica", "bold": "Helvetica-Bold", "mono": "Courier"}


class Line(msgspec.Struct, frozen=True):
    """A text at a place, from the lower left corner of the page, as PDFs count."""

    x: float
    y: float
    text: str
    size: float = 10
    font: str = "plain"


def pdf(pages: Sequence[Sequence[Line]], *, info: str = "", links: Sequence[tuple[Line, str]] = ()) -> bytes:
    """A PDF of A4 pages. `links` lead from places on the first page."""
    objects: list[bytes] = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    first_page = 3 + len(FONTS)
    kids = " ".join(f"{first_page + 2 * index} 0 R" for index in range(len(pages)))
    objects.append(f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode())
    for name in FONTS.values():
        font = f"<< /Type /Font /Subtype /Type1 /BaseFont /{name} /Encoding /WinAnsiEncoding >>"
        objects.append(font.encode())
    fonts = " ".join(f"/{short} {3 + index} 0 R" for index, short in enumerate(FONTS))
    for index, lines in enumerate(pages):
        notes = "".join(
            f"<< /Type /Annot /Subtype /Link /Rect [{line.x} {line.y - 3} {line.x + 200} {line.y + 12}]"
            f" /A << /S /URI /URI ({href}) >> >>"
            for line, href in (links if index == 0 else ())
        )
        page = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {first_page + 2 * index + 1} 0 R"
            f" /Annots [{notes}] /Resources << /Font << {fonts} >> >> >>"
        )
        drawn = "\n".join(
            f"BT /{one.font} {one.size} Tf {one.x} {one.y} Td ({_escaped(one.text)}) Tj ET" for one in lines
        )
        content = drawn.encode("cp1252")
        objects += [page.encode(), b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)]
    objects.append(f"<< {info} >>".encode())
    written = io.BytesIO()
    written.write(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(written.tell())
        written.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = written.tell()
    written.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    written.writelines(b"%010d 00000 n \n" % place for place in places)
    trailer = (
        f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>\nstartxref\n{start}\n%%EOF\n"
    )
    written.write(trailer.encode())
    return written.getvalue()


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def prose(x: float, y: float, lines: Sequence[str], size: float = 10) -> list[Line]:
    return [Line(x, y - index * size * 1.2, text, size) for index, text in enumerate(lines)]


def package(files: dict[str, str | bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return made.getvalue()


_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_CORE = (
    '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties"'
    ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/">{}</cp:coreProperties>'
)
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKED = "http://schemas.openxmlformats.org/package/2006"


def docx(body: str, facts: str = "") -> bytes:
    """A Word document: `body` is WordprocessingML without its outer elements."""
    return package({
        "[Content_Types].xml": f'<Types xmlns="{_PACKED}/content-types">'
        '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        'wordprocessingml.document.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKED}/relationships"><Relationship Id="r1"'
        f' Type="{_RELATIONS}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f"<w:document {_W}><w:body>{body}</w:body></w:document>",
        "docProps/core.xml": _CORE.format(facts),
    })  # fmt: skip


def word_paragraph(text: str, style: str = "") -> str:
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{styled}<w:r><w:t>{text}</w:t></w:r></w:p>"


def xlsx(sheets: dict[str, list[list[object]]]) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    made = io.BytesIO()
    book.save(made)
    return made.getvalue()


_OPEN = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
    ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    ' xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"'
    ' xmlns:dc="http://purl.org/dc/elements/1.1/"'
)


def open_document(kind: str, body: str, facts: str = "") -> bytes:
    """An ODT (kind "text") or ODS (kind "spreadsheet")."""
    return package({
        "mimetype": f"application/vnd.oasis.opendocument.{kind}",
        "meta.xml": f"<office:document-meta {_OPEN}><office:meta>{facts}</office:meta></office:document-meta>",
        "content.xml": f"<office:document-content {_OPEN}><office:body><office:{kind}>{body}</office:{kind}>"
        "</office:body></office:document-content>",
    })  # fmt: skip


def epub(chapters: dict[str, str], title: str, author: str) -> bytes:
    items = "".join(f'<item id="c{index}" href="{name}"/>' for index, name in enumerate(chapters))
    spine = "".join(f'<itemref idref="c{index}"/>' for index in range(len(chapters)))
    return package({
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="book/package.opf"/></rootfiles></container>',
        "book/package.opf": '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<metadata><dc:title>{title}</dc:title><dc:creator>{author}</dc:creator></metadata>"
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
        **{f"book/{name}": html for name, html in chapters.items()},
    })  # fmt: skip


def pptx(slides: Sequence[Sequence[str]]) -> bytes:
    drawn = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    return package({
        "ppt/presentation.xml": "<p/>",
        **{
            f"ppt/slides/slide{number}.xml": f"<slide {drawn}>"
            + "".join(f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>" for text in texts)
            + "</slide>"
            for number, texts in enumerate(slides, 1)
        },
    })  # fmt: skip
