"""Gold items as a gate: they admit people before their first pair that counts, and end what they are shown.

Whoever fails before has given nothing that counts. Whoever fails later keeps what they gave: people know what
they answered, and could fail in order to have it taken out.
"""

from typing import NamedTuple

from django.db.models import Count, Q

from engine.models import Assignment, Experiment

# Gold items before the first pair that counts, or as many as there are.
ADMISSION_ITEMS = 5
# The share of gold items, in [0, 1], that somebody has to answer rightly: four of the first five.
PASS_MARK = 0.7


class Gold(NamedTuple):
    """One person's gold items.

    Attributes
    ----------
    practice, practice_open
        Practice pairs that they were given, and those of them that are open.
    admission, admission_open
        Admission items that they were given, and those of them that are open.
    right, judged
        Items that they answered rightly at first, and all that count: each answered one, and each admission
        item that they skipped.
    """

    practice: int = 0
    practice_open: int = 0
    admission: int = 0
    admission_open: int = 0
    right: int = 0
    judged: int = 0

    def fails(self, n_admission: int) -> bool:
        """True if they get no more pairs; ``n_admission``: the admission items that there are for them."""
        through = self.admission - self.admission_open
        return 0 < n_admission <= through and self.right < PASS_MARK * self.judged


_KIND, _OPEN = Assignment.Kind, Q(state=Assignment.State.OPEN)
_ADMISSION, _PRACTICE = Q(kind=_KIND.ADMISSION), Q(kind=_KIND.PRACTICE)
_COUNTS = {
    "practice": Count("pk", filter=_PRACTICE),
    "practice_open": Count("pk", filter=_PRACTICE & _OPEN),
    "admission": Count("pk", filter=_ADMISSION),
    "admission_open": Count("pk", filter=_ADMISSION & _OPEN),
    "right": Count("pk", filter=Q(kind__in=[_KIND.ADMISSION, _KIND.GOLD], passed=True)),
    "judged": Count(
        "pk",
        filter=Q(kind__in=[_KIND.ADMISSION, _KIND.GOLD], passed__isnull=False) | _ADMISSION & ~_OPEN,
    ),
}


def gold_of(experiment: Experiment, annotator_id: int) -> Gold:
    """The gold items of one person."""
    theirs = Assignment.objects.checks().filter(experiment=experiment, annotator=annotator_id)
    return Gold(**theirs.aggregate(**_COUNTS))


def n_admission(experiment: Experiment) -> int:
    """The admission items that each person of this experiment is shown."""
    if not experiment.gold_rate:
        return 0
    return max(0, min(ADMISSION_ITEMS, experiment.gold_items.count() - experiment.practice))


def failed(experiment: Experiment) -> dict[str, Gold]:
    """The people who get no more pairs because of gold items, by user name.

    Nothing that they answered counts where they fail the admission items alone: ``judged`` is ``admission``.
    """
    wanted = n_admission(experiment)
    given = Assignment.objects.checks().filter(experiment=experiment).order_by()
    rows = given.values_list("annotator__username")
    golds = {name: Gold(*counted) for name, *counted in rows.annotate(**_COUNTS)}
    return {name: gold for name, gold in sorted(golds.items()) if gold.fails(wanted)}
