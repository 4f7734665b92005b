"""Who judges in an experiment."""

from django.db import models


class Judges(models.Model):
    """Who judges: people, a rule, a language model beside people. Fields of an experiment."""

    class Judge(models.TextChoices):
        HUMAN = "human", "People"
        RULE = "rule", "Rule (reference answers)"

    class RulePreference(models.TextChoices):
        STEPS = "steps", "The response that shows its steps"
        CONCISE = "concise", "The more concise response"

    class LLMJudge(models.TextChoices):
        OFF = "off", "Off"
        SHADOW = "shadow", "Opinions that do not count"
        VOTES = "votes", "Votes"

    judge = models.CharField(max_length=10, choices=Judge, default=Judge.HUMAN)
    rule_preference = models.CharField(
        max_length=10,
        choices=RulePreference,
        default=RulePreference.STEPS,
        help_text="The rule judge's preference between two correct responses.",
    )
    llm_judge = models.CharField(
        max_length=10,
        choices=LLMJudge,
        default=LLMJudge.OFF,
        help_text="Role of a language model as a judge beside people.",
    )
    rubric = models.TextField(
        blank=True,
        max_length=10_000,
        help_text=(
            "Instructions for the language model that judges: when a response is better. Empty: the "
            "guidelines."
        ),
    )
    judge_model = models.CharField(
        max_length=100,
        blank=True,
        help_text="The connection of the language model that judges; empty: the judging worker's own model.",
    )
    llm_budget = models.PositiveIntegerField(
        default=500, help_text="Maximum number of comparisons to send to the language model, each twice."
    )
    llm_calibrated = models.CharField(
        max_length=64,
        blank=True,
        help_text="Identity of the model and its instructions whose agreement with people an admin accepted.",
    )
    llm_failures = models.PositiveIntegerField(
        default=0, help_text="Failed opinions since the last successful one."
    )
    llm_halted = models.TextField(
        blank=True, help_text="Reason why the language model was halted; empty if it was not."
    )

    class Meta:
        abstract = True
