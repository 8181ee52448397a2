"""A site whose documents are hostile: bombs, loops, broken references, endless pages. The child dies, not the worker.

Tried here: some forty PDFs and packed documents, each read as a crawl reads it: in a child with bounded memory and
time. What a page says once it is HTML is tried with pages (tests/unit/test_*_hostile.py).
"""

from __future__ import annotations

import io
import random
import zipfile
import zlib

import pytest

from gossamer.errors import ParseFailed
from gossamer.extract.documents import DocumentKind
from gossamer.parse.document import read_ahead, read_document
from tests.unit.documents import Line, docx, open_document, package, pdf, prose, word_paragraph, xlsx
from tests.unit.test_documents import snapshot

URL = "https://papers.example/a"
GOOD = pdf([prose(60, 700, ["A page like any other,", "with two lines of text."])], info="/Title (Good)")


def stream_pdf(content: bytes, filters: str) -> bytes:
    """A page whose content stream is packed as `filters` say."""
    stream = b"<< /Length %d /Filter %s >>\nstream\n%s\nendstream" % (len(content), filters.encode(), content)
    return GOOD.replace(GOOD[GOOD.index(b"<< /Length") : GOOD.index(b"endstream") + 9], stream)


def zip_bomb(size: int) -> bytes:
    return package({"word/document.xml": b"<w:p>" * (size // 5), "[Content_Types].xml": b" " * 100})


def lying_zip() -> bytes:
    """A package whose directory says that its part is small."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("word/document.xml", b" " * 50_000_000)
    body = bytearray(made.getvalue())
    at = body.index(b"PK\x01\x02")
    body[at + 24 : at + 28] = (10).to_bytes(4, "little")
    return bytes(body)


ENTITIES = (
    '<!DOCTYPE a [<!ENTITY b0 "ha">' + "".join(f'<!ENTITY b{n} "{f"&b{n - 1};" * 10}">' for n in range(1, 12)) + "]>"
)
DEEP = "<text:section>" * 50_000 + "</text:section>" * 50_000

PDFS = {
    "a page tree that holds itself": GOOD.replace(b"/Kids [6 0 R]", b"/Kids [2 0 R]"),
    "a billion pages": GOOD.replace(b"/Count 1", b"/Count 999999999"),
    "a bomb in its stream": stream_pdf(zlib.compress(b"BT /plain 9 Tf (bomb) Tj ET " * 4_000_000, 9), "/FlateDecode"),
    "a bomb in a bomb": stream_pdf(
        zlib.compress(zlib.compress(b" " * 200_000_000, 9), 9), "[/FlateDecode /FlateDecode]"
    ),
    "filters without end": stream_pdf(b"x", "[" + "/FlateDecode " * 10_000 + "]"),
    "a font that is a page": GOOD.replace(b"/plain 3 0 R", b"/plain 6 0 R"),
    "a stream that is its own length": GOOD.replace(b"/Length ", b"/Length 7 0 R /Was "),
    "text beyond all places": GOOD.replace(b"60 700 Td", b"1e38 -1e38 Td"),
    "letters of no size": GOOD.replace(b"10 Tf", b"0 Tf"),
    "arrays without end": GOOD.replace(b"/MediaBox [0 0 595 842]", b"/MediaBox " + b"[" * 100_000),
    "no end": GOOD[: len(GOOD) // 2],
    "a reference into nowhere": GOOD.replace(b"startxref", b"startxref\n99999999"),
    "nothing": b"%PDF-1.7",
}
PACKED = {
    "a bomb": (DocumentKind.DOCX, zip_bomb(500_000_000)),
    "a lie about its size": (DocumentKind.DOCX, lying_zip()),
    "no package": (DocumentKind.XLSX, b"PK\x03\x04" + b"\0" * 100),
    "a sheet of a million columns": (DocumentKind.XLSX, xlsx({"S": [["x"] * 16_000]})),
    "tables in tables": (
        DocumentKind.DOCX,
        docx("<w:tbl><w:tr><w:tc>" * 2_000 + word_paragraph("x") + "</w:tc></w:tr></w:tbl>" * 2_000),
    ),
    "sections in sections": (DocumentKind.ODT, open_document("text", DEEP)),
    "Markdown of brackets": (DocumentKind.MARKDOWN, b"[" * 50_000 + b"*a_ " * 50_000),
}


def survives(kind: DocumentKind, body: bytes) -> str:
    """The HTML, or the sentence that says why there is none; nothing else may happen."""
    try:
        return read_document(kind, body, URL, 10)
    except ParseFailed as failure:
        found = str(failure)
    assert found.startswith(f"{URL} is a {kind.value} document that cannot be read. ")
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", PDFS)
def test_a_hostile_pdf_is_a_page_or_a_failure(name: str) -> None:
    survives(DocumentKind.PDF, PDFS[name])


@pytest.mark.long
@pytest.mark.parametrize("name", PACKED)
def test_a_hostile_package_is_a_page_or_a_failure(name: str) -> None:
    survives(*PACKED[name])


@pytest.mark.long
def test_entities_do_not_grow() -> None:
    body = package({
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": f"{ENTITIES}<a>&b11;</a>",
    })  # fmt: skip

    assert "cannot be read" in survives(DocumentKind.ODT, body)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_a_pdf_with_bytes_changed_at_random_is_a_page_or_a_failure(seed: int) -> None:
    draw, body = random.Random(seed), bytearray(GOOD)
    for _ in range(draw.randint(1, 40)):
        body[draw.randrange(9, len(body))] = draw.randrange(256)

    survives(DocumentKind.PDF, bytes(body))


def test_a_document_that_takes_too_long_is_given_up_and_its_child_is_gone() -> None:
    slow = pdf([[Line(60, 700, "slow")]] * 2_000)

    with pytest.raises(ParseFailed, match=r"takes longer than 0\.05 s"):
        read_document(DocumentKind.PDF, slow, URL, 0.05)


async def test_files_of_the_machine_that_a_document_names_are_not_read() -> None:
    picture = docx(
        '<w:p><w:r><w:drawing><a:blip xmlns:a="a" r:link="file:///etc/passwd" xmlns:r="r"/></w:drawing></w:r></w:p>'
    )

    found = await read_ahead(snapshot(picture), 30)

    assert isinstance(found, str)
    assert "root:" not in found
