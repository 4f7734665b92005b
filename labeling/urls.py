"""Pages of annotators and admins."""

from django.urls import path

from labeling.exports.files import FORMATS
from labeling.views import (
    annotators,
    columns,
    comparisons,
    controls,
    dashboard,
    export,
    home,
    invitations,
    llm_judge,
    notifications,
    pair,
    people,
    persons,
    policies,
    remarks,
    reports,
    settings,
    setup,
    tokens,
    trial,
    votes,
)

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
    path("label/<int:experiment_id>/history/<uuid:token>/reopen/", pair.reopen, name="reopen"),
    path("label/<int:experiment_id>/welcome/", invitations.welcome, name="welcome"),
    path("join/", invitations.accept_invitation, name="accept_invitation"),
    path("join/<str:token>/", invitations.join, name="join"),
    path("experiments/<int:experiment_id>/invitations/", invitations.invite, name="invite"),
    path("experiments/new/", setup.new, name="new_experiment"),
    path("experiments/new/votes/", votes.import_votes, name="import_votes"),
    path("experiments/new/columns/<uuid:upload_id>/", columns.map_columns, name="map_columns"),
    path("experiments/new/<slug:start>/", setup.new_from, name="new_from"),
    path("experiments/<int:experiment_id>/setup/", setup.setup, name="setup"),
    path("experiments/<int:experiment_id>/try/", trial.try_it, name="try"),
    path("experiments/<int:experiment_id>/rehearsal/", trial.rehearse, name="rehearse"),
    path("experiments/<int:experiment_id>/setup.yaml", setup.setup_file, name="setup_file"),
    path("experiments/<int:experiment_id>/delete/", setup.delete_draft, name="delete_draft"),
    path("experiments/<int:experiment_id>/", dashboard.dashboard, name="dashboard"),
    path("experiments/<int:experiment_id>/live/", dashboard.live, name="dashboard_live"),
    path(
        "experiments/<int:experiment_id>/charts/",
        dashboard.live_charts,
        {"tab": "result"},
        name="result_charts",
    ),
    path("experiments/<int:experiment_id>/ranking.csv", policies.ranking_file, name="ranking_file"),
    path("experiments/<int:experiment_id>/results.csv", policies.results_file, name="results_file"),
    path("experiments/<int:experiment_id>/quality/", dashboard.quality, name="quality"),
    path(
        "experiments/<int:experiment_id>/quality/charts/",
        dashboard.live_charts,
        {"tab": "quality"},
        name="quality_charts",
    ),
    path("experiments/<int:experiment_id>/method/", dashboard.method, name="method"),
    path("experiments/<int:experiment_id>/method/live/", dashboard.live_method, name="method_live"),
    path(
        "experiments/<int:experiment_id>/method/charts/",
        dashboard.live_charts,
        {"tab": "method"},
        name="method_charts",
    ),
    path("experiments/<int:experiment_id>/policies/<int:number>/", policies.policy, name="policy"),
    path(
        "experiments/<int:experiment_id>/policies/<int:number>/request.json",
        policies.request_file,
        name="policy_request",
    ),
    path("experiments/<int:experiment_id>/without/", dashboard.without, name="without"),
    path("experiments/<int:experiment_id>/state/", dashboard.change_state, name="change_state"),
    path("experiments/<int:experiment_id>/stop-here/", dashboard.stop_here, name="stop_here"),
    path(
        "experiments/<int:experiment_id>/settings/", settings.experiment_settings, name="experiment_settings"
    ),
    path(
        "experiments/<int:experiment_id>/settings/change/", controls.change_settings, name="change_settings"
    ),
    path("experiments/<int:experiment_id>/settings/display/", controls.change_display, name="change_display"),
    path("experiments/<int:experiment_id>/clone/", controls.clone, name="clone"),
    path("experiments/<int:experiment_id>/log/", controls.log, name="log"),
    path("experiments/<int:experiment_id>/people/", people.people, name="people"),
    path("experiments/<int:experiment_id>/annotators/<int:user_id>/", annotators.annotator, name="annotator"),
    path(
        "experiments/<int:experiment_id>/people/<int:membership_id>/role/",
        people.change_role,
        name="change_role",
    ),
    path(
        "experiments/<int:experiment_id>/people/<int:membership_id>/remove/",
        people.remove_member,
        name="remove_member",
    ),
    path(
        "experiments/<int:experiment_id>/invitations/<int:invitation_id>/end/",
        invitations.end_invitation,
        name="end_invitation",
    ),
    path(
        "experiments/<int:experiment_id>/invitations/<int:invitation_id>/resend/",
        invitations.resend_invitation,
        name="resend_invitation",
    ),
    path("experiments/<int:experiment_id>/notifications/", notifications.subscribe, name="subscribe"),
    path(
        "experiments/<int:experiment_id>/notifications/<int:subscription_id>/remove/",
        notifications.unsubscribe,
        name="unsubscribe",
    ),
    path(
        "experiments/<int:experiment_id>/notifications/<int:subscription_id>/test/",
        notifications.send_test,
        name="send_test",
    ),
    path("tokens/", tokens.tokens, name="tokens"),
    path("tokens/<int:token_id>/revoke/", tokens.revoke, name="revoke_token"),
    path("experiments/<int:experiment_id>/llm-judge/", llm_judge.change_llm_judge, name="change_llm_judge"),
    *(
        path(
            f"experiments/<int:experiment_id>/{format.suffix}", export.file, {"kind": kind}, name=format.route
        )
        for kind, format in FORMATS.items()
    ),
    path("experiments/<int:experiment_id>/comparisons/", comparisons.comparisons, name="comparisons"),
    path(
        "experiments/<int:experiment_id>/comparisons/<int:comparison_id>/",
        comparisons.comparison,
        name="comparison",
    ),
    path("experiments/<int:experiment_id>/remarks/", remarks.remarks, name="remarks"),
    path(
        "experiments/<int:experiment_id>/comparisons/<int:comparison_id>/remarks/done/",
        remarks.settle,
        name="settle_remarks",
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
    path("experiments/<int:experiment_id>/report/", reports.report, name="report"),
    path("experiments/<int:experiment_id>/report/share/", reports.share, name="share_report"),
    path("experiments/<int:experiment_id>/report/<int:link_id>/end/", reports.end, name="end_report_link"),
    path("report/<str:token>/", reports.shared_report, name="shared_report"),
    path("persons/", persons.persons, name="persons"),
    path("persons/<int:user_id>/", persons.person, name="person"),
    path("persons/<int:user_id>/data.json", persons.data_of_person, name="data_of_person"),
    path("my-data.json", persons.own_data, name="own_data"),
]
