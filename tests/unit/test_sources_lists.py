"""Lists of URLs come from patterns, files and programs."""

from __future__ import annotations

import gzip
import io
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.crawl.source_files import SourceFiles
from gossamer.errors import SourceFailed
from gossamer.project.wiring import open_source_files
from gossamer.schedule.sources import (
    CommandSource,
    FileSource,
    Listing,
    StartSource,
    UrlSource,
    UrlsSource,
    parse_source,
)
from gossamer.schedule.sources.gzip_file import MOST_PARTS, TooLarge, unpacked
from gossamer.schedule.sources.reader import entries
from tests.patience import PATIENCE, until

from .sourced import SETTINGS

ROWS = ["https://shop.example/1", "https://shop.example/2"]


class Indoors:
    """A project folder, and somebody who reads sources in it; reports are kept."""

    def __init__(self, files: SourceFiles) -> None:
        self.reports: list[str] = []
        self.context = files.context(report=self.reports.append)
        self.root = self.context.root


@pytest.fixture
async def indoors(tmp_path: Path) -> AsyncIterator[Indoors]:
    async with open_source_files(msgspec.structs.replace(SETTINGS, root=tmp_path)) as files:
        yield Indoors(files)


async def urls_of(source: UrlSource, indoors: Indoors) -> list[str]:
    assert not isinstance(source, StartSource)
    return [entry.url async for entry in entries(source, indoors.context)]


# --- lists -----------------------------------------------------------------------------------------------------------


async def test_urls_come_in_their_order(indoors: Indoors) -> None:
    source = parse_source({"urls": ["https://x.example/{1..1200}", "HTTPS://y.example"]})
    found = await urls_of(source, indoors)
    assert found[:2] == ["https://x.example/1", "https://x.example/2"]
    assert found[-2:] == ["https://x.example/1200", "https://y.example/"]
    assert len(found) == 1_201


async def test_password_of_an_address_is_in_no_report_and_in_no_error(indoors: Indoors) -> None:
    (indoors.root / "a.txt").write_text("http://user:hunter2@ex ample/\nhttp://key@ex ample/\n")
    with pytest.raises(SourceFailed, match=r"a\.txt line 1: it is not an http or https URL") as failure:
        await urls_of(FileSource(path="a.txt"), indoors)
    await urls_of(UrlsSource(urls=("https://user:hunter2@{ok,not ok}.example/",)), indoors)
    words = " ".join([str(failure.value), *indoors.reports])
    assert "hunter2" not in words
    assert "key@" not in words
    assert len(indoors.reports) == 3


