"""What the process environment says about this installation: data folder, database, broker, secret key.

The variables are documented in docs/operation.md.  Without them everything is embedded below the data folder: the
launcher writes where its PostgreSQL and its broker listen into `services.json`, and other processes read it there.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from formatting import numbers

DATABASE_NAME = "asap"


def home_folder() -> Path:
    """The data folder: `ASAP_HOME`, or `data` beside the code."""
    return Path(os.environ.get("ASAP_HOME") or Path(__file__).resolve().parent.parent / "data").resolve()


def flag(name: str, *, default: bool = False) -> bool:
    """Whether an environment variable is set to 1 / true / yes / on."""
    value = os.environ.get(name, "").strip().lower()
    return value in {"1", "true", "yes", "on"} if value else default


def whole_number(name: str) -> int | None:
    """An environment variable that counts something, None where it is not set."""
    given = os.environ.get(name, "").strip()
    if not given:
        return None
    if not (number := numbers.whole_number(given)):
        raise ImproperlyConfigured(f"{name} must be a whole number of at least 1, not {given!r}")
    return number


def names(name: str, default: str = "") -> list[str]:
    """A comma-separated environment variable as a list, blanks dropped."""
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def public_address(*, https: bool) -> str:
    """Return the address of a deployment: its first trusted origin, else its first host by HTTPS, else ""."""
    origins = [origin for origin in names("CSRF_TRUSTED_ORIGINS") if "*" not in origin]
    hosts = [host for host in names("ALLOWED_HOSTS") if host[:1] not in ("*", ".")]
    return next(iter(origins + [f"https://{host}" for host in hosts if https]), "").rstrip("/")


def embedded_services(home: Path) -> dict[str, str]:
    """Where the launcher's services listen: `database_url`, `broker_url`; empty before the first start."""
    try:
        services = json.loads((home / "services.json").read_text())
    except (OSError, ValueError):
        return {}
    return services if isinstance(services, dict) else {}


def socket_database_url(socket_folder: Path) -> str:
    return f"postgresql://postgres@{quote(str(socket_folder), safe='')}/{DATABASE_NAME}"


def socket_broker_url(socket: Path) -> str:
    return f"redis+socket://{quote(str(socket))}"


def database_settings(home: Path) -> dict[str, Any]:
    """Django's DATABASES entry: `DATABASE_URL`, or the embedded PostgreSQL by its socket folder."""
    given = os.environ.get("DATABASE_URL", "")
    url = given or embedded_services(home).get("database_url") or socket_database_url(home / "postgres")
    try:
        database: dict[str, Any] = dict(dj_database_url.parse(url, conn_health_checks=True))
    except (dj_database_url.ParseError, dj_database_url.UnknownSchemeError, ValueError):
        raise ImproperlyConfigured("DATABASE_URL is invalid: use postgresql://user:password@host:5432/name") from None
    if database["ENGINE"] != "django.db.backends.postgresql":
        raise ImproperlyConfigured("DATABASE_URL must name a PostgreSQL database: postgresql://user:password@host/name")
    options = database.setdefault("OPTIONS", {})
    options.setdefault("application_name", "asap-web")
    if flag("ASAP_DATABASE_POOL"):  # the web server sets it: many short requests, few connections
        options["pool"] = {
            "min_size": 1,
            "max_size": int(os.environ.get("ASAP_DATABASE_POOL_SIZE", "16")),
            "timeout": 10,
        }
    return database


def database_arguments(home: Path) -> dict[str, Any]:
    """Return the same database as keyword arguments of libpq."""
    settings = database_settings(home)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    given = {ours: settings[theirs] for theirs, ours in names.items() if settings.get(theirs)}
    return given | {name: value for name, value in settings.get("OPTIONS", {}).items() if name != "pool"}


def broker_url(home: Path) -> str:
    """Celery's broker: `CELERY_BROKER_URL`, or the embedded Redis by its socket."""
    given = os.environ.get("CELERY_BROKER_URL", "")
    return given or embedded_services(home).get("broker_url") or socket_broker_url(home / "redis" / "redis.sock")


def secret_key(home: Path) -> str:
    """`SECRET_KEY`, or one made on the first start and kept in the data folder, readable by its owner only."""
    given = os.environ.get("SECRET_KEY", "")
    if given:
        return given
    path = home / "secret_key"
    for _ in range(2):
        try:
            kept = path.read_text().strip()
        except FileNotFoundError:
            kept = ""
        except OSError as error:
            raise ImproperlyConfigured(f"the secret key in {path} cannot be read: {error.strerror}") from None
        if kept:
            return kept
        _write_once(path, secrets.token_urlsafe(64))
    raise ImproperlyConfigured(f"{path} is empty: delete it to create a new key (everyone must sign in again)")


def _write_once(path: Path, text: str) -> None:
    """Create the file with its content in one step, so that two processes that start at once agree on one key."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    except OSError as error:
        raise ImproperlyConfigured(
            f"the data folder {path.parent} cannot be written ({error.strerror}): set ASAP_HOME or SECRET_KEY"
        ) from None
