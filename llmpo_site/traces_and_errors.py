"""Traces and errors for those who collect them: OpenTelemetry and Sentry, both off unless configured.

Neither is told who did what: no addresses, names, cookies, forms or local variables, and no secret of a link.
"""

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from llmpo_site.logs import without_secrets

# The attributes of a request's span that are kept. The span's name has the pattern of the address.
_KEPT = {"http.method", "http.request.method", "http.scheme", "url.scheme", "http.flavor"}
_ADDRESSES = {"http.url", "http.target", "url.full", "url.path"}


def start(process: str) -> None:
    """Begin in this process, "web" or "worker", which must be forked already.

    Raises
    ------
    ImproperlyConfigured
        Something is configured, but its packages are not installed.
    """
    try:
        if settings.SENTRY_DSN:
            _start_sentry()
        if settings.TRACES_ENDPOINT:
            _start_traces(process)
    except ModuleNotFoundError as missing:
        raise ImproperlyConfigured(
            f"SENTRY_DSN and TRACES_ENDPOINT need {missing.name}: pip install -r requirements-observe.txt"
        ) from missing


def _start_sentry() -> None:
    import sentry_sdk
    from sentry_sdk.integrations.celery import CeleryIntegration
    from sentry_sdk.integrations.django import DjangoIntegration

    sentry_sdk.init(
        dsn=settings.SENTRY_DSN,
        # Any other that it finds, such as those of HTTP clients, would tell of requests with keys.
        auto_enabling_integrations=False,
        integrations=[DjangoIntegration(), CeleryIntegration()],
        send_default_pii=False,
        include_local_variables=False,
        max_request_body_size="never",
        before_send=lambda event, hint: cut(event),
    )


def _start_traces(process: str) -> None:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.celery import CeleryInstrumentor
    from opentelemetry.instrumentation.django import DjangoInstrumentor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": f"llm-po-{process}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(settings.TRACES_ENDPOINT)))
    trace.set_tracer_provider(provider)
    # The one puts the trace of a click into its messages, the other takes it out of them.
    of_celery: Any = CeleryInstrumentor  # it has no types
    of_celery().instrument()
    if process == "web":
        DjangoInstrumentor().instrument(request_hook=forget_who)


def forget_who(span: Any, request: HttpRequest) -> None:
    """Remove everything about the person from a request's span as it begins."""
    for name, value in dict(span.attributes).items():
        if name in _ADDRESSES:
            span.set_attribute(name, without_secrets(str(value)).partition("?")[0])
        elif name not in _KEPT:
            span.set_attribute(name, "")


def cut(event: Any) -> Any:
    """The event without the secrets of links and without keys, wherever they are in it."""
    if isinstance(event, dict):
        return {name: cut(value) for name, value in event.items()}
    if isinstance(event, list):
        return [cut(each) for each in event]
    return without_secrets(event) if isinstance(event, str) else event
