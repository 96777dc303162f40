"""Django settings.  Everything that differs between installations comes from the environment (docs/operation.md)."""

from __future__ import annotations

import gc
import os
from datetime import timedelta
from pathlib import Path

from asapweb.environment import (
    broker_url,
    database_settings,
    flag,
    home_folder,
    names,
    public_address,
    secret_key,
    whole_number,
)

# A page makes some 10,000 objects that live as long as its request, and the modules loaded from here on far more that
# stay: by default the collector walks them all again after every few hundred.
gc.set_threshold(20_000)

BASE_DIR = Path(__file__).resolve().parent.parent
ASAP_HOME = home_folder()

DEBUG = flag("DEBUG")
SECRET_KEY = secret_key(ASAP_HOME)
ALLOWED_HOSTS = names("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
#: A deployment names its hosts and uses TLS; `make run` serves plain HTTP on the loopback interface.
HTTPS = flag("ASAP_HTTPS", default="ALLOWED_HOSTS" in os.environ)
#: For links that commands print.
PUBLIC_ADDRESS = public_address(https=HTTPS)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "asapweb.apps.NeededStaticFilesConfig",
    "csp",
    "django_htmx",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "knox",
    "rest_framework",
    "jobs",
    "audit",
    "accounts",
    "knowledge",
    "experiments",
    "diagnosis",
    "history",
    "proposals",
    "launches",
    "dialogue",
    "campaigns",
    "asapweb",
]
MIDDLEWARE = [
    "asapweb.health.health_middleware",
    "asapweb.concurrency_limit.concurrency_middleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "asapweb.full_disk.FullDiskMiddleware",
    "asapweb.clean_text.CleanTextMiddleware",
    "accounts.confinement.ConfinedAuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "asapweb.urls"
ASGI_APPLICATION = "asapweb.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
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

DATABASES = {"default": database_settings(ASAP_HOME)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# People
AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"
PASSWORD_HASHERS = [
    "accounts.hashing.Argon2idHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",  # of accounts made before; replaced at their next sign-in
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
SESSION_COOKIE_AGE = int(timedelta(days=14).total_seconds())
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
CSRF_TRUSTED_ORIGINS = names("CSRF_TRUSTED_ORIGINS")

# Browser security
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    },
}
if HTTPS:
    SECURE_SSL_REDIRECT = True
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")  # the proxy must set or strip it
    SECURE_HSTS_SECONDS = int(timedelta(days=365).total_seconds())
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
#: The browsers' preload list concerns the owner of the whole domain, not one application on it.
SILENCED_SYSTEM_CHECKS = ["security.W021"]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

# Static files: hashed names, made by collectstatic.  While developing and testing they come from where they lie.
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = ASAP_HOME / "static"
HASHED_STATIC = flag("ASAP_HASHED_STATIC", default=not DEBUG)
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = not HASHED_STATIC
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "asapweb.static_storage.StaticStorage"
        if HASHED_STATIC
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# Uploads: a profile goes to the disk that keeps it, not into memory.
UPLOAD_LIMIT_BYTES = int(float(os.environ.get("ASAP_MAX_UPLOAD_MB", "500")) * 1e6)
MAX_REQUEST_BYTES = UPLOAD_LIMIT_BYTES + 200_000  # beside the files: form fields and what separates them
DATA_UPLOAD_MAX_MEMORY_SIZE = 5_000_000  # form fields; files are not counted
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1000
DATA_UPLOAD_MAX_NUMBER_FILES = 512  # one profile for each host
FILE_UPLOAD_PERMISSIONS = 0o600
#: Bodies and the files in them are received here, on the disk of the uploads, where there is room for them.
UPLOADING = ASAP_HOME / "uploading"
FILE_UPLOAD_TEMP_DIR = str(UPLOADING) if UPLOADING.is_dir() else None

#: What a Prometheus server sends for `/metrics`; empty: there are none.
METRICS_TOKEN = os.environ.get("ASAP_METRICS_TOKEN", "")

# REST
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.confinement.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_FILTER_BACKENDS": ["accounts.filters.ListFilters"],
    "DEFAULT_PAGINATION_CLASS": "rest_framework.pagination.LimitOffsetPagination",
    "PAGE_SIZE": 50,
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PARSER_CLASSES": [
        "accounts.parsers.JSONParser",
        "rest_framework.parsers.FormParser",
        "rest_framework.parsers.MultiPartParser",
    ],
    "EXCEPTION_HANDLER": "experiments.api.errors.one_shape",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
