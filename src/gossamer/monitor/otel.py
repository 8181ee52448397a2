"""OpenTelemetry traces: a span for each sampled attempt, with its lease, robots.txt, fetch, parsing and storing below
it. Needs `gossamer[otel]`, which is imported only if traces are enabled.

A thread of the SDK sends spans in batches by OTLP over HTTP. How it fails: if the collector does not answer, spans are
lost, never a page. URLs are sent without their queries, headers and bodies not at all.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from ..errors import MissingExtra
from ..settings import Settings
from ..trace import Trace, Tracer

EXPORT_SECONDS = 5.0  # for one delivery to the collector; also the longest that the end of a process waits for it
NANO = 1_000_000_000


@asynccontextmanager
async def open_tracer(
    settings: Settings, worker: str, version: str, exporter: Any = None
) -> AsyncIterator[Tracer | None]:
    """The tracer of this process; None if traces are off. `exporter` is an OpenTelemetry exporter, for tests. Raises
    MissingExtra."""
    if not settings.otel.enabled:
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtra("Traces are not installed (otel.enabled): pip install 'gossamer[otel]'") from error
    if exporter is None:
        address = f"{settings.otel.endpoint.rstrip('/')}/v1/traces"
        exporter = OTLPSpanExporter(endpoint=address, timeout=EXPORT_SECONDS)
    resource = Resource.create({"service.name": "gossamer", "service.version": version, "service.instance.id": worker})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, export_timeout_millis=EXPORT_SECONDS * 1000, schedule_delay_millis=1000)
    )
    try:
        yield OtelTracer(provider.get_tracer("gossamer", version), settings.otel.sample)
    finally:
        await asyncio.to_thread(provider.shutdown)


class OtelTracer:
    """Fulfils `Tracer`. `sample` is the share of attempts that is traced."""

    def __init__(self, tracer: Any, sample: float) -> None:  # Any: the package is an extra
        self._tracer = tracer
        self._sample = sample

    @contextmanager
    def attempt(self, name: str, *, since: float, **facts: str | int | float) -> Iterator[Trace | None]:
        if random.random() >= self._sample:
            yield None
            return
        from opentelemetry.context import Context

        now = time.time_ns()
        began = now - int(since * NANO)
        with self._tracer.start_as_current_span(
            name, context=Context(), start_time=began, attributes=_named(facts), record_exception=False
        ) as span:
            lease = self._tracer.start_span("lease", start_time=began)
            lease.end(now)
            yield OtelTrace(self._tracer, span)


class OtelTrace:
    """Fulfils `Trace`."""

    def __init__(self, tracer: Any, span: Any) -> None:  # Any: as above
        self._tracer = tracer
        self._span = span

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        # An error message may contain a URL with its query: only the type is recorded.
        with self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as span:
            try:
                yield
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                raise

    def note(self, **facts: str | int | float) -> None:
        self._span.set_attributes(_named(facts))


def _named(facts: dict[str, str | int | float]) -> dict[str, str | int | float]:
    return {f"gossamer.{name}": value for name, value in facts.items()}
