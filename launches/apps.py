from django.apps import AppConfig


class LaunchesConfig(AppConfig):
    name = "launches"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import launches.services.found
        import launches.services.remaining  # noqa: F401  answers whether an experiment can be deleted