KNOX_TOKEN_MODEL = "knox.AuthToken"  # ours refer to it
REST_KNOX = {"TOKEN_TTL": timedelta(days=90), "AUTO_REFRESH": False, "TOKEN_LIMIT_PER_USER": 50}
SPECTACULAR_SETTINGS = {
    "TITLE": "ASAP Web",
    "DESCRIPTION": "Diagnosis of LLM training profiles and ranked sharding proposals.",
    "VERSION": "0.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "ENUM_NAME_OVERRIDES": {
        "RunStatusEnum": "experiments.models.RunStatus",
        "ProposalStatusEnum": "proposals.models.Proposal.Status",
        "DocumentKindEnum": "knowledge.models.Kind",
        "DocumentStateEnum": "knowledge.models.State",
        "ArmRunStatusEnum": "launches.models.ArmRun.Status",
        "ReportFileKindEnum": "launches.models.ReportFile.Kind",
        "RecordingKindEnum": "diagnosis.recording.KINDS",
    },
}

# Background work.  A task may run twice and its worker may die at any moment: tasks are idempotent, by compare-and-set.
#: Whether a configured language model reads each run by itself once the built-in analysis is stored.
LLM_AUTO = flag("ASAP_LLM_AUTO", default=True)
#: Whether the compile check runs with every new plan where the compiler is installed (docs/compile-check.md).
COMPILE_AUTO = flag("ASAP_COMPILE_AUTO", default=True)
#: A module to start instead of proposals.compiling.worker; tests have one of their own.
COMPILE_WORKER = ""

#: The operator's file of backends that launches may use (docs/launches.md); empty: bundles are run by hand.
LAUNCH_CONFIG = os.environ.get("ASAP_LAUNCH_CONFIG", "")

#: The most jobs of one team that are worked on at the same time in each queue; None: as many as there are workers.
TEAM_JOBS = whole_number("ASAP_TEAM_JOBS")
#: The most analyses of one team that may wait; further ones are refused with status 429.
TEAM_WAITING = whole_number("ASAP_TEAM_WAITING") or 1000

CELERY_BROKER_URL = broker_url(ASAP_HOME)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # the worker waits for its broker, however long
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = TIME_ZONE
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False  # the work is kept; the second delivery is a no-op
CELERY_WORKER_MAX_TASKS_PER_CHILD = 200
CELERY_WORKER_MAX_MEMORY_PER_CHILD = 300_000  # kB: a large profile's memory goes back once its run is done
CELERY_WORKER_LOST_WAIT = 1.0  # a killed process of the pool is gone at once; its task goes to the next
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_TASK_SOFT_TIME_LIMIT = 25 * 60
CELERY_TASK_TIME_LIMIT = 26 * 60
#: Keeps in memory what it does next: the usual file would lie in the checkout, and end it on a full disk.
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"
CELERY_BEAT_SCHEDULE = {
    # What a dead worker had, or a broker lost, goes to another worker.
    "take over": {"task": "jobs.tasks.sweep", "schedule": 10.0, "options": {"expires": 60}},
    "measure": {"task": "proposals.tasks.measure", "schedule": 10.0, "options": {"expires": 60}},
    # How the runs of both arms are doing at their backends.
    "follow launches": {"task": "launches.tasks.follow", "schedule": 15.0, "options": {"expires": 60}},
    # Trials of campaigns that ended there.
    "follow trials": {"task": "campaigns.tasks.follow", "schedule": 5.0, "options": {"expires": 60}},
    # What teams keep for some days only.
    "remove old payloads": {
        "task": "experiments.tasks.remove_old_payloads",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
    # What a process left that was killed while it received or wrote a file.
    "remove leftovers": {
        "task": "experiments.tasks.remove_leftovers",
        "schedule": 1800.0,
        "options": {"expires": 600},
    },
    # What has no vector yet.
    "embed pending rows": {"task": "knowledge.tasks.sweep", "schedule": 120.0, "options": {"expires": 60}},
}
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 3, "interval_start": 0.1, "interval_step": 0.3, "interval_max": 1}
if CELERY_BROKER_URL.startswith(("redis", "rediss", "sentinel")):
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        # Longer than the longest task; work of a dead worker is taken over by its heartbeat long before.
        "visibility_timeout": 30 * 60,
        "unacked_restore_interval": 2,
        "unacked_restore_throttle": 1,
    }

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": "asapweb.log_lines.LineFormatter", "format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("ASAP_LOG_LEVEL", "INFO").upper()},
    "loggers": {
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        "django.server": {"handlers": [], "level": "INFO", "propagate": True},
        "httpx": {"level": "WARNING"},
    },
}
