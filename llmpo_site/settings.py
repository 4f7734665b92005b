"""All settings, from the environment or a file ``.env``, beside ``manage.py`` or in ``VAR_DIR``.

Every variable is listed with its default in ``.env.example``. A value that cannot be understood stops the
start with a message that names the variable; nothing falls back silently.
"""

import os
import re
import socket
from ipaddress import ip_network
from typing import Any, cast
from urllib.parse import urlsplit

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from environs import Env, ValidationError, validate

from engine.domain import limits
from engine.domain.exchange_deadlines import may_carry_secrets
from llmpo_site import folders

# Backups, exports, uploads and databases are for the user of these processes alone.
os.umask(0o077)
BASE_DIR = folders.BASE

env = Env()
env.read_env(BASE_DIR / ".env", recurse=False)
# Folder of the database, the broker and the workers' files in the embedded setup.
VAR_DIR = env.path("VAR_DIR", BASE_DIR / "var")
env.read_env(VAR_DIR / ".env", recurse=False)


def _networks(written: list[str]) -> None:
    for network in written:
        try:
            ip_network(network if network != "none" else "0.0.0.0/0", strict=False)
        except ValueError as wrong:
            raise ValidationError(f"{wrong}. List addresses or networks, or say none.") from wrong


def _object(options: object) -> None:
    if not isinstance(options, dict):
        raise ValidationError('Write a JSON object, such as {"enforce_eager": true}.')


def _web_address(written: str) -> None:
    parts = urlsplit(written)
    if written and not (parts.scheme in {"http", "https"} and parts.hostname):
        raise ValidationError("Write the whole address, such as https://label.example.org.")


def _path(written: str) -> None:
    if written and not re.fullmatch(r"(?:/[\w.~-]+)+", written):
        raise ValidationError("Write a path such as /llmpo: a slash first, and none last.")


def _encrypted(written: str) -> None:
    if written and not may_carry_secrets(written):
        raise ValidationError("Write an address with https://. http:// is for localhost alone.")


def _long_enough(secrets: list[str]) -> None:
    if any(len(secret) < _SECRET_CHARACTERS for secret in secrets):
        raise ValidationError(f"Use at least {_SECRET_CHARACTERS} random characters for each.")


_SECRET_CHARACTERS = 32
DEBUG = env.bool("DEBUG", False)
SECRET_KEY = env.str(
    "SECRET_KEY",
    validate=validate.Length(
        min=_SECRET_CHARACTERS, error=f"Use at least {_SECRET_CHARACTERS} random characters."
    ),
)
# Former keys: sessions, links and second steps made with them stay valid.
SECRET_KEY_FALLBACKS: list[str] = env.list("SECRET_KEY_FALLBACKS", [])
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", [])
HTTPS = env.bool("HTTPS", False)
# The path below which a proxy serves this site, such as /llmpo; empty: the root of its host.
BASE_PATH = env.str("BASE_PATH", "", validate=_path)
FORCE_SCRIPT_NAME = BASE_PATH or None

# ---------------------------------------------------------------- applications

INSTALLED_APPS = [
    "labeling.apps.AdminSiteConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django_htmx",
    "csp",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.usersessions",
    "engine",
    "labeling",
]

MIDDLEWARE = [
    # First of all, so that the log names the request of every answer.
    "labeling.middleware.request_id.RequestId",
    # Before the checks of host and TLS, which probes would fail.
    "labeling.middleware.health.Health",
    "labeling.middleware.metrics.Metrics",
    # Before the rest: everything after it reads the client's address and scheme.
    "labeling.accounts.client_address.ClientAddress",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "labeling.middleware.no_store.NothingIsStored",
    "django.middleware.gzip.GZipMiddleware",
    "labeling.middleware.failures.Failures",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "labeling.language.PageLanguage",
    "django.middleware.common.CommonMiddleware",
    "labeling.middleware.combining_marks.Legible",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]

ROOT_URLCONF = "llmpo_site.urls"
WSGI_APPLICATION = "llmpo_site.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [folders.RESOURCES / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# ---------------------------------------------------------------- database

