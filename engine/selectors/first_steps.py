"""The first steps of somebody who makes experiments: a model, questions, people."""

from dataclasses import dataclass

from django.db.models import Exists, OuterRef

from engine.models import Connection, Experiment, Invitation, Judgment, Membership, Task, User


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """The steps that are done. ``newest``: the newest experiment with tasks; people are invited to it."""

    model: bool
    newest: Experiment | None
    people: bool

    @property
    def next(self) -> str:
        """The first step that is open; empty if none is."""
        done = {"model": self.model, "questions": self.newest is not None, "people": self.people}
        return next((step for step, is_done in done.items() if not is_done), "")


def first_steps(user: User) -> FirstSteps | None:
    """The steps, or ``None`` once all are done, or an experiment of this person has a judgment."""
    run = Experiment.objects.run_by(user)
    if Judgment.objects.filter(comparison__experiment__in=run.values("pk")).exists():
        return None
    invitations = Invitation.objects.filter(experiment__in=run.values("pk"))
    models = Connection.objects.remote().choosable_by(user, None)
    others = Membership.objects.filter(experiment__in=run.values("pk")).exclude(user=user)
    steps = FirstSteps(
        model=any(not each.test or each.test["works"] for each in models),
        newest=run.filter(Exists(Task.objects.filter(experiment=OuterRef("pk")))).order_by("pk").last(),
        people=invitations.exists() or others.exists(),
    )
    return steps if steps.next else None
