from django.apps import AppConfig


class CampaignsConfig(AppConfig):
    name = "campaigns"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import campaigns.services.remaining  # noqa: F401  answers whether an experiment can be deleted
