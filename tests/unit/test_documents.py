"""PDF, Word, Excel and other documents are pages: selectors, links, tables, Markdown and metadata work on them."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer import Page
from gossamer.errors import ParseFailed
from gossamer.extract.documents import DocumentKind, document_kind
from gossamer.extract.documents.pdf import pdf_date, words_html
from gossamer.extract.documents.pdf_layout import BlockKind, PageWords, Word, blocks_of, body_height, running_lines
from gossamer.extract.markup import Markup
from gossamer.extract.media import Media
from gossamer.model.page import Headers, Snapshot

from .documents import Line, docx, epub, open_document, pdf, pptx, prose, word_paragraph, xlsx

LEFT = [
    "The first column begins here and it tells",
    "of rivers that run to the sea, of bridges",
    "that cross them and of ferrymen.",
]
RIGHT = [
    "The second column is to be read after the",
    "first one, from its top to its bottom, as",
    "every reader of a journal knows.",
]


def snapshot(
    body: bytes, content_type: str = "application/octet-stream", url: str = "https://papers.example/a"
) -> Snapshot:
    headers = Headers([("Content-Type", content_type)])
    return Snapshot(url=url, requested_url=url, status=200, headers=headers, body=body, fetched_at=0.0)


def read(body: bytes, content_type: str = "application/octet-stream", url: str = "https://papers.example/a") -> Markup:
    """The document, read in this process."""
    return Markup(snapshot(body, content_type, url))


def tables(page: Markup) -> list[list[list[str]]]:
    assert page.tree is not None
    return [
        [[" ".join(cell.text.split()) for cell in row.select("th, td")] for row in table.select("tr")]
        for table in page.tree.select("table")
    ]


def test_two_columns_are_read_one_after_the_other_in_whatever_order_the_file_has_them():
    by_column = [*prose(60, 700, LEFT), *prose(310, 700, RIGHT)]
    by_line = [line for pair in zip(prose(60, 700, LEFT), prose(310, 700, RIGHT), strict=True) for line in pair]

    for lines in (by_column, by_line):
        text = read(pdf([lines])).main_text()
        assert text.split() == " ".join(LEFT + RIGHT).split()


def test_large_text_is_a_heading_bold_lines_too_and_lines_of_a_paragraph_are_one():
    lines = [
        Line(60, 760, "On Rivers", 20, "bold"),
        *prose(60, 720, ["Rivers run downhill for as long as there", "is a hill, and stop at the sea."]),
        Line(60, 660, "Bridges", 10, "bold"),
        *prose(60, 640, ["Bridges cross rivers."]),
    ]

    assert read(pdf([lines])).markdown() == (
        "# On Rivers\n\nRivers run downhill for as long as there is a hill, and stop at the sea.\n\n"
        "## Bridges\n\nBridges cross rivers."
    )  # fmt: skip


def test_cells_that_stand_in_columns_are_a_table_and_a_second_line_of_a_cell_belongs_to_it():
    rows = [("Item", "Price", "Stock"), ("Desk lamp", "49.90", "12"), ("Chair", "120.00", "3"), ("Shelf", "75.50", "0")]
    lines = [
        Line(x, 700 - 14 * index, text)
        for index, row in enumerate(rows)
        for x, text in zip((60, 220, 320), row, strict=True)
    ]

    assert tables(read(pdf([lines]))) == [[list(row) for row in rows]]


def test_words_divided_at_the_end_of_a_line_are_whole_again():
    lines = (["is", "hy\xad"], ["phenated", "now."])
    words = [
        Word(text, 60 + 50 * column, 100 + 50 * column, 100 + 12 * row, 110 + 12 * row)
        for row, texts in enumerate(lines)
        for column, text in enumerate(texts)
    ]

    (block,) = blocks_of(PageWords(words, 842), frozenset(), 10)

    assert words_html(block.lines) == "is hyphenated now."


def test_running_titles_and_page_numbers_are_left_out():
    pages = [
        [
            Line(60, 815, "Journal of Rivers"),
            *prose(60, 700, [f"This is what page {n} says of rivers."]),
            Line(290, 30, str(n)),
        ]
        for n in range(1, 6)
    ]

    text = read(pdf(pages)).main_text()

    assert "Journal of Rivers" not in text
    assert [line for line in text.split("\n\n") if line] == [
        f"This is what page {n} says of rivers." for n in range(1, 6)
    ]


def test_items_are_a_list_and_typewriter_text_is_code():
    lines = [
        *prose(60, 760, ["The steps are these:"]),
        Line(70, 740, "• unpack the lamp"),
        Line(70, 728, "• plug it in"),
        Line(60, 700, "for lamp in lamps:", font="mono"),
        Line(84, 688, "lamp.light()", font="mono"),
    ]

    page = read(pdf([[*lines]]))

    assert page.tree is not None
    assert [item.text for item in page.tree.select("li")] == ["unpack the lamp", "plug it in"]
    assert page.tree.select_one("pre").text == "for lamp in lamps:\n    lamp.light()"


def test_a_pdf_says_its_title_author_dates_and_pages_and_its_links_can_be_followed():
    line = Line(60, 700, "Read more about rivers")
    info = "/Title (On Rivers) /Author (Ada Rivers) /CreationDate (D:20240131120000+01'00') /ModDate (D:20240201)"
    page = Page(
        snapshot(pdf([[line], []], info=info, links=[(line, "https://rivers.example/more")]), "application/pdf")
    )

    about = page.metadata()

    assert (page.media, page.document, page.title) == (Media.DOCUMENT, DocumentKind.PDF, "On Rivers")
    assert (about.title, about.authors) == ("On Rivers", ("Ada Rivers",))
    assert about.published == datetime(2024, 1, 31, 11, tzinfo=UTC)
    assert page.css("meta[name=pages]::attr(content)").get() == "2"
    assert page.css("section[data-page='1'] a::text").get() == "Read more about rivers"
    assert page.links() == ["https://rivers.example/more"]
    assert page.text == "Read more about rivers"


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("D:20240131120000+01'00'", "2024-01-31T12:00:00+01:00"),
        ("D:20240131120000Z", "2024-01-31T12:00:00Z"),
        ("20240131", "2024-01-31"),
        ("D:2024", "2024-01-01"),
        ("yesterday", ""),
    ],
)
def test_dates_of_pdfs(text, iso):
    assert pdf_date(text) == iso


def test_a_word_document_keeps_headings_tables_and_facts():
    cells = "".join(f"<w:tc>{word_paragraph(text)}</w:tc>" for text in ("Item", "Price"))
    more = "".join(f"<w:tc>{word_paragraph(text)}</w:tc>" for text in ("Lamp", "49.90"))
    body = (
        f"{word_paragraph('On Lamps', 'Heading1')}{word_paragraph('Lamps give light.')}"
        f"<w:tbl><w:tr>{cells}</w:tr><w:tr>{more}</w:tr></w:tbl>"
    )
    page = read(docx(body, "<dc:title>Lamps</dc:title><dc:creator>Ada Rivers</dc:creator>"))

    assert page.document is DocumentKind.DOCX
    assert page.metadata().authors == ("Ada Rivers",)
    assert page.title == "Lamps"
    assert "On Lamps" in page.main_text()
    assert "Lamps give light." in page.main_text()
    assert tables(page) == [[["Item", "Price"], ["Lamp", "49.90"]]]


def test_every_sheet_of_a_workbook_is_a_table_with_values_as_people_read_them():
    rows: list[list[object]] = [
        ["name", "price", "from", "sold"],
        ["Lamp", 49.9, datetime(2024, 1, 31), True],
        [None, None, None, None],
        ["Chair", 120.0, datetime(2024, 2, 1, 8, 30), False],
    ]
    page = read(xlsx({"Prices": rows, "Empty": [], "More": [["a"], ["b"]]}))

    assert page.document is DocumentKind.XLSX
    assert tables(page) == [
        [
            ["name", "price", "from", "sold"],
            ["Lamp", "49.9", "2024-01-31", "TRUE"],
            ["Chair", "120", "2024-02-01 08:30:00", "FALSE"],
        ],
        [["a"], ["b"]],
    ]
    assert "## Prices" in page.markdown()


def test_open_documents_books_and_slides_are_read():
    text = open_document(
        "text",
        '<text:h text:outline-level="1">On Rivers</text:h><text:p>They <text:span>run</text:span> to <text:a'
        ' xlink:href="https://sea.example/">the sea</text:a>.</text:p><text:list><text:list-item><text:p>Rhine</text:p>'
        "</text:list-item></text:list>",
        "<dc:creator>Ada Rivers</dc:creator>",
    )
    sheet = open_document(
        "spreadsheet",
        '<table:table table:name="S"><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell>'
        '<table:table-cell table:number-columns-repeated="16000"/></table:table-row>'
        '<table:table-row table:number-rows-repeated="1000000">'
        "<table:table-cell/></table:table-row></table:table>",
    )
    book = epub(
        {"1.xhtml": "<h1>One</h1><p>It begins.", "2.xhtml": "<h1>Two</h1><p>It ends."}, "The Book", "Ada Rivers"
    )
    slides = pptx([["Rivers", "They run."], ["Seas"]])

    assert read(text).markdown() == "# On Rivers\n\nThey run to [the sea](https://sea.example/).\n\n- Rhine"
    assert tables(read(sheet)) == [[["a"]]]
    assert read(book).main_text() == "One\n\nIt begins.\n\nTwo\n\nIt ends."
    assert read(book).metadata().authors == ("Ada Rivers",)
    assert read(slides).main_text() == "Rivers\n\nThey run.\n\nSeas"


def test_markdown_is_a_page_and_its_source_is_its_text():
    source = "# Lamps\n\nSee [more](/more).\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    page = Page(snapshot(source.encode(), "text/plain; charset=utf-8", "https://papers.example/readme.md"))

    assert page.document is DocumentKind.MARKDOWN
    assert (page.title, page.text) == ("Lamps", source)
    assert page.links() == ["https://papers.example/more"]
    assert tables(page) == [[["a", "b"], ["1", "2"]]]


@pytest.mark.parametrize(
    ("body", "content_type", "kind"),
    [
        (b"\n%PDF-1.7", "text/html", DocumentKind.PDF),
        (b"<p>%PDF-1.7 is a header</p>", "text/html", None),
        (b"%PDF-1.4", "", DocumentKind.PDF),
        (b"PK\x03\x04 broken", "application/zip", None),
        (b"# heading", "text/markdown", DocumentKind.MARKDOWN),
        (b"# heading", "text/plain", None),
        (b"<html>", "text/html", None),
    ],
)
def test_the_kind_is_told_by_the_content(body, content_type, kind):
    assert document_kind(content_type, body, "https://papers.example/a.pdf") is kind


@pytest.mark.parametrize(
    "body",
    [b"%PDF-1.4\ntrailer << /Root 1 0 R >>", pdf([[Line(60, 700, "cut off")]])[:300], docx("<w:p>")],
    ids=["empty", "cut off", "broken XML"],
)
def test_a_broken_document_is_a_failure_of_the_page_and_says_why(body):
    page = Page(snapshot(body))

    with pytest.raises(ParseFailed, match=r"a (pdf|docx) document that cannot be read\. It is broken"):
        page.main_text()


def test_a_document_whose_library_is_missing_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("gossamer.extract.markup.is_readable", lambda kind: False)
    page = Page(snapshot(pdf([[Line(60, 700, "unread")]])))

    assert page.css("p").getall() == []
    with pytest.raises(ParseFailed, match=r"pip install 'gossamer\[documents\]'"):
        page.markdown()


def test_crawls_of_pages_load_nothing_that_reads_documents():
    code = (
        "import sys, gossamer.parse.page, gossamer.crawl.parse_page;"
        " print({'zipfile', 'pypdfium2', 'openpyxl'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert result.stdout.strip() == "set()"


words = st.builds(
    lambda text, x, y, width, height, bold: Word(text, x, x + width, y, y + height, bold),
    st.text(min_size=1, max_size=12).filter(lambda text: not text.isspace()),
    st.floats(0, 600),
    st.floats(0, 800),
    st.floats(0.1, 200),
    st.floats(0.5, 60),
    st.booleans(),
)


@given(st.lists(st.lists(words, max_size=40), min_size=1, max_size=4))
def test_no_layout_loses_or_doubles_a_word(pages):
    made = [PageWords(page, 842) for page in pages]
    running = frozenset[str]()

    for page in made:
        blocks = blocks_of(page, running, body_height(made))
        found = [word for block in blocks for line in block.lines for word in line]
        found += [word for block in blocks for row in block.rows for cell in row for word in cell]
        assert sorted(found, key=repr) == sorted(page.words, key=repr)
        assert all(block.rows for block in blocks if block.kind is BlockKind.TABLE)
    running_lines(made)
