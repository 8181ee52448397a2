"""[managed.NAME]: a scraping API of a vendor, described so that no code is needed for another one.

Where a field of the shape is left empty, the preset's value holds. fetch/managed/vendor.py checks the whole.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..units import Secret, Size


class Managed(msgspec.Struct, frozen=True, kw_only=True):
    """An answer's parts are named by `..._at`: `data.html` is a path in its JSON, `header:x-cost` one of its headers,
    `http:status`, `http:body` and `http:headers` are those of the answer itself."""

    preset: str = ""  # the vendor's shape: "scraperapi" or "finedata"; empty: all of it is written below
    url: str = ""  # where its API is
    key: Secret = Secret("")
    env: str = ""  # name of a variable with the key
    secret: str = ""  # a file as in /run/secrets that holds the key
    allow_private: bool = False  # may the API and our callback address be in a private network?

    # What is asked for
    mode: str = "sync"  # or "async": a job that is polled; "batch": many URLs in one job
    render: bool = False  # always let the vendor run the page's scripts
    residential: bool = False  # always leave through a home connection
    country: str = ""  # the country to leave from, where the spider names none
    timeout: timedelta = timedelta(seconds=90)  # for one call of the API
    deadline: timedelta = timedelta(minutes=10)  # for a job or a batch, from asking to the page
    poll: timedelta = timedelta(seconds=2)  # between two looks at a job; grows to `max_poll`
    max_poll: timedelta = timedelta(seconds=30)
    batch_window: timedelta = timedelta(milliseconds=500)  # how long a batch waits for more URLs
    batch_size: int = 100
    callback_url: str = ""  # where the vendor reaches us: https://me.example/hook
    callback_listen: str = ""  # where we listen for that: 0.0.0.0:8099
    callback_wait: timedelta = timedelta(minutes=1)  # without a callback for so long, the batch is polled
    max_answer: Size = Size(64 * 1024 * 1024)  # of a batch; longer ones are refused

    # How it is asked
    key_at: str = ""  # "query:api_key" or "header:x-api-key"
    key_prefix: str = ""  # before the key: "Bearer "
    method: str = ""  # GET or POST
    send: str = ""  # parameters go into the "query" or into a "json" body
    path: str = ""
    url_param: str = ""
    render_param: str = ""  # a name, which is sent with true, or name=value
    wait_for_param: str = ""  # the name for a CSS selector to wait for
    residential_param: str = ""
    country_param: str = ""
    extra: tuple[Secret, ...] = ()  # name=value, sent with every page; secret, for a second token may be among them

    # Where things are in the answer
    body_at: str = ""
    body_encoding: str = ""  # "text" or "base64"
    status_at: str = ""  # of the page
    final_url_at: str = ""
    headers_at: str = ""  # of the page
    cost_at: str = ""  # tokens
    error_at: str = ""  # words
    vendor_statuses: tuple[int, ...] = ()  # of the answer: the API itself failed; empty: by the shape
    failed_statuses: tuple[int, ...] = ()  # of the answer: the API could not get this page

    # Jobs: mode = "async", and the states also for batches
    submit_path: str = ""
    job_path: str = ""  # /jobs/{id}
    job_id_at: str = ""
    state_at: str = ""
    done_states: tuple[str, ...] = ()
    failed_states: tuple[str, ...] = ()
    result_at: str = ""  # within a job, the part that looks like the answer of mode = "sync"

    # Batches: mode = "batch"
    batch_path: str = ""
    batch_param: str = ""  # the name of the list of pages
    batch_tag: str = ""  # the name under which each page carries our id
    callback_param: str = ""
    batch_job_path: str = ""  # /batch/{id}; empty: no polling, callbacks alone
    batch_id_at: str = ""
    results_at: str = ""  # the list of results, in a callback and when polled
    tag_at: str = ""  # our id, within a result
