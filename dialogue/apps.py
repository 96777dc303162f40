from django.apps import AppConfig


class DialogueConfig(AppConfig):
    name = "dialogue"
    default_auto_field = "django.db.models.BigAutoField"