# Keep connections: PostgreSQL plans the queries of a click anew in each of them.
DATABASES = {
    "default": env.dj_db_url("DATABASE_URL", f"sqlite:///{VAR_DIR / 'llmpo.sqlite3'}", conn_max_age=600)
}
if DATABASES["default"].get("ENGINE") == "django.db.backends.sqlite3":
    # Writers wait for the lock at BEGIN; a deferred transaction that reads and then writes would
    # fail at once with "database is locked" instead.
    DATABASES["default"]["ENGINE"] = "llmpo_site.sqlite"
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # A file, because tests start workers, which cannot reach an in-memory database. Tables made from the
    # models save each process the five seconds of the migrations, which PostgreSQL's tests run.
    DATABASES["default"]["TEST"] = {"NAME": VAR_DIR / "test.sqlite3", "MIGRATE": False}
else:
    DATABASES["default"]["ENGINE"] = "llmpo_site.postgresql"
    DATABASES["default"]["OPTIONS"] = {
        # A server that does not answer must not hold a thread for the minutes that TCP would wait.
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        # Only `engine.selectors.prepared_reads` prepares statements. PostgreSQL would go on to plan the
        # largest anew at each call, which takes it five times as long as to execute them. To compile one
        # (JIT) takes fifty times as long, and is done anew each time.
        "options": "-c plan_cache_mode=force_generic_plan -c jit=off",
        **DATABASES["default"].get("OPTIONS", {}),
    }
# A web request waits this long for PostgreSQL's answer to a statement, and then answers 503.
REQUEST_DATABASE_SECONDS = env.float(
    "REQUEST_DATABASE_SECONDS", 30.0, validate=validate.Range(min=0, min_inclusive=False)
)
# Cache for dashboards and for counts of API requests. Each web process has its own unless a server is set.
CACHES = {"default": env.dj_cache_url("CACHE_URL", "locmem://")}
# With Django's default of 300 entries, somebody who tries many names could push out the count of their wrong
# passwords.
if CACHES["default"]["BACKEND"].endswith("LocMemCache"):
    CACHES["default"]["OPTIONS"] = {"MAX_ENTRIES": 100_000}
# Pages and clicks work without Redis, so they do not wait for a silent server.
_REDIS_SECONDS = 2
_redis_timeouts = {"socket_connect_timeout": _REDIS_SECONDS, "socket_timeout": _REDIS_SECONDS}
if CACHES["default"]["BACKEND"].endswith(".redis.RedisCache"):
    CACHES["default"]["BACKEND"] = "llmpo_site.cache.RedisCache"
    CACHES["default"]["OPTIONS"] = _redis_timeouts | CACHES["default"].get("OPTIONS", {})
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# ---------------------------------------------------------------- login

AUTH_USER_MODEL = "engine.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
SESSION_ENGINE = "labeling.accounts.sessions"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
# The number of wrong passwords for one name from one address in a quarter of an hour. Ten times as many are
# allowed for one address with all names together, and for one name from all addresses together.
LOGIN_FAILURE_LIMIT = env.int("LOGIN_FAILURE_LIMIT", 10, validate=validate.Range(min=1))
# Shown to people who cannot log in: a name, an address or a room where they can ask.
SITE_CONTACT = env.str("SITE_CONTACT", "")
PASSWORD_RESET_TIMEOUT = 24 * 3600

ACCOUNT_ADAPTER = "labeling.accounts.adapters.AccountAdapter"
ACCOUNT_FORMS = {"login": "labeling.accounts.forms.UsernameLoginForm"}
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "optional"
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[LLM-PO] "
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_CONFIRM_EMAIL_ON_GET = False
ACCOUNT_LOGIN_ON_PASSWORD_RESET = True
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if HTTPS else "http"
ACCOUNT_REAUTHENTICATION_REQUIRED = True
# For so many seconds a login counts as recent. Later, tokens, owners and deleting ask for the password.
ACCOUNT_REAUTHENTICATION_TIMEOUT = env.int("RECENT_LOGIN_SECONDS", 900, validate=validate.Range(min=60))
ACCOUNT_RATE_LIMITS = {
    # Any login, right or wrong: an office that starts at nine shares one address. Wrong ones are counted
    # below.
    "login": None,
    # The key is a name at one address, a name on one known browser, or an account that asks for a second
    # step.
    "login_failed": f"{LOGIN_FAILURE_LIMIT}/15m/key",
    "login_failed_address": f"{10 * LOGIN_FAILURE_LIMIT}/15m/ip",
    "login_failed_name": f"{10 * LOGIN_FAILURE_LIMIT}/15m/key",
    # Logins at the provider that failed, and new accounts by invitation, whose key is the browser.
    "provider_failed": f"{10 * LOGIN_FAILURE_LIMIT}/15m/ip,{LOGIN_FAILURE_LIMIT}/15m/key",
    "join": f"{10 * LOGIN_FAILURE_LIMIT}/15m/ip,{LOGIN_FAILURE_LIMIT}/15m/key",
    "reset_password": "10/15m/ip,3/15m/key",
    # Reports that are shared by link, read without an account: an office that opens one shares one address.
    "shared_report": "300/5m/ip",
    # The form says whether the current password is right, so it could be used to guess it.
    "change_password": f"{LOGIN_FAILURE_LIMIT}/15m/user",
}

