"""The information that a blinded experiment hides, and its publication after the end."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Exists, OuterRef, Q

from engine.domain import secret_draws
from engine.domain.secret_draws import Period
from engine.models import Assignment, Comparison, Experiment, Judgment, Membership, RoleLoss, User


def secret_periods(experiment: Experiment) -> list[Period]:
    """All secrets that the experiment has had, the current one last. Nobody sees them before it concludes."""
    past = [Period(int(each["first"]), str(each["secret"])) for each in experiment.past_secrets]
    return [*past, Period(experiment.secret_from, experiment.secret)]


def published_secrets(experiment: Experiment) -> list[Period]:
    """The secrets that may be published: all of them once the experiment is over, before that none.

    An annotator may finish the pair on their screen after the conclusion; until then nothing is published.
    """
    return secret_periods(experiment) if is_over(experiment) else []


def is_over(experiment: Experiment) -> bool:
    """True once the experiment has concluded and nobody has a pair on the screen."""
    return (
        experiment.state == Experiment.State.CONCLUDED
        and not experiment.comparisons.filter(state=Comparison.State.ASSIGNED).exists()
    )


@dataclass
class Verified:
    """The number of values that were derived again, and the differences from the record."""

    verified: int = 0
    differences: list[str] = field(default_factory=list)

    def compare(self, name: str, *, recorded: object, derived: object) -> None:
        """Count one value, and note its difference from the record, if any."""
        self.verified += 1
        if recorded != derived:
            self.differences.append(f"{name}: the record says {recorded}, the secret says {derived}.")


def verify_blinding(experiment: Experiment) -> Verified:
    """Compare the recorded sides and the schedule of checks with those derived from the secrets.

    Comparisons with an unknown secret are left out: they were imported from an experiment that had not
    concluded.
    """
    found = Verified()
    periods = secret_periods(experiment)
    planned = experiment.comparisons.order_by("number").values_list("number", "plan__number", "i_on_left")
    for place, number, on_left in planned.iterator():
        if number is None or number < periods[0].first:
            continue
        derived = secret_draws.i_on_left(secret_draws.secret_of(periods, number), number)
        found.compare(f"Comparison {place}, policy i on the left", recorded=on_left, derived=derived)
    for check in Assignment.objects.checks().filter(experiment=experiment).order_by("pk").iterator():
        _verify_check(found, check, periods[check.period].secret, experiment)
    return found


def _verify_check(found: Verified, check: Assignment, secret: str, experiment: Experiment) -> None:
    if check.gold_id is not None:
        on_left = secret_draws.better_on_left(secret, check.annotator_id, check.gold_id)
        found.compare(
            f"Check {check.pk}, better side",
            recorded=check.expected,
            derived=str(Judgment.Choice.LEFT if on_left else Judgment.Choice.RIGHT),
        )
    if check.kind not in {Assignment.Kind.PRACTICE, Assignment.Kind.ADMISSION}:
        draw = secret_draws.check_draw(secret, check.annotator_id, check.number)
        due: str = Assignment.Kind.GOLD if draw < experiment.gold_rate else Assignment.Kind.REPEAT
        if draw >= experiment.gold_rate + experiment.repeat_rate:
            due = "comparison"
        found.compare(f"Check {check.pk}, what was due", recorded=str(check.kind), derived=str(due))


def withholds_unfinished(experiment: Experiment) -> bool:
    """True if nobody may see the texts and policies of comparisons that wait or are open, but their number.

    Whoever sees them could judge them under a second account, or tell somebody who does.
    """
    return experiment.judge == Experiment.Judge.HUMAN


def unfinished(experiment: Experiment) -> int:
    """The number of comparisons that are hidden from everybody until they are finished."""
    if not withholds_unfinished(experiment):
        return 0
    return experiment.comparisons.filter(state__in=Comparison.PENDING).count()


def in_finished_comparison() -> Exists:
    """True for a response that is in a comparison which is judged or discarded."""
    finished = Comparison.objects.exclude(state__in=Comparison.PENDING)
    return Exists(finished.filter(Q(response_i=OuterRef("pk")) | Q(response_j=OuterRef("pk"))))


def judges_too(experiment: Experiment, user: User) -> bool:
    """True if this user annotates the experiment, or did: somebody who lost that role may get it back."""
    return (
        experiment.judge == Experiment.Judge.HUMAN
        and User.objects.filter(
            has_or_had(experiment.pk, user.pk, [Membership.Role.ANNOTATOR]), pk=user.pk
        ).exists()
    )


def has_or_had(experiment: Any, user: Any, roles: Collection[str]) -> Q:
    """True if a user has or had one of the roles in an experiment.

    People remember what they saw under a role that they have lost. ``experiment`` and ``user`` are ids, or
    expressions of a query.
    """
    return Q(
        *(
            Exists(rows.objects.filter(experiment=experiment, user=user, role__in=roles))
            for rows in (Membership, RoleLoss)
        ),
        _connector=Q.OR,
    )


def would_unblind(experiment: Experiment, user: User, role: str) -> bool:
    """True if this user, given ``role``, both judges pairs and may see which policy wrote what."""
    roles = set(Membership.objects.filter(experiment=experiment, user=user).values_list("role", flat=True))
    return _unblinds({*roles, role}, user.is_superuser)


def unblinded_annotators(experiment: Experiment) -> set[int]:
    """The accounts that judge pairs of the experiment and may see which policy wrote what."""
    roles: defaultdict[tuple[int, bool], set[str]] = defaultdict(set)
    rows = Membership.objects.filter(experiment=experiment)
    for user_id, is_superuser, role in rows.values_list("user_id", "user__is_superuser", "role"):
        roles[user_id, is_superuser].add(role)
    return {user_id for (user_id, superuser), theirs in roles.items() if _unblinds(theirs, superuser)}


def _unblinds(roles: set[str], is_superuser: bool) -> bool:
    watches = is_superuser or not roles.isdisjoint(Membership.WATCHING)
    return watches and Membership.Role.ANNOTATOR in roles
