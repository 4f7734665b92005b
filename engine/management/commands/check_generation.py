"""Try the generation backend: one response per policy, printed."""

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.domain.conversations import chat
from engine.generation import registry
from engine.generation.base import BackendError, GenerationFailure, GenerationRequest, GenerationResult
from engine.generation.remote.replies import remarks_of
from engine.generation.responses import composition_of, request_for
from engine.management.lookups import find_experiment
from engine.models import Task
from engine.selectors.policies import policy_names

SAMPLE_TASK = "I have a pig, two ducks, and a dog. How many animals do I have?"


class Command(BaseCommand):
    help = (
        "Test the generation backend of this machine: write one response per policy of an experiment, "
        "or one response to a sample task. Stores nothing. Exit status 1 if anything fails or has no text."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "experiment", nargs="?", help="its name, owner/name or number; without it, a sample task"
        )
        parser.add_argument("--task", help="what to ask instead of the experiment's first task")
        parser.add_argument(
            "--model", default="", help="connection or model that answers the sample task, by its name"
        )
        parser.add_argument("--seed", type=int, default=0)

    def handle(self, *args: Any, **options: Any) -> None:
        requests = list(
            self._requests(options["experiment"], options["task"], options["seed"], options["model"])
        )
        started = time.monotonic()
        try:
            backend = registry.backend()
            model = f", model {backend.model}" if backend.model else ""
            self.stdout.write(f"Backend {settings.GENERATION_BACKEND}{model}")
            outcomes = {outcome.key: outcome for outcome in backend.generate([r for _, r in requests])}
        except BackendError as error:
            raise CommandError(f"The {settings.GENERATION_BACKEND} backend does not work: {error}") from error
        for label, request in requests:
            self._print(label, request, outcomes[request.key])
        written = [o for o in outcomes.values() if isinstance(o, GenerationResult) and o.text]
        seconds = time.monotonic() - started
        tokens = sum(result.completion_tokens or 0 for result in written)
        self.stdout.write(
            f"\n{len(written)} of {len(requests)} written: {tokens} tokens in {seconds:.1f} s, "
            "loading included"
        )
        if len(written) < len(requests):
            raise CommandError("Some responses could not be written. The reasons are shown above.")

    def _requests(
        self, experiment_name: str | None, task: str | None, seed: int, model: str
    ) -> Iterator[tuple[str, GenerationRequest]]:
        if experiment_name is None:
            yield "Sample", GenerationRequest(0, chat(task or SAMPLE_TASK), seed=seed, model=model)
            return
        experiment = find_experiment(experiment_name)
        first = experiment.tasks.order_by("position").first() or Task(prompt=SAMPLE_TASK)
        asked = Task(prompt=task, variables=first.variables) if task else first
        for policy, name in zip(experiment.policies.composable(), policy_names(experiment), strict=True):
            label = f"{name.short}: {', '.join(name.levels)}"
            composition = composition_of(policy).filled(asked.variables)
            if composition.refusal_for_input(*(each.content for each in asked.turns)) is not None:
                self.stdout.write(f"{label}: its guardrail blocks this task, so the model is not asked.")
                continue
            yield label, request_for(composition, key=policy.pk, task=asked, seed=seed)

    def _print(
        self, label: str, request: GenerationRequest, outcome: GenerationResult | GenerationFailure
    ) -> None:
        self.stdout.write(f"\n--- {label}")
        for message in request.messages:
            self.stdout.write(f"{message.role}: {message.content}")
        if isinstance(outcome, GenerationFailure):
            self.stdout.write(self.style.ERROR(f"failed: {outcome.reason}"))
        else:
            self._print_result(request, outcome)
        if outcome.said:
            self.stdout.write(f"the server says: {outcome.said}")

    def _print_result(self, request: GenerationRequest, result: GenerationResult) -> None:
        if result.thinking:
            self.stdout.write(f"thinking: {result.thinking}")
        self.stdout.write(f"response: {result.text or result.reason or result.refusal or '(no answer)'}")
        for remark in remarks_of(result, request):
            self.stdout.write(f"note: {remark}")
        prompt, completion = (
            "?" if count is None else count for count in (result.prompt_tokens, result.completion_tokens)
        )
        self.stdout.write(
            f"({prompt}+{completion} tokens, {result.finish_reason}, {result.latency_seconds:.2f} s)"
        )