MFA_ADAPTER = "labeling.accounts.adapters.TwoStepAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_TOTP_ISSUER = "LLM-PO"
# Accept the code before and the one after, too: phones' clocks differ.
MFA_TOTP_TOLERANCE = 1
MFA_RECOVERY_CODES_SHOW_ONCE = True
# Without mail, addresses cannot be verified.
MFA_ALLOW_UNVERIFIED_EMAIL = True

# Login with the organisation's own accounts (OpenID Connect), offered where all three are set.
OIDC_ISSUER = env.str("OIDC_ISSUER", "", validate=[_web_address, _encrypted]).rstrip("/")
OIDC_CLIENT_ID = env.str("OIDC_CLIENT_ID", "")
OIDC_CLIENT_SECRET = env.str("OIDC_CLIENT_SECRET", "")
OIDC_NAME = env.str("OIDC_NAME", "single sign-on")
# Some providers send the groups of a person only for a scope of its own.
OIDC_SCOPES = env.list("OIDC_SCOPES", ["openid", "profile", "email"])
OIDC_GROUPS_CLAIM = env.str("OIDC_GROUPS_CLAIM", "groups")
if len({bool(OIDC_ISSUER), bool(OIDC_CLIENT_ID), bool(OIDC_CLIENT_SECRET)}) > 1:
    raise ImproperlyConfigured("Set OIDC_ISSUER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET, or none of them.")
SOCIALACCOUNT_ADAPTER = "labeling.accounts.adapters.OidcAdapter"
# Only for addresses that both sides have verified: see the adapter.
SOCIALACCOUNT_EMAIL_AUTHENTICATION = True
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
SOCIALACCOUNT_PROVIDERS: dict[str, dict[str, Any]] = {
    "openid_connect": {
        "provider_class": "labeling.accounts.oidc.Provider",
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [],
    }
}
if OIDC_ISSUER:
    SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"].append(
        {
            "provider_id": "sso",
            "name": OIDC_NAME,
            "client_id": OIDC_CLIENT_ID,
            "secret": OIDC_CLIENT_SECRET,
            "settings": {"server_url": OIDC_ISSUER, "scope": OIDC_SCOPES},
        }
    )

# The proxies in front, by address or network. Only their forwarding headers are believed. None: not
# configured, and superusers are warned when a request shows that there is a proxy.
_proxies: list[str] = env.list("TRUSTED_PROXIES", [], validate=_networks)
TRUSTED_PROXIES = (
    [ip_network(proxy, strict=False) for proxy in _proxies if proxy != "none"] if _proxies else None
)

# ---------------------------------------------------------------- how long things are kept

SESSION_COOKIE_AGE = 86_400 * env.int("SESSION_DAYS", 14, validate=validate.Range(min=1))
# Invitations that are used up or over, API tokens that are revoked or over.
KEEP_ENDED_DAYS = env.int("KEEP_ENDED_DAYS", 30, validate=validate.Range(min=1))
# Messages that were sent or given up.
KEEP_NOTIFICATIONS_DAYS = env.int("KEEP_NOTIFICATIONS_DAYS", 90, validate=validate.Range(min=1))
# The log of /admin/. The log of experiments is kept for good.
KEEP_ADMIN_LOG_DAYS = env.int("KEEP_ADMIN_LOG_DAYS", 365, validate=validate.Range(min=1))

# ---------------------------------------------------------------- security

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = LANGUAGE_COOKIE_PATH = BASE_PATH or "/"
if BASE_PATH:
    # Another site of the same host may have cookies with Django's names at its root, and they would count.
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "llmpo_sessionid", "llmpo_csrftoken"
    LANGUAGE_COOKIE_NAME = "llmpo_language"
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env.bool("BEHIND_TLS_PROXY", False) else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CSRF_FAILURE_VIEW = "labeling.middleware.failures.csrf_failure"

