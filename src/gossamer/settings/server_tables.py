"""The tables of the HTTP API: [server], and the third-party services that it may call for clients of Firecrawl; and of
what processes say about their work: counters, logs, traces."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..units import Rate, Size


class ServerTable(msgspec.Struct, frozen=True, kw_only=True):
    """[server]: the HTTP API. Limits are per key; a key may have its own `rate` and `open_jobs`."""

    host: str = "127.0.0.1"
    port: int = 8420
    hosts: tuple[str, ...] = ()  # host names under which clients may reach it, besides those of this machine
    rate: Rate = Rate(timedelta(milliseconds=50))
    open_jobs: int = 100
    crawl_limit: int | None = 100_000  # pages of a crawl that a key starts
    max_body: Size = Size(1024 * 1024)
    max_stream: Size = Size(4 * 1024**3)  # of records in one response
    connections: int = 2000  # open, of all clients; half of them may be idle
    connections_per_address: int | None = 200  # open, of one client; a proxy before the server is one client
    max_wait: timedelta = timedelta(seconds=120)  # how long a request may wait for its page
    keep_jobs: timedelta = timedelta(days=7)  # after their end
    public_url: str = ""  # where clients reach it, for links in answers and callbacks: https://scrape.example
    trusted_proxies: tuple[str, ...] = ()  # addresses or networks whose X-Forwarded-Proto and -Host are trusted
    sign_in_idle: timedelta = timedelta(hours=12)  # idle time after which a user of the dashboard is signed out
    sign_in_limit: timedelta = timedelta(days=7)  # after which a user must sign in again in any case


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """[search]: a search engine for `POST /v2/search`. Empty: there is none."""

    url: str = ""  # of the search of a SearXNG that answers in JSON: http://127.0.0.1:8888/search
    timeout: timedelta = timedelta(seconds=20)


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """[model]: a model for the format `json`, through an OpenAI-compatible API. Empty: there is none."""

    url: str = ""  # https://api.example/v1
    name: str = ""  # of the model
    secret: str = ""  # the name of the secret with the API key; "": none is needed
    timeout: timedelta = timedelta(seconds=60)
    max_chars: int = 40_000  # characters of a page that are sent
    max_tokens: int = 4_000  # of an answer
    at_once: int = 4  # concurrent requests of one server


class Monitor(msgspec.Struct, frozen=True, kw_only=True):
    domains: int = 50  # with counters of their own; the others count together


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """[log]: from which level on processes log. An admin may set both by hand while they run."""

    level: str = "info"
    levels: dict[str, str] = {}  # of single processes, HOST/PID, and of machines, HOST

    def level_of(self, process: str) -> str:
        """`process` is a name as of workers: host, process id, start."""
        host_and_pid = process.rpartition("/")[0]
        own = self.levels.get(host_and_pid) or self.levels.get(host_and_pid.rpartition("/")[0])
        return own or self.level


class Otel(msgspec.Struct, frozen=True, kw_only=True):
    """[otel]: traces of attempts, by OpenTelemetry. Needs gossamer[otel]."""

    enabled: bool = False
    endpoint: str = "http://127.0.0.1:4318"  # of a collector that takes OTLP over HTTP
    sample: float = 0.01  # the share of attempts that is traced
