"""Asks a writer's model, within the limits of its connection, and keeps what was sent and what came."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from engine.domain.conversations import Message, as_json
from engine.domain.levels import SamplingParams
from engine.generation.base import Finish, GenerationRequest, GenerationResult
from engine.generation.remote.backend import RemoteBackend
from engine.models import Charge, Experiment
from engine.selectors.connection_pauses import by_name
from engine.selectors.spending import overspent_connections, overspent_experiments
from engine.services.charges import Spent, book
from engine.writing.base import WriterError

_NO_TEXT = {
    Finish.LENGTH: "The writer's answer was cut at the model's maximum of tokens.",
    Finish.FILTERED: "The server's filter took the writer's answer away.",
    Finish.REFUSED: "The model refused to write. Choose another one.",
}


class Conversation:
    """An `Ask` for one call of a writer. ``record`` holds each message and the answer to it."""

    def __init__(self, experiment: Experiment, connection: str) -> None:
        self.record: list[dict[str, Any]] = []
        self._experiment = experiment
        self._connection = connection

    def __call__(self, messages: Sequence[Message], schema: Mapping[str, Any]) -> str:
        """The text of the model's answer.

        Raises
        ------
        WriterError
            There is none, or a limit of money is reached.
        """
        connection = by_name().get(self._connection)
        if self._experiment.pk in overspent_experiments():
            raise WriterError("The experiment's limit of money is reached.")
        if connection is not None and connection.pk in overspent_connections():
            raise WriterError(f"The limit of money of {connection} for 24 hours is reached.")
        exchange: dict[str, Any] = {"model": self._connection, "sent": as_json(messages), "gave": ""}
        self.record.append(exchange)
        request = GenerationRequest(
            key=0,
            messages=tuple(messages),
            sampling=SamplingParams(response_format=schema),
            model=self._connection,
            experiment_id=self._experiment.pk,
        )
        result = self._ask(request)
        exchange["gave"] = result.text
        if result.finish_reason == Finish.ERROR:
            raise WriterError(result.reason or "The model cannot answer this request.")
        if reason := _NO_TEXT.get(result.finish_reason):
            raise WriterError(reason)
        return result.text

    def _ask(self, request: GenerationRequest) -> GenerationResult:
        backend = RemoteBackend()
        try:
            with closing(backend.generate([request])) as outcomes:
                for outcome in outcomes:
                    spent = Spent(
                        self._connection, outcome.usage, Charge.Purpose.WRITING, self._experiment.pk
                    )
                    book([spent])
                    if isinstance(outcome, GenerationResult):
                        return outcome
                    if not outcome.is_asked_again:
                        raise WriterError(outcome.reason)
        finally:
            backend.close()
        raise WriterError("The model did not answer.")
