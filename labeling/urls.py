"""Pages of annotators and admins."""

from django.urls import path

from labeling.views import comparisons, dashboard, export, home, pair, people

urlpatterns = [
    path("", home.home, name="home"),
    path("label/<int:experiment_id>/", pair.pair, name="pair"),
    path("label/<int:experiment_id>/judge/", pair.judge, name="judge"),
    path("label/<int:experiment_id>/skip/", pair.skip, name="skip"),
    path("label/<int:experiment_id>/flag/", pair.flag, name="flag"),
    path("label/<int:experiment_id>/undo/", pair.undo, name="undo"),
    path("label/<int:experiment_id>/beat/", pair.beat, name="beat"),
    path("label/<int:experiment_id>/leave/", pair.leave, name="leave"),
    path("label/<int:experiment_id>/history/", pair.history, name="history"),
    path("label/<int:experiment_id>/history/<int:judgment_id>/reopen/", pair.reopen, name="reopen"),
    path("label/<int:experiment_id>/welcome/", people.welcome, name="welcome"),
    path("join/<uuid:token>/", people.join, name="join"),
    path("experiments/<int:experiment_id>/invitations/", people.invite, name="invite"),
    path("experiments/<int:experiment_id>/", dashboard.dashboard, name="dashboard"),
    path("experiments/<int:experiment_id>/live/", dashboard.live, name="dashboard_live"),
    path("experiments/<int:experiment_id>/state/", dashboard.change_state, name="change_state"),
    path("experiments/<int:experiment_id>/judgments.csv", export.judgments_csv, name="judgments_csv"),
    path("experiments/<int:experiment_id>/judgments.jsonl", export.judgments_jsonl, name="judgments_jsonl"),
    path(
        "experiments/<int:experiment_id>/judgments.parquet",
        export.judgments_parquet,
        name="judgments_parquet",
    ),
    path("experiments/<int:experiment_id>/dpo.jsonl", export.dpo_jsonl, name="dpo_jsonl"),
    path("experiments/<int:experiment_id>/comparisons/", comparisons.comparisons, name="comparisons"),
    path(
        "experiments/<int:experiment_id>/comparisons/<int:comparison_id>/",
        comparisons.comparison,
        name="comparison",
    ),
    path("experiments/<int:experiment_id>/judgments/<int:judgment_id>/void/", comparisons.void, name="void"),
    path(
        "experiments/<int:experiment_id>/judgments/<int:judgment_id>/restore/",
        comparisons.restore,
        name="restore",
    ),
    path(
        "experiments/<int:experiment_id>/judgments/void/", comparisons.void_annotator, name="void_annotator"
    ),
    path("experiments/<int:experiment_id>/export/", export.export, name="export"),
]
