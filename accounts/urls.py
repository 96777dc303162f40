"""Signing in and out, and the account's settings."""

from __future__ import annotations

from django.urls import path

from accounts import views, views_audit

urlpatterns = [
    path("sign-in/", views.sign_in, name="sign-in"),
    path("sign-in/<str:token>/", views.sign_in_link, name="sign-in-link"),
    path("join/<str:token>/", views.join, name="join"),
    path("sign-out/", views.sign_out, name="sign-out"),
    path("settings/", views.settings, name="settings"),
    path("settings/team/", views.choose_team, name="choose_team"),
    path("settings/members/", views.add_member, name="add_member"),
    path("settings/members/<int:pk>/", views.change_member, name="change_member"),
    path("settings/members/<int:pk>/link/", views.member_link, name="member_link"),
    path("settings/invitations/<int:pk>/withdraw/", views.withdraw_invitation, name="withdraw_invitation"),
    path("settings/audit/", views_audit.audit, name="audit"),
    path("settings/audit/<str:kind>/", views_audit.export, name="audit-export"),
    path("settings/password/", views.password, name="password"),
    path("settings/tokens/", views.create_token, name="create_token"),
    path("settings/tokens/<str:key>/revoke/", views.revoke_token, name="revoke_token"),
]
