from django.apps import AppConfig


class LaunchesConfig(AppConfig):
    name = "launches"
    default_auto_field = "django.db.models.BigAutoField"
