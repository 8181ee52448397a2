"""Addresses of object stores: what they say, what the environment adds, and what is refused without printing a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.backends.object.bucket import BucketAddress, demand_keys, keys_from_files, parse_address
from gossamer.errors import Misconfigured


def test_a_bare_address_is_aws_itself() -> None:
    assert parse_address("s3://pages/a/b", {}) == BucketAddress(
        bucket="pages", prefix="a/b", endpoint=None, region=None, path_style=None, plain_http=False
    )


def test_the_address_says_it_all() -> None:
    address = "s3://pages/a%20b/?endpoint=https://minio.example:9000/&region=eu-central-1&path_style=false"
    assert parse_address(address, {"AWS_ENDPOINT_URL_S3": "https://other.example", "AWS_REGION": "x"}) == BucketAddress(
        bucket="pages",
        prefix="a b",
        endpoint="https://minio.example:9000",
        region="eu-central-1",
        path_style=False,
        plain_http=False,
    )


def test_the_environment_fills_in_what_is_left_out() -> None:
    environment = {
        "AWS_ENDPOINT_URL": "https://second.example",
        "AWS_ENDPOINT_URL_S3": "https://first.example",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    place = parse_address("s3://pages", environment)
    assert (place.endpoint, place.region, place.prefix) == ("https://first.example", "eu-west-1", "")
    assert str(place) == "s3://pages at https://first.example"


def test_keys_may_be_in_files_and_one_in_the_environment_goes_before(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("me\n")
    (tmp_path / "secret").write_text("hunter2\n")
    files = {"AWS_ACCESS_KEY_ID_FILE": str(tmp_path / "id"), "AWS_SECRET_ACCESS_KEY_FILE": str(tmp_path / "secret")}
    place = parse_address("s3://pages?endpoint=https://minio.example", {})

    demand_keys(place, files)
    assert keys_from_files(files) == {"aws_access_key_id": "me", "aws_secret_access_key": "hunter2"}
    assert keys_from_files({**files, "AWS_ACCESS_KEY_ID": "you"}) == {"aws_secret_access_key": "hunter2"}
    with pytest.raises(Misconfigured, match="AWS_ACCESS_KEY_ID_FILE names /nowhere"):
        keys_from_files({"AWS_ACCESS_KEY_ID_FILE": "/nowhere"})
    with pytest.raises(Misconfigured, match="there are no keys"):
        demand_keys(place, {"AWS_ACCESS_KEY_ID": "me"})


@pytest.mark.parametrize("host", ["127.0.0.1:9000", "127.8.8.8", "[::1]:9000", "localhost:9000", "s3.localhost"])
def test_http_is_fine_on_this_machine(host: str) -> None:
    assert parse_address(f"s3://pages?endpoint=http://{host}", {}).plain_http


@pytest.mark.parametrize("host", ["10.0.0.5:9000", "minio:9000", "s3.example", "127.0.0.1.example", "[fe80::1]"])
def test_http_elsewhere_needs_permission_in_the_address(host: str) -> None:
    with pytest.raises(Misconfigured, match="allow_http=true"):
        parse_address(f"s3://pages?endpoint=http://{host}", {"AWS_ALLOW_HTTP": "true"})
    with pytest.raises(Misconfigured, match="allow_http=true"):
        parse_address("s3://pages", {"AWS_ENDPOINT_URL": f"http://{host}"})
    assert parse_address(f"s3://pages?endpoint=http://{host}&allow_http=true", {}).plain_http


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("folder:///x", "s3://bucket/prefix"),
        ("s3://", "not a bucket name"),
        ("s3:///prefix", "not a bucket name"),
        ("s3://a b/x", "not a bucket name"),
        ("s3://[broken/x", "not an address"),
        ("s3://pages/a/../b", "cannot begin"),
        ("s3://pages/a//b", "cannot begin"),
        ("s3://pages/%00", "cannot begin"),
        ("s3://pages#x", "s3://bucket/prefix"),
        ("s3://pages?regoin=x", "Did you mean region"),
        ("s3://pages?colour=red", "It may hold endpoint"),
        ("s3://pages?path_style=perhaps", "path_style=true"),
        ("s3://pages?endpoint=ftp://x", "endpoint=https://"),
        ("s3://pages?endpoint=https://", "endpoint=https://"),
        ("s3://pages?endpoint=https://x:port", "endpoint=https://"),
    ],
)
def test_a_wrong_address_says_what_to_write(address: str, complaint: str) -> None:
    with pytest.raises(Misconfigured, match=complaint):
        parse_address(address, {})


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIAKEY:hunter2@pages/x",
        "s3://pages?endpoint=https://AKIAKEY:hunter2@minio.example",
        "s3://pages?secret_access_key=hunter2",
        "s3://pages?endpoint=https://AKIAKEY:hunter2@minio.example:port",
    ],
)
def test_a_key_in_the_address_is_refused_and_not_printed(address: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        parse_address(address, {})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
