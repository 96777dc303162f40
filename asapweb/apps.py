from django.apps import AppConfig
from django.contrib.staticfiles.apps import StaticFilesConfig


class AsapWebConfig(AppConfig):
    name = "asapweb"
    default = True

    def ready(self) -> None:
        import asapweb.celery  # noqa: F401  shared tasks belong to our Celery application, also in the web server


class NeededStaticFilesConfig(StaticFilesConfig):
    """Leaves out what no page uses: the browsable API's look, a second reader of the schema, and htmx as django-htmx
    brings it beside ours."""

    ignore_patterns = [*StaticFilesConfig.ignore_patterns, "rest_framework", "*/redoc", "redoc", "django_htmx"]