# ---------------------------------------------------------------- limits

# Empty: the default of engine/domain/limits.py. docs/limits.md has all of them.
MOST_POLICIES = env.int("MOST_POLICIES", None, validate=validate.Range(min=2))
MOST_TASKS = env.int("MOST_TASKS", None, validate=validate.Range(min=1))
MOST_RESPONSES = env.int("MOST_RESPONSES", None, validate=validate.Range(min=1))
MOST_JUDGMENTS = env.int("MOST_JUDGMENTS", None, validate=validate.Range(min=1))
MOST_TRIED = env.int("MOST_TRIED", None, validate=validate.Range(min=1))
MOST_FILE_BYTES = env.int("MOST_FILE_BYTES", None, validate=validate.Range(min=1))
# Django's own limits on a request. labeling.middleware.failures refuses by the declared length before
# anything is read.
DATA_UPLOAD_MAX_MEMORY_SIZE = limits.REQUEST_BYTES.default
DATA_UPLOAD_MAX_NUMBER_FIELDS = limits.FORM_FIELDS.default
# Shards of a table.
DATA_UPLOAD_MAX_NUMBER_FILES = 100
# A larger upload waits on the disk and not in memory.
FILE_UPLOAD_MAX_MEMORY_SIZE = 1_000_000
# Where it waits. A folder of its own: uploads must not fill what the process needs.
FILE_UPLOAD_TEMP_DIR = env.path("UPLOAD_DIR", None)

# ---------------------------------------------------------------- API, notifications

# Requests of one token per minute. Counted in the cache: by each web process for itself unless CACHE_URL
# names a shared one.
API_REQUESTS_PER_MINUTE = env.int("API_REQUESTS_PER_MINUTE", 600, validate=validate.Range(min=1))
# Address of this site in links of messages.
SITE_URL = env.str("SITE_URL", "http://localhost:8000", validate=_web_address).rstrip("/")
# Addresses of pages begin with BASE_PATH.
SITE_URL = SITE_URL.removesuffix(BASE_PATH)
# console:// writes messages into the worker's log. Real ones: submission://user:password@host:587
_email = env.dj_email_url("EMAIL_URL", "console://")
EMAIL_BACKEND = _email["EMAIL_BACKEND"]
EMAIL_HOST, EMAIL_PORT = _email["EMAIL_HOST"], _email["EMAIL_PORT"]
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _email["EMAIL_HOST_USER"], _email["EMAIL_HOST_PASSWORD"]
EMAIL_USE_TLS, EMAIL_USE_SSL = _email["EMAIL_USE_TLS"], _email["EMAIL_USE_SSL"]
EMAIL_FILE_PATH = _email["EMAIL_FILE_PATH"]
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.str("EMAIL_FROM", "llm-po@localhost")
# An experiment is stalled if pairs were ready for so many hours and nobody judged any.
STALL_HOURS = env.float("STALL_HOURS", 12.0, validate=validate.Range(min=0, min_inclusive=False))
# Hosts that webhooks may go to; empty: any with a public address.
WEBHOOK_HOSTS: list[str] = env.list("WEBHOOK_HOSTS", [])
ALLOW_PRIVATE_WEBHOOKS = env.bool("ALLOW_PRIVATE_WEBHOOKS", False)
# Folder of the control workers below which winners may be written into Git working trees; empty: nowhere.
REGISTRY_FOLDER = env.str("REGISTRY_FOLDER", "")

# ---------------------------------------------------------------- static files, language, logs

STATIC_URL = "static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_DIRS = [folders.RESOURCES / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
# Documents of this version, as pages.
DOCUMENTS = folders.RESOURCES / "docs"
LOCALE_PATHS = [BASE_DIR / "labeling" / "locale"]
TIME_ZONE = env.str("TIME_ZONE", "UTC")
USE_TZ = True

_log_level = env.str(
    "LOG_LEVEL",
    "INFO",
    validate=validate.OneOf(["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]),
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "llmpo_site.logs.Lines",
            "format": "%(asctime)s %(levelname)s %(name)s: %(message)s",
        },
        "json": {"()": "llmpo_site.logs.Objects"},
    },
    "filters": {"without_secret_links": {"()": "llmpo_site.logs.WithoutSecretLinks"}},
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": env.str("LOG_FORMAT", "line", validate=validate.OneOf(["line", "json"])),
            "filters": ["without_secret_links"],
        }
    },
    "root": {"handlers": ["console"], "level": _log_level},
    "loggers": {
        name: {"level": "WARNING"}
        for name in (
            # HTTP clients write whole URLs and headers into the log, in which there are secrets.
            "httpx2",
            "httpcore2",
            "httpx",
            "httpcore",
            "hpack",
            "h2",
            "openai",
            "urllib3",
            # Two lines for each message, and one for each that beat sends.
            "celery.worker.strategy",
            "celery.app.trace",
            "celery.beat",
        )
    },
}

