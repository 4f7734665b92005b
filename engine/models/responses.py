"""The way an experiment gets its responses."""

from django.core.validators import MinValueValidator
from django.db import models


class Responding(models.Model):
    """The way policies respond, and for how much money: fields of an experiment."""

    class Responses(models.TextChoices):
        FRESH = "fresh", "A new response for each comparison"
        REUSE = "reuse", "One response for each policy and task, used again"
        IMPORTED = "imported", "Imported responses"

    class Backend(models.TextChoices):
        SMOLLM2 = "smollm2", "SmolLM2 (a small real model, without a GPU)"
        VLLM = "vllm", "vLLM"
        REMOTE = "remote", "Connections"

    class NoAnswer(models.TextChoices):
        JUDGED = "judged", "People judge it, shown as “(no answer)”"
        LOSES = "loses", "It loses against a text without a click"

    responses = models.CharField(
        max_length=10,
        choices=Responses,
        default=Responses.FRESH,
        help_text=(
            "With new responses, the finding holds for everything that the policies "
            "could write. With one response for each policy and task, or with "
            "imported responses, it costs less and holds for these responses only."
        ),
    )
    backend = models.CharField(
        max_length=10,
        choices=Backend,
        blank=True,
        help_text="Backend of the workers that write; empty: any.",
    )
    model = models.CharField(
        max_length=200,
        blank=True,
        help_text="Connection or worker's model that writes, by its name; empty: a worker's own model.",
    )
    money_limit = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0.0)],
        help_text="Money after which no more responses are asked for; empty: no limit.",
    )
    no_answer = models.CharField(
        max_length=10,
        choices=NoAnswer,
        default=NoAnswer.JUDGED,
        help_text="What happens to a pair of which one response is no answer: empty, filtered or refused.",
    )

    class Meta:
        abstract = True

    @property
    def capital_moves(self) -> bool:
        """True if proofs may move capital: not with texts that are drawn without replacement, for which that
        is not proved.
        """
        return self.responses == self.Responses.FRESH
