"""What holds when several places speak of the same thing: command line, a site's table, spider, settings."""

from __future__ import annotations

import pytest

from gossamer import Spider
from gossamer.backends.addresses import place_of, postgres_schema, redacted
from gossamer.backends.open import open_archive
from gossamer.errors import Misconfigured
from gossamer.settings import load
from gossamer.terms import job_terms, politeness_of, retry_terms, robots_rule, site_terms

TOML = """
[crawl]
depth = 2
limit = 20

[politeness]
rate = "1/s"

[domains."calm.example"]
rate = "0.1/s"
robots = false
max_attempts = 9
"""


class Eager(Spider):
    start_urls = ("https://calm.example/",)
    rate = "5/s"
    max_depth = 7
    limit = 70
    robots = True


class Plain(Spider):
    start_urls = ("https://calm.example/",)


def read(folder, **flags):
    (folder / "gossamer.toml").write_text(TOML)
    return load(start=folder, environ={}, flags={name.replace("__", "."): value for name, value in flags.items()})


def seconds(settings, spider, site):
    return site_terms(settings, politeness_of(settings, spider))(site).own_spacing(None)


def test_the_command_line_goes_before_a_sites_table_that_before_the_spider_that_before_the_settings(tmp_path):
    settings = read(tmp_path)
    assert [seconds(settings, Eager(), site) for site in ("calm.example", "other.example")] == [10, 0.2]
    assert seconds(settings, Plain(), "other.example") == 1

    flagged = read(tmp_path, crawl__rate="4/s")
    assert [seconds(flagged, Eager(), site) for site in ("calm.example", "other.example")] == [0.25, 0.25]


def test_depth_and_limit_follow_the_same_order(tmp_path):
    settings = read(tmp_path)
    assert [(terms.depth, terms.limit) for terms in (job_terms(settings, Eager()), job_terms(settings, Plain()))] == [
        (7, 70),
        (2, 20),
    ]

    terms = job_terms(read(tmp_path, crawl__depth=1, crawl__limit=3), Eager())
    assert (terms.depth, terms.limit) == (1, 3)


def test_a_sites_table_speaks_for_robots_and_attempts_there(tmp_path):
    settings = read(tmp_path)
    obeys = robots_rule(settings, Eager())
    assert (obeys("calm.example"), obeys("other.example")) == (False, True)
    terms = retry_terms(settings)
    assert (terms("calm.example").max_attempts, terms("other.example").max_attempts) == (9, None)


@pytest.mark.parametrize(
    ("role", "address"), [("state", "mysql://u:pw@h/x"), ("records", "redis://h/0"), ("archive", "ftp://h/x")]
)
def test_an_address_that_no_backend_knows_is_refused_with_examples(tmp_path, role, address):
    settings = load(start=tmp_path, environ={}, flags={role: address})
    with pytest.raises(Misconfigured, match=rf"{role} = .* not an address that a backend supports") as refused:
        place_of(settings, role)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["mongodb", "mongodb+srv"])
def test_mongodb_is_not_a_record_store(tmp_path, scheme):
    settings = load(start=tmp_path, environ={}, flags={"records": f"{scheme}://joe:pw@db.example/crawls"})
    with pytest.raises(Misconfigured) as refused:
        place_of(settings, "records")
    assert str(refused.value) == (
        f"records = '{scheme}://***@db.example/crawls': MongoDB is not a record store. Write "
        "'sqlite:///gossamer-data/records.db' or 'postgresql://localhost/gossamer'."
    )


async def test_a_local_address_needs_a_path(tmp_path):
    settings = load(start=tmp_path, environ={}, flags={"archive": "folder://"})
    with pytest.raises(Misconfigured, match="three slashes"):
        async with open_archive(settings, "w"):
            pass


def test_secrets_of_an_address_are_not_shown():
    assert redacted("postgresql://joe:pa@ss@db.example:5432/x?sslpassword=s") == "postgresql://***@db.example:5432/x"
    assert redacted("s3://bucket/prefix?endpoint=http://h") == "s3://bucket/prefix"


def test_projects_have_schemas_of_their_own(tmp_path):
    named = load(start=tmp_path, environ={}, flags={"project": "My-Books.2"})
    assert postgres_schema(named) == "gossamer_my_books_2"
    assert postgres_schema(load(start=tmp_path, environ={})) == "gossamer"