# Prometheus sends this token to read /metrics. Without it, the page does not exist.
METRICS_TOKEN = env.str("METRICS_TOKEN", "")

# Where traces go (OTLP over HTTP) and where errors go; nowhere by default. requirements-observe.txt has what
# they need.
TRACES_ENDPOINT = env.str("TRACES_ENDPOINT", "", validate=_web_address)
SENTRY_DSN = env.str("SENTRY_DSN", "")

# ---------------------------------------------------------------- Celery

CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", "filesystem://localhost")
# A click must not wait for a broker that is away: after one attempt, the sweep takes over.
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {"max_retries": 0}
# A web process also gives up a silent broker. A worker must wait: if it gave up while it acknowledges a
# message, it would never get another.
REQUEST_BROKER_OPTIONS = {"socket_timeout": _REDIS_SECONDS}
if CELERY_BROKER_URL.startswith(("redis://", "rediss://")):
    CELERY_BROKER_TRANSPORT_OPTIONS |= {
        "socket_connect_timeout": _REDIS_SECONDS,
        # As with PostgreSQL: notice a dead connection sooner than TCP would.
        "socket_keepalive": True,
        "socket_keepalive_options": {
            socket.TCP_KEEPIDLE: 10,
            socket.TCP_KEEPINTVL: 5,
            socket.TCP_KEEPCNT: 3,
            socket.TCP_USER_TIMEOUT: 30_000,
        },
    }
if CELERY_BROKER_URL.startswith("filesystem://"):
    CELERY_BROKER_TRANSPORT = "llmpo_site.broker:Transport"
    _broker = VAR_DIR / "broker"
    CELERY_BROKER_TRANSPORT_OPTIONS |= {
        "data_folder_in": str(_broker / "messages"),
        "data_folder_out": str(_broker / "messages"),
        "control_folder": str(_broker / "control"),
        "polling_interval": 0.1,
    }
    for _folder in ("messages", "control"):
        (_broker / _folder).mkdir(parents=True, exist_ok=True)
VAR_DIR.mkdir(parents=True, exist_ok=True)

# Rows are the queue and messages only wake: a message may be lost, so none is worth waiting for.
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_PUBLISH_RETRY = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A worker tries again forever: after 2 seconds, 4, 6 and so on up to 30.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# vLLM on a GPU asks for the file behind the standard output, which Celery's stand-in for it does not have.
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_TASK_DEFAULT_QUEUE = "control"
# Each worker also has its own queue, because workers may serve different models.
CELERY_WORKER_DIRECT = True
CELERY_TASK_ROUTES = {
    "engine.tasks.generate": {"queue": "generation"},
    "engine.tasks.give_opinions": {"queue": "judging"},
    "engine.tasks.analyse": {"queue": "analysis"},
    # It takes seconds, for which planning must not wait.
    "engine.tasks.import_upload": {"queue": "analysis"},
}
# In memory: Celery's default scheduler keeps a file, and cannot start if a kill has damaged it.
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"
SWEEP_SECONDS = env.int("SWEEP_SECONDS", 5, validate=validate.Range(min=1))
CELERY_BEAT_SCHEDULE = {
    "sweep": {
        "task": "engine.tasks.sweep",
        "schedule": SWEEP_SECONDS,
        # A worker that was away must not find an hour of sweeps waiting for it.
        "options": {"expires": 2 * SWEEP_SECONDS},
    },
    # Every hour, not every day: beat keeps no file, so each restart begins the interval again.
    "forget_old": {"task": "engine.tasks.forget_old", "schedule": 3600, "options": {"expires": 3600}},
}

# ---------------------------------------------------------------- LLM-PO

