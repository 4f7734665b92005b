"""The rubric of a language model that judges, and the name under which its agreement with people is known."""

import hashlib

from django.conf import settings

from engine.models import Connection, Experiment

# Raised whenever engine.judges.llm asks in other words: agreement was measured with the old ones.
WORDING = 1

DEFAULT_RUBRIC = """\
A response is better if it does what the task asks: it is correct, answers all of it, and keeps to the form \
asked for.
Of two responses that do so equally well, the clearer one is better. \
Length, tone and confidence are no merits of their own."""


def rubric_of(experiment: Experiment) -> str:
    """The experiment's rubric; where it has none, what its annotators are told, or else what goes for most
    tasks.
    """
    return experiment.rubric.strip() or experiment.guidelines.strip() or DEFAULT_RUBRIC


def why_no_judge(experiment: Experiment | None = None) -> str:
    """The reason why no language model can judge an experiment, and the remedy; empty if one can.

    ``None``: an experiment that names no connection as its judge.
    """
    if experiment is not None and experiment.judge_model:
        if Connection.objects.usable_by(experiment).filter(name=experiment.judge_model).exists():
            return ""
        return (
            f"The experiment may not use the connection {experiment.judge_model!r}. Choose another judge, or "
            "ask its owner to lend it."
        )
    if not settings.JUDGE_BACKEND:
        return "No language model that can judge is configured. Choose a connection of the page Models."
    return ""


def may_tie(experiment: Experiment) -> bool:
    """True if a tie is offered: where people may say that neither is better."""
    return experiment.allow_tie or experiment.allow_both_bad


def identity(experiment: Experiment) -> str:
    """A fingerprint of the judging model and of its prompt without the comparison."""
    judge = (settings.JUDGE_BACKEND, settings.JUDGE_MODEL)
    if experiment.judge_model:
        # A connection may lead to another model one day.
        asked = Connection.objects.filter(name=experiment.judge_model).values_list("provider", "model_id")
        judge = (experiment.judge_model, " ".join(asked.first() or ()))
    parts = (str(WORDING), *judge, experiment.question, rubric_of(experiment), str(may_tie(experiment)))
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


def judge_name(experiment: Experiment) -> str:
    """The name of the language model that judges."""
    return experiment.judge_model or settings.JUDGE_MODEL or settings.JUDGE_BACKEND
