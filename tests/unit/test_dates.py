"""Dates as the world writes them: in feeds and sitemaps, and in the metadata of pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.extract.dates import feed_date, page_date


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("Sun, 06 Sep 2009 16:20:00 +0000", "2009-09-06T16:20:00+00:00"),
        ("Thu, 05 Jan 17 13:34:52 +0100", "2017-01-05T13:34:52+01:00"),
        ("05 Jan 17 13:34", "2017-01-05T13:34:00+00:00"),
        ("Thurs, 1 Sept 2022 9:05 EST", "2022-09-01T09:05:00-05:00"),
        ("Monday, 05-Jan-98 10:00:00 UTC", "1998-01-05T10:00:00+00:00"),
        ("Tue, 14 Feb 2017 10:00:00 GMT+01:00", "2017-02-14T10:00:00+01:00"),
        ("Mon, 06 Sep 2010 24:00:00 GMT", "2010-09-07T00:00:00+00:00"),
        ("Fri Jul 3 10:11:12 UTC 2015", "2015-07-03T10:11:12+00:00"),
        ("February 3rd, 2020 4:05 pm", "2020-02-03T16:05:00+00:00"),
        ("12 Dez. 2020 10:00:00 CET", "2020-12-12T10:00:00+01:00"),
        ("  1 Jan 2020 ", "2020-01-01T00:00:00+00:00"),
        ("2004-10-01T18:23:17+00:00", "2004-10-01T18:23:17+00:00"),
        ("2004-10-01T18:23:17.5Z", "2004-10-01T18:23:17.500000+00:00"),
        ("2004-10-01 18:23 -0530", "2004-10-01T18:23:00-05:30"),
        ("2004-10-01", "2004-10-01T00:00:00+00:00"),
        ("2004-10", "2004-10-01T00:00:00+00:00"),
        ("2004", "2004-01-01T00:00:00+00:00"),
        ("20041001T182317Z", "2004-10-01T18:23:17+00:00"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
    ],
)
def test_date_is_understood(text: str, iso: str) -> None:
    date = feed_date(text)
    assert date is not None
    assert date.isoformat() == iso


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "0000-00-00", "2020-13-01", "2020-02-30", "Wed, 32 Jan 2020", "1 Foo 2020", "1" * 1000),
        *("9999-12-31T24:00:00Z", "2020-01-01T25:00:00Z", "2020-01-01T10:61", "2020-01-01T10:00:00 XYZ"),
        "2020-01-01T10:00:00+99:00",
    ],
)
def test_what_is_no_date_is_none(text: str) -> None:
    assert feed_date(text) is None


@given(st.text(alphabet="0123456789-+:TZ ,.GMTJanFebPm()", max_size=60))
def test_no_text_breaks_the_reading_of_dates(text: str) -> None:
    date = feed_date(text)
    assert date is None or date.tzinfo is not None


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-05-06", datetime(2024, 5, 6)),
        ("20240506", datetime(2024, 5, 6)),
        ("2024/05/06 7:08", datetime(2024, 5, 6, 7, 8)),
        ("2024-05-06T07:08:09.123456789+0530", datetime(2024, 5, 6, 7, 8, 9, 123456, timezone(timedelta(minutes=330)))),
        ("Mon, 06 May 2024 07:08:09 +0000", datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
        (1714979289000, datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
        ("May 31, 2017, 1:43:13 PM", datetime(2017, 5, 31, 13, 43, 13)),
        ("Thu Oct 20 2016 13:51:44 GMT+0100 (BST)", datetime(2016, 10, 20, 12, 51, 44, tzinfo=UTC)),
        ("Sabtu, 03 Jun 2017 11:59 WIB", datetime(2017, 6, 3, 11, 59)),
        ("May 6, 2024", None),
        ("6. marraskuuta 2024 10:00", None),
        ("2024-05", None),
        ("2024-13-06", None),
        ("0001-01-01T00:00:00Z", None),
        ("9" * 400, None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (True, None),
        ({"a": 1}, None),
    ],
)
def test_dates_of_machines_are_read_and_others_are_not_guessed(text: object, time: datetime | None) -> None:
    assert page_date(text) == time