async def test_address_that_a_pattern_makes_and_that_is_none_is_reported(indoors: Indoors) -> None:
    assert await urls_of(UrlsSource(urls=("https://{ok,not ok}.example/",)), indoors) == ["https://ok.example/"]
    (words,) = indoors.reports
    assert "is not a URL" in words


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "# a comment\n\nhttps://shop.example/1   # the first\r\n  https://shop.example/2"),
        ("a.txt", "\ufeffhttps://shop.example/1\nhttps://shop.example/2\n"),
        ("a.csv", 'id,URL,"name"\n1,https://shop.example/1,"two\nlines, and ""more"""\n2,https://shop.example/2,x\n'),
        ("a.csv", "url;id\nhttps://shop.example/1;1\n\nhttps://shop.example/2;2\n"),
        ("a.tsv", "id\turl\n1\thttps://shop.example/1\n2\thttps://shop.example/2\n"),
        ("a.csv", "url\nhttps://shop.example/1\nhttps://shop.example/2\n"),
        ("a.jsonl", '{"url": "https://shop.example/1", "x": {}}\n\n{"x": [1], "url": "https://shop.example/2"}'),
        ("a.txt", "https://shop.example/1\rhttps://shop.example/2\r"),
        ("a.csv", "url,x\rhttps://shop.example/1,1\r\nhttps://shop.example/2,2"),
    ],
)
async def test_file_of_each_form_gives_its_urls(indoors: Indoors, name: str, text: str) -> None:
    (indoors.root / name).write_text(text, encoding="utf-8", newline="")
    (indoors.root / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert await urls_of(parse_source({"file": name}), indoors) == ROWS
    assert await urls_of(parse_source({"file": f"{name}.gz"}), indoors) == ROWS
    assert indoors.reports == []


async def test_line_ends_of_all_kinds_are_found_wherever_a_piece_of_the_file_ends(indoors: Indoors) -> None:
    lines = [f"https://shop.example/{number}" + "x" * (number % 97) for number in range(4_000)]
    (indoors.root / "a.txt").write_text(
        "".join(line + "\r\n" * (n % 2) + "\r" * (n % 2 == 0) for n, line in enumerate(lines)), newline=""
    )
    assert await urls_of(FileSource(path="a.txt"), indoors) == lines
    assert indoors.reports == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.txt", b"https://shop.example/1\nnonsense\n\xff\xfe\nhttps://shop.example/2\n", ["line 2", "line 3"]),
        ("a.txt", b"https://shop.example/1\n" + b"x" * 1_100_000 + b"\nhttps://shop.example/2\n", ["line 2"]),
        ("a.csv", b"url,x\nhttps://shop.example/1,\n,1\n\xff,\nhttps://shop.example/2,", ["line 3", "line 4"]),
        (
            "a.jsonl",
            b'{"url": "https://shop.example/1"}\n[1]\n{"link": "x"}\n{"url": 3}\n{"url": "https://shop.example/2"}',
            ["line 2", "line 3", "line 4"],
        ),
    ],
)
async def test_lines_without_an_address_are_left_out_and_told(
    indoors: Indoors, name: str, text: bytes, told: list[str]
) -> None:
    (indoors.root / name).write_bytes(text)
    assert await urls_of(parse_source({"file": name}), indoors) == ROWS
    assert [words.partition(": ")[0] for words in indoors.reports] == [f"{name} {line}" for line in told]


async def test_many_bad_lines_are_counted_and_not_told_one_by_one(indoors: Indoors) -> None:
    (indoors.root / "a.txt").write_text("https://shop.example/1\n" + "nonsense\n" * 1_000)
    assert await urls_of(FileSource(path="a.txt"), indoors) == ROWS[:1]
    assert len(indoors.reports) == 6
    assert indoors.reports[-1] == "a.txt: 995 more lines without a valid URL were left out."


@pytest.mark.parametrize(
    ("table", "content", "words"),
    [
        ({"file": "missing.txt"}, None, "cannot be read (No such file or directory). Create it, or fix `file`"),
        ({"file": "."}, None, "is not a regular file"),
        ({"file": "/dev/zero"}, None, "is not a regular file"),
        ({"file": "a.txt"}, b"only\nnonsense\n", "holds no valid URL. a.txt line 1: it is not an http or https URL."),
        ({"file": "a.txt"}, "https://x.example/".encode("utf-16"), "not UTF-8 text"),
        ({"file": "a.csv"}, b"link,x\nhttps://x.example/,1\n", "has no column 'url' among the 2 of its first line"),
        ({"file": "a.csv"}, b'url,x\nhttps://x.example/1,"never\nhttps://x.example/2,closed\n', "Fix its quotes"),
        ({"file": "a.jsonl"}, b"[" * 100_000, "holds no valid URL"),
        (
            {"file": "a.gz"},
            gzip.compress(b"https://x.example/" * 99, mtime=0)[:-9],
            "damaged (it ends too early). Compress it again.",
        ),
        ({"file": "a.gz"}, b"\x1f\x8b" + b"x" * 99, "is packed with gzip and damaged (Error -3"),
        (
            {"file": "a.gz"},
            gzip.compress(gzip.compress(b"https://x.example/")),
            "packed with gzip twice. Unpack it once.",
        ),
    ],
    ids=lambda part: "content" if isinstance(part, bytes) else None,  # not all of it, which may be long
)
async def test_file_that_cannot_be_used_fails_with_the_next_step(
    indoors: Indoors, table: dict[str, Any], content: bytes | None, words: str
) -> None:
    if content is not None:
        (indoors.root / table["file"]).write_bytes(content)
    with pytest.raises(SourceFailed) as failure:
        await urls_of(parse_source(table), indoors)
    assert words in str(failure.value)
    assert failure.value.reason == "source"


