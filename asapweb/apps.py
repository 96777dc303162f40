from django.apps import AppConfig


class AsapWebConfig(AppConfig):
    name = "asapweb"

    def ready(self) -> None:
        import asapweb.celery  # noqa: F401  shared tasks belong to our Celery application, also in the web server