GENERATION_BACKEND = env.str(
    "GENERATION_BACKEND", "smollm2", validate=validate.OneOf(["smollm2", "vllm", "remote"])
)
# The most responses that a worker has in hand; its backend takes on what it has room for.
GENERATION_BATCH_MAX = env.int(
    "GENERATION_BATCH_MAX", 512 if GENERATION_BACKEND == "vllm" else 256, validate=validate.Range(min=1)
)
# A claim without progress for so long belongs to a dead worker; its responses wait for another one.
CLAIM_SECONDS = env.int("CLAIM_SECONDS", 30, validate=validate.Range(min=5))
GENERATION_ATTEMPTS = env.int("GENERATION_ATTEMPTS", 3, validate=validate.Range(min=1))
# The model of vllm: a folder or a name on the Hugging Face hub.
GENERATION_MODEL = env.str("GENERATION_MODEL", "")
# vllm
GENERATION_DTYPE = env.str("GENERATION_DTYPE", "auto")
GENERATION_MAX_LENGTH = env.int("GENERATION_MAX_LENGTH", None, validate=validate.Range(min=1))
GENERATION_TENSOR_PARALLEL = env.int("GENERATION_TENSOR_PARALLEL", 1, validate=validate.Range(min=1))
GENERATION_QUANTIZATION = env.str("GENERATION_QUANTIZATION", "")
GENERATION_CHAT_TEMPLATE = env.str("GENERATION_CHAT_TEMPLATE", "")
GENERATION_ADAPTERS: dict[str, str] = env.dict("GENERATION_ADAPTERS", {})
GENERATION_ENGINE_OPTIONS = cast(dict[str, Any], env.json("GENERATION_ENGINE_OPTIONS", {}, validate=_object))
# A worker whose backend is "remote" asks the connections of the page Models. These make the first one, named
# after its model; its key, OPENAI_API_KEY, stays in the workers' environment.
OPENAI_BASE_URL = env.str("OPENAI_BASE_URL", "https://api.openai.com/v1", validate=_web_address)
OPENAI_MODEL = env.str("OPENAI_MODEL", "")
# Keys that encrypt the connections' keys, the newest first; without one they are derived from SECRET_KEY.
CONNECTION_KEYS: list[str] = env.list("CONNECTION_KEYS", [], validate=_long_enough)
# True: connections may lead to private addresses, for instance to a server on this machine.
ALLOW_PRIVATE_CONNECTIONS = env.bool("ALLOW_PRIVATE_CONNECTIONS", False)
# The only hosts that connections may lead to; empty: any.
CONNECTION_HOSTS: list[str] = env.list("CONNECTION_HOSTS", [])
# A proxy for all requests to connections; the usual variables for proxies do not count.
CONNECTION_PROXY = env.str("CONNECTION_PROXY", "", validate=_web_address)
# A language model of the judging worker's own, where an experiment names no connection: vllm, or none.
JUDGE_BACKEND = env.str("JUDGE_BACKEND", "", validate=validate.OneOf(["", "vllm"]))
JUDGE_MODEL = env.str("JUDGE_MODEL", GENERATION_MODEL)
# Comparisons in one batch; the model is asked twice about each.
JUDGE_BATCH = env.int("JUDGE_BATCH", 8, validate=validate.Range(min=1))
JUDGE_ATTEMPTS = env.int("JUDGE_ATTEMPTS", 3, validate=validate.Range(min=1))
JUDGE_MAX_TOKENS = env.int("JUDGE_MAX_TOKENS", 2000, validate=validate.Range(min=8))
# Comparisons that people and the language model have both judged before it may vote.
JUDGE_CALIBRATION = env.int("JUDGE_CALIBRATION", 30, validate=validate.Range(min=10))
# Seconds for which a shown pair stays reserved for its annotator.
ASSIGNMENT_SECONDS = env.int("ASSIGNMENT_SECONDS", 300, validate=validate.Range(min=10))
# The least and the largest number of ready pairs kept ahead; between them the click rate decides.
BUFFER_MIN = env.int("BUFFER_MIN", 4, validate=validate.Range(min=1))
BUFFER_MAX = env.int("BUFFER_MAX", 256, validate=validate.Range(min=1))
if BUFFER_MAX < BUFFER_MIN:
    raise ImproperlyConfigured(
        f"BUFFER_MAX ({BUFFER_MAX}) is below BUFFER_MIN ({BUFFER_MIN}). Raise the one or lower the other."
    )
# Unit of the ages of what dashboards show (engine/services/dashboard_pages.py); 0: every request computes its
# page.
DASHBOARD_SECONDS = env.float("DASHBOARD_SECONDS", 5.0, validate=validate.Range(min=0))
