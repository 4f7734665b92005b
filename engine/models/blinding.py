"""The secret that keeps an experiment's draws unpredictable."""

from django.db import models

from engine.domain.secret_draws import new_secret, new_seed


class Blinding(models.Model):
    """The secret and the seed: fields of an experiment."""

    seed = models.PositiveBigIntegerField(
        default=new_seed,
        help_text="Seed for the choice of pairs. Sides and tasks follow from the secret instead.",
    )
    # Neither is in a description, on a page, in the API or, before the conclusion, in an export:
    # engine/domain/secret_draws.py.
    secret = models.CharField(max_length=64, default=new_secret, editable=False)
    past_secrets = models.JSONField(
        default=list,
        editable=False,
        help_text="Published secrets, each with the number of its first comparison.",
    )
    secret_from = models.PositiveIntegerField(
        default=0,
        editable=False,
        help_text="Number of the first comparison under this secret.",
    )

    class Meta:
        abstract = True