def test_packed_file_may_have_parts_and_filling_which_is_not_read() -> None:
    # given a small packed file with much behind it
    file = io.BytesIO(gzip.compress(b"one ") + gzip.compress(b"two") + b"\0" * 1_000_000)
    # when it is unpacked, then no more of the filling is read than comes with the file
    assert b"".join(unpacked(file, max_bytes=100)) == b"one two"
    assert file.tell() < 100_000


@pytest.mark.parametrize(
    "packed", [gzip.compress(b"x" * 101), gzip.compress(b"") * (MOST_PARTS + 1)], ids=["large", "parts"]
)
def test_packed_file_that_is_too_much_work_is_refused(packed: bytes) -> None:
    with pytest.raises(TooLarge):
        list(unpacked(io.BytesIO(packed), max_bytes=100))


@pytest.mark.parametrize("ends", range(1, 40))
def test_parts_of_a_packed_file_are_found_wherever_a_piece_of_it_ends(ends: int) -> None:
    class Dripping(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(ends)

    file = Dripping(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert b"".join(unpacked(file, max_bytes=100)) == b"one two"


async def test_pipe_that_nobody_writes_into_holds_nobody_up(indoors: Indoors) -> None:
    os.mkfifo(indoors.root / "pipe")
    with pytest.raises(SourceFailed, match="is not a regular file"):
        await urls_of(FileSource(path="pipe"), indoors)


async def test_empty_file_gives_nothing(indoors: Indoors) -> None:
    for name in ("a.txt", "a.csv", "a.jsonl"):
        (indoors.root / name).touch()
        assert await urls_of(parse_source({"file": name}), indoors) == []


async def test_more_urls_than_allowed_are_left_out_and_told(indoors: Indoors) -> None:
    (indoors.root / "a.txt").write_text("".join(f"https://x.example/{n}\n" for n in range(5)))
    assert await urls_of(FileSource(path="a.txt", max_urls=5), indoors) == [f"https://x.example/{n}" for n in range(5)]
    assert indoors.reports == []
    assert await urls_of(FileSource(path="a.txt", max_urls=3), indoors) == [f"https://x.example/{n}" for n in range(3)]
    (words,) = indoors.reports
    assert words.startswith("The source lists more than 3 URLs; the rest is left out. Raise max_urls")


# --- programs --------------------------------------------------------------------------------------------------------


def python(code: str, **terms: Any) -> Listing:
    return CommandSource(argv=(sys.executable, "-c", code), **terms)


async def test_program_gives_what_it_prints_and_runs_in_the_projects_folder(indoors: Indoors) -> None:
    (indoors.root / "here.txt").write_text("\n".join(ROWS))
    assert await urls_of(CommandSource(argv=("cat", "here.txt")), indoors) == ROWS
    shell = parse_source({"command": "cat here.txt | sort -r", "shell": True})
    assert await urls_of(shell, indoors) == ROWS[::-1]


async def test_no_shell_reads_the_words_of_a_command(indoors: Indoors) -> None:
    assert await urls_of(CommandSource(argv=("echo", "https://x.example/$HOME;ls")), indoors) == [
        "https://x.example/$HOME;ls"
    ]


async def test_program_that_fails_gives_nothing_and_is_quoted(indoors: Indoors) -> None:
    code = "import sys; print('https://x.example/'); sys.stderr.write('the \\x1b[31mdatabase\\nis away'); sys.exit(3)"
    with pytest.raises(SourceFailed) as failure:
        await urls_of(python(code), indoors)
    assert "ended with exit code 3, so its output is not used. It said: the ?[31mdatabase is away" in str(failure.value)


async def test_words_of_a_command_are_shown_to_nobody(indoors: Indoors) -> None:
    commands = {
        "exit code 1": ("false", "--password", "hunter2"),
        "not finished": ("/bin/sh", "-c", "sleep 300\n# hunter2"),
        "printed more": ("yes", "hunter2"),
        "cannot be started": ("no-such\nprogram", "hunter2"),
        "no valid URL": ("echo", "nonsense"),
    }
    for expected, argv in commands.items():
        source = CommandSource(
            argv=argv, max_output=1_000, timeout=timedelta(seconds=0.2 if argv[0] == "/bin/sh" else PATIENCE)
        )
        with pytest.raises(SourceFailed, match=expected) as failure:
            await urls_of(source, indoors)
        words = " ".join([str(failure.value), *indoors.reports])
        assert "hunter2" not in words
        assert "\n" not in words


async def test_program_does_not_see_the_settings_of_the_fleet(
    indoors: Indoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSAMER_RECORDS", "postgresql://gossamer:hunter2@db.example/shop")
    monkeypatch.setenv("SHOP_KEY", "k")
    code = 'import os; print(f\'https://x.example/{os.environ.get("GOSSAMER_RECORDS")}/{os.environ["SHOP_KEY"]}\')'
    assert await urls_of(python(code), indoors) == ["https://x.example/None/k"]


async def test_program_is_done_when_it_has_ended_whoever_holds_its_output(indoors: Indoors) -> None:
    # given a program that starts another one, prints, and ends
    script = "sleep 300 & echo $! > child; seq 20000 | sed s,^,https://x.example/,"
    # when it is read, then all that it printed is there
    try:
        found = await urls_of(
            CommandSource(argv=("/bin/sh", "-c", script), timeout=timedelta(seconds=PATIENCE)), indoors
        )
    finally:
        os.kill(int((indoors.root / "child").read_text()), signal.SIGKILL)
    assert found == [f"https://x.example/{number}" for number in range(1, 20_001)]


@pytest.mark.parametrize("name", ["no-such-program", "/", "."])
async def test_program_that_is_not_there_fails_with_the_next_step(indoors: Indoors, name: str) -> None:
    with pytest.raises(SourceFailed, match=r"cannot be started in .*Check its name"):
        await urls_of(CommandSource(argv=(name,)), indoors)


async def test_program_that_prints_without_end_is_ended(indoors: Indoors) -> None:
    with pytest.raises(SourceFailed, match=r"printed more than 100,000 bytes and was ended. .*raise max_output"):
        await urls_of(CommandSource(argv=("yes",), max_output=100_000), indoors)


async def test_program_that_takes_too_long_is_ended(indoors: Indoors) -> None:
    source = CommandSource(argv=("sleep", "300"), timeout=timedelta(milliseconds=100))
    with pytest.raises(SourceFailed, match=r"not finished within 0.1 s and was ended.*raise timeout. It said nothing"):
        await urls_of(source, indoors)


async def test_program_is_ended_with_all_that_it_started(indoors: Indoors) -> None:
    # given a program whose child holds its output, and whose number is known
    script = "sleep 300 & echo $! > child; exec yes"
    # when it prints too much
    with pytest.raises(SourceFailed, match="printed more than"):
        await urls_of(CommandSource(argv=("/bin/sh", "-c", script), max_output=1_000), indoors)
    # then the child goes, too
    child = int((indoors.root / "child").read_text())
    await until(lambda: not _is_alive(child))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"  # a zombie waits only for whoever inherited it


async def test_program_that_is_killed_is_told_so(indoors: Indoors) -> None:
    with pytest.raises(SourceFailed, match=f"was ended by signal {signal.SIGKILL.value}.*It said nothing"):
        await urls_of(CommandSource(argv=("/bin/sh", "-c", "kill -9 $$")), indoors)
