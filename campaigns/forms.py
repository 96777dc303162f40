"""The form that begins a campaign."""

from __future__ import annotations

from typing import Any

from django import forms

from campaigns.models import Campaign
from campaigns.services.campaigns import model_missing

HOUR_S = 3600.0
KEPT = ("keep_remat", "keep_weight_sharding", "keep_micro_batches")


class CampaignForm(forms.ModelForm):
    most_hours = forms.FloatField(min_value=0.001, required=False, label="Time limit (h)")
    keep_remat = forms.BooleanField(required=False, label="Keep rematerialisation")
    keep_weight_sharding = forms.BooleanField(required=False, label="Keep weight sharding")
    keep_micro_batches = forms.BooleanField(required=False, label="Keep micro-batches")

    field_order = ("backend", "most_trials", "parallel", "most_hours")

    class Meta:
        model = Campaign
        fields = (
            "backend", "most_trials", "parallel", "most_dollars", "dollars_per_chip_hour", "expert_step_time_s",
            "most_tokens", "tool", "steps", "to_budget", "use_language_model",
        )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        if model_missing():
            self.fields["use_language_model"].disabled = True
            del self.fields["most_tokens"]
            self.fields["use_language_model"].label = "Let the language model choose trials (none is configured)"
        else:
            self.fields["most_tokens"].required = False
        for name, field in self.fields.items():
            if isinstance(field, forms.IntegerField | forms.FloatField):
                # Complaints are ours, in words, and the same in every browser.
                field.widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"})
            if not isinstance(field, forms.BooleanField):
                field.widget.attrs["class"] = "input"
            if field.help_text:
                field.widget.attrs["aria-describedby"] = f"hint-{name}"

    def drafted(self, server: str) -> Campaign:
        """server: the address that the browser uses, to which the cluster reports where the team names no other."""
        draft, hours = self.instance, self.cleaned_data["most_hours"]
        draft.server, draft.most_s = server, hours and hours * HOUR_S
        draft.constraints = {name: True for name in KEPT if self.cleaned_data[name]}
        return draft
