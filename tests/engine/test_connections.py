"""Connections: who makes, changes, sees and lends them, and when a loan ends."""

import io

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command

from engine.domain.errors import LoanError, SpecError
from engine.models import AuditEntry, Connection, Loan, Membership, Response, User
from engine.selectors import connections as selectors
from engine.selectors.person_data import person_data
from engine.services import connection_loans, connection_pauses, connections, drafts, people
from engine.services.forgetting import forget_person
from engine.services.invitations import accept_invitation, create_invitation
from tests.factories import add_member, make_experiment, make_user

pytestmark = pytest.mark.django_db

KEY = "sk-proj-0123456789abcdefghijklmnop-WXYZ"


def make(owner: User | None = None, key: str = KEY, **values) -> Connection:
    values = {"name": "gpt", "provider": "openai", "model_id": "gpt-5"} | values
    return connections.make(by=owner, owner=owner, key=key, **values)


@pytest.fixture
def owner() -> User:
    return make_user("owner")


@pytest.fixture
def experiment(owner):
    experiment = make_experiment(running=False)
    add_member(experiment, owner, Membership.Role.OWNER)
    return experiment


@pytest.fixture
def lent(owner, experiment) -> Loan:
    connection = make(owner)
    return connection_loans.lend(connection_id=connection.pk, experiment=experiment, by=owner)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"provider": "nobody"}, "provider"),
        ({"provider": "worker"}, "provider"),
        ({"name": ""}, "name"),
        ({"model_id": ""}, "model_id"),
        ({"provider": "compatible"}, "address"),
        ({"address": "ftp://api.example.org"}, "address"),
        ({"address": "http://api.example.org"}, "address"),
        ({"address": "https://me:secret@api.example.org"}, "address"),
        ({"address": "https://api.example.org?key=1"}, "address"),
        ({"address": "https://169.254.169.254/latest"}, "address"),
        ({"address": "https://127.0.0.1/v1"}, "address"),
        ({"address": "https://[::ffff:10.0.0.1]/v1"}, "address"),
        ({"at_once": 0}, "at_once"),
        ({"price_prompt": -1}, "price_prompt"),
        ({"headers": []}, "headers"),
        ({"headers": {"Host": "internal"}}, "headers"),
        ({"headers": {"Authorization": "Bearer x"}}, "headers"),
        ({"headers": {"X-Api-Key": "x"}}, "headers"),
        ({"headers": {"Helicone-Target-Url": "https://x"}}, "headers"),
        ({"headers": {"X-Forwarded-Host": "x"}}, "headers"),
        ({"headers": {"X-Good": "a\r\nHost: b"}}, "headers"),
        ({"extra_body": {"api_base": "https://x.example.org"}}, "extra_body"),
        ({"extra_body": {"litellm": [{"base_url": "x"}]}}, "extra_body"),
        ({"extra_body": {"where": "https://x.example.org"}}, "extra_body"),
        ({"extra_body": {"api_key": "x"}}, "extra_body"),
        ({"extra_body": {"model": "dearer"}}, "extra_body"),
        ({"extra_body": {"models": ["dearer"]}}, "extra_body"),
        ({"extra_body": {"fallbacks": ["dearer"]}}, "extra_body"),
        ({"extra_body": {"extra_body": {"Model": "dearer"}}}, "extra_body"),
        ({"takes": {"nothing": 1}}, "takes"),
        ({"extra_body": {"a": "\0"}}, "extra_body"),
        ({"extra_body": {"a": float("nan")}}, "extra_body"),
        ({"model_id": "gpt\0"}, "model_id"),
        ({"takes": {"temperature": False}}, "takes"),
        ({"takes": {"stop": "litellm.api_base"}}, "takes"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_its_field(values, field):
    with pytest.raises(SpecError) as refused:
        make(**values)
    assert refused.value.path == (field,)
    assert not Connection.objects.exists()


def test_usual_values_are_filled_in_and_good_ones_taken():
    connection = make(
        headers={"X-Title": "LLM-PO", "OpenAI-Project": "p"}, extra_body={"service_tier": "flex"}
    )
    assert connection.address == "https://api.openai.com/v1"
    assert connection.price_prompt > 0, "of the table of prices"
    assert make(name="own price", price_prompt=7.0).price_completion is None
    assert make(name="none", model_id="of-our-own").price_prompt is None


def test_another_model_has_its_own_list_prices_but_typed_ones_stay(owner):
    usual, typed = make(owner), make(owner, name="typed", price_prompt=7.0, price_completion=9.0)
    for each in (usual, typed):
        # As the form sends it: with the prices that it showed.
        shown = {"price_prompt": each.price_prompt, "price_completion": each.price_completion}
        connections.change(connection_id=each.pk, by=owner, model_id="gpt-5-nano", **shown)
    cheaper = Connection.objects.get(pk=usual.pk)
    assert 0 < cheaper.price_prompt < usual.price_prompt
    connections.change(connection_id=usual.pk, by=owner, model_id="of-our-own")
    assert Connection.objects.get(pk=usual.pk).price_prompt is None
    assert Connection.objects.get(pk=typed.pk).price_prompt == 7.0


def test_a_name_is_taken_once_and_stays():
    connection = make()
    with pytest.raises(SpecError, match="Another connection"):
        make()
    with pytest.raises(SpecError, match="stays"):
        connections.change(connection_id=connection.pk, by=None, name="other")


def test_the_model_stays_once_it_has_written():
    connection = make()
    connections.change(connection_id=connection.pk, by=None, model_id="gpt-5-mini")
    experiment = make_experiment()
    Response.objects.filter(policy__experiment=experiment).update(connection=connection)
    with pytest.raises(SpecError, match="Responses were written"):
        connections.change(connection_id=connection.pk, by=None, model_id="gpt-6")
    connections.change(connection_id=connection.pk, by=None, at_once=2)


def test_a_change_is_logged_by_the_names_of_its_fields_and_asks_again_at_once():
    connection = make()
    Connection.objects.update(failures=3, trouble="away", said="words")
    connections.change(connection_id=connection.pk, by=None, at_once=2, per_minute=60)
    connection.refresh_from_db()
    assert (connection.failures, connection.trouble, connection.said) == (0, "", "")
    assert AuditEntry.objects.latest("pk").sentence.endswith(": at_once, per_minute.")


# ---------------------------------------------------------------- rights


def test_an_experiment_uses_what_is_for_everybody_or_lent_to_it(lent, experiment):
    site = make(name="site", everybody=True)
    make(name="of nobody here")
    assert list(Connection.objects.usable_by(experiment)) == [lent.connection, site]
    assert list(Connection.objects.usable_by(make_experiment(running=False))) == [site]
    connections.retire(connection_id=site.pk, by=None)
    assert list(Connection.objects.usable_by(experiment)) == [lent.connection]


def test_who_sees_and_changes_what(owner, lent, experiment):
    site, hidden = make(name="site", everybody=True), make(name="hidden")
    editor, maker, staff = make_user("editor"), make_user("maker"), make_user("staff", is_staff=True)
    add_member(experiment, editor, Membership.Role.EDITOR)
    maker.user_permissions.add(Permission.objects.get(codename="add_experiment"))
    admin = make_user("admin", is_staff=True, is_superuser=True)
    viewer = make_user("viewer")
    add_member(experiment, viewer, Membership.Role.VIEWER)
    own = lent.connection
    seen = {user: set(selectors.seen_by(user)) for user in (owner, editor, maker, staff, admin, viewer)}
    assert seen == {
        owner: {own}, editor: {own}, maker: {site}, staff: {site, hidden}, admin: {own, site, hidden},
        viewer: set(),
    }  # fmt: skip
    changing = {
        user: {each for each in (own, site, hidden) if selectors.may_change(user, each)} for user in seen
    }
    assert changing == {
        owner: {own}, editor: set(), maker: set(), staff: {site, hidden}, admin: {site, hidden},
        viewer: set(),
    }  # fmt: skip
    assert selectors.may_retire(admin, own)
    assert not selectors.may_retire(staff, own)


def test_only_the_owner_lends_and_only_where_they_run_the_experiment(owner, experiment):
    connection = make(owner)
    editor, admin = make_user(), make_user(is_staff=True, is_superuser=True)
    add_member(experiment, editor, Membership.Role.EDITOR)
    for by in (editor, admin):
        with pytest.raises(LoanError):
            connection_loans.lend(connection_id=connection.pk, experiment=experiment, by=by)
    elsewhere = make_experiment(running=False)
    add_member(elsewhere, owner, Membership.Role.VIEWER)
    with pytest.raises(LoanError):
        connection_loans.lend(connection_id=connection.pk, experiment=elsewhere, by=owner)
    assert not Loan.objects.exists()


def test_choosing_ones_own_lends_it_and_nobody_elses(owner, experiment):
    own, other = make(owner), make(make_user(), name="theirs")
    assert list(Connection.objects.choosable_by(owner, experiment)) == [own]
    assert list(Connection.objects.choosable_by(owner, None)) == [own]
    connection_loans.lend_chosen(experiment=experiment, by=owner, names=["gpt", "theirs", "nothing"])
    connection_loans.lend_chosen(experiment=experiment, by=owner, names=["gpt"])
    assert [loan.connection for loan in Loan.objects.all()] == [own]
    assert other not in Connection.objects.usable_by(experiment)
    assert AuditEntry.objects.filter(action="lend", experiment=experiment).count() == 1


def test_one_of_a_person_is_never_for_everybody(owner):
    with pytest.raises(SpecError):
        make(owner, everybody=True)


# ---------------------------------------------------------------- ends of a loan


def lose_the_role(lent, experiment, owner):
    add_member(experiment, make_user(), Membership.Role.OWNER)
    member = experiment.memberships.get(user=owner)
    people.change_role(membership_id=member.pk, by=None, role=Membership.Role.VIEWER)


def be_removed(lent, experiment, owner):
    add_member(experiment, make_user(), Membership.Role.OWNER)
    people.remove_member(membership_id=experiment.memberships.get(user=owner).pk, by=None)


def close_the_account(lent, experiment, owner):
    owner.is_active = False
    owner.save()


def get_a_new_owner(lent, experiment, owner):
    people.add_member(experiment=experiment, user=make_user(), role=Membership.Role.OWNER, by=owner)


def promote_an_editor(lent, experiment, owner):
    member = add_member(experiment, make_user(), Membership.Role.EDITOR)
    people.change_role(membership_id=member.pk, by=owner, role=Membership.Role.OWNER)


def invite_an_owner(lent, experiment, owner):
    invitation, _ = create_invitation(
        experiment=experiment, by=owner, role=Membership.Role.OWNER, most_uses=1, valid_days=1
    )
    accept_invitation(invitation_id=invitation.pk, user=make_user())


def end_it(lent, experiment, owner):
    connection_loans.end_loan(loan_id=lent.pk, by=owner)


@pytest.mark.parametrize(
    "event",
    [
        lose_the_role, be_removed, close_the_account, get_a_new_owner, promote_an_editor, invite_an_owner,
        end_it,
    ],
)  # fmt: skip
def test_a_loan_ends_and_the_log_says_why(event, lent, experiment, owner):
    event(lent, experiment, owner)
    assert not Loan.objects.exists()
    assert not Connection.objects.usable_by(experiment).exists()
    assert AuditEntry.objects.filter(action="end_loan", experiment=experiment).count() == 1


def test_a_smaller_change_ends_no_loan(lent, experiment, owner):
    add_member(experiment, make_user(), Membership.Role.OWNER)
    people.add_member(experiment=experiment, user=make_user(), role=Membership.Role.EDITOR, by=owner)
    people.change_role(
        membership_id=experiment.memberships.get(user=owner).pk, by=None, role=Membership.Role.EDITOR
    )
    assert Loan.objects.exists()


def test_a_former_superuser_lends_no_longer(experiment):
    admin = make_user(is_staff=True, is_superuser=True)
    site = make(name="site")
    connection_loans.lend(connection_id=site.pk, experiment=experiment, by=admin)
    admin.is_superuser = False
    admin.save()
    assert not Loan.objects.exists()


def test_a_copy_has_no_loan(lent, experiment, owner):
    copy = drafts.clone(experiment=experiment, by=owner, name="A copy")
    assert not Connection.objects.usable_by(copy).exists()


def test_a_forgotten_person_leaves_no_key_and_no_loan(lent, experiment, owner):
    add_member(experiment, make_user(), Membership.Role.OWNER)
    assert person_data(owner, complete=True)["connections"][0]["name"] == "gpt"
    assert KEY[-4:] not in str(person_data(owner, complete=True)["connections"])
    forget_person(user_id=owner.pk, by=None)
    connection = Connection.objects.get()
    assert (connection.sealed_key, connection.key_hint) == ("", "")
    assert connection.retired_at is not None
    assert not Loan.objects.exists()


# ---------------------------------------------------------------- tests, rules, the command


def test_a_good_test_ends_a_pause_and_its_rules_are_taken_over(owner):
    connection = make(owner, takes={"seed": ""})
    Connection.objects.update(failures=3, trouble="away")
    found = {"works": True, "sentence": "It works.", "proposed": {"temperature": ""}}
    connection_pauses.note_test(connection_id=connection.pk, test=found)
    connections.accept_rules(connection_id=connection.pk, by=owner)
    connection.refresh_from_db()
    assert (connection.failures, connection.trouble) == (0, "")
    assert connection.takes == {"seed": "", "temperature": ""}
    with pytest.raises(SpecError, match="proposed nothing"):
        connections.accept_rules(connection_id=connection.pk, by=owner)


def test_a_second_test_waits_for_the_first(owner):
    connection = make(owner)
    assert connection_pauses.ask_test(connection_id=connection.pk)
    assert not connection_pauses.ask_test(connection_id=connection.pk)
    connection_pauses.note_test(connection_id=connection.pk, test={"works": False, "sentence": "No."})
    assert connection_pauses.ask_test(connection_id=connection.pk)


def command(*args: str, stdin: str = "", monkeypatch) -> str:
    out = io.StringIO()
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    call_command("connection", *args, stdout=out)
    return out.getvalue()


def test_the_command_takes_keys_from_the_standard_input_alone(monkeypatch):
    command("make", "gpt-5", "--provider", "openai", "--key", stdin=KEY + "\n", monkeypatch=monkeypatch)
    listed = command("list", monkeypatch=monkeypatch)
    assert "…WXYZ" in listed
    assert KEY not in listed
    command("key", "gpt-5", stdin="\n", monkeypatch=monkeypatch)
    assert "no key" in command("list", monkeypatch=monkeypatch)
    command("key", "gpt-5", stdin=KEY, monkeypatch=monkeypatch)
    assert command("rotate", monkeypatch=monkeypatch) == "Encrypted anew: 1.\n"
    command("retire", "gpt-5", monkeypatch=monkeypatch)
    assert "(retired)" in command("list", monkeypatch=monkeypatch)
    with pytest.raises(CommandError, match="There is no connection"):
        command("test", "nothing", monkeypatch=monkeypatch)
    with pytest.raises(CommandError, match="address"):
        command("make", "x", "--provider", "compatible", monkeypatch=monkeypatch)


def test_former_staff_lend_the_sites_connections_no_longer(experiment):
    staff = make_user("staff", is_staff=True)
    add_member(experiment, staff, "owner")
    site = connections.make(by=staff, owner=None, name="site", provider="openai", model_id="m")
    connection_loans.lend(connection_id=site.pk, experiment=experiment, by=staff)
    staff.is_staff = False
    staff.save()
    assert not Loan.objects.exists()


@pytest.mark.parametrize(
    ("change", "field"), [({"daily_limit": 1.0}, "daily_limit"), ({"provider": "worker"}, "provider")]
)
def test_a_limit_needs_prices_and_none_becomes_a_workers(owner, change, field):
    made = connections.make(
        by=owner,
        owner=owner,
        name="bare",
        provider="compatible",
        model_id="m",
        address="https://a.example.org/v1",
    )
    with pytest.raises(SpecError) as refused:
        connections.change(connection_id=made.pk, by=owner, **change)
    assert refused.value.path == (field,)
