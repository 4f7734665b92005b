"""Parse any answer of a server into parts, finish reason and tokens, or a failure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.domain.connection_targets import Target
from engine.domain.limits import TEXT_CHARACTERS
from engine.domain.profiles import vendor_of
from engine.domain.texts import is_blank, storable
from engine.generation.base import (
    Fault,
    Finish,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    Usage,
    unanswerable,
)
from engine.generation.remote.errors import Answer, Said, ending_of, host_of, said_in
from engine.generation.remote.scrubbing import scrub, scrub_answer

_REDIRECT = 300
# No model counts so many; sums of a few fit into a column.
_MOST_TOKENS = 10**8

# Servers' names for the end of an answer, in lower case; any other is a stop.
_FINISHES = {
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "max_output_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    # Claude rests in the middle of a long turn.
    "pause_turn": Finish.LENGTH,
    "refusal": Finish.REFUSED,
}
# Ends at which half of an answer is left.
_BROKEN = re.compile(
    "abort|cancel|error|fail|time_?out|deadline|disconnect|interrupt|incomplete|preempt|overload|unload|^load$|"
    "insufficient_system_resource|malformed_model_output|user_?stopped"
)
_FILTERS = re.compile(
    "content_?filter|safety|recitation|prohibited|blocklist|spii|sensitive|guardrail|policy_violation"
)

_NAMES = "think|thinking|thought|reasoning|reflection|seed:think"
_OPENING = re.compile(
    rf"\s*(?:<s>\s*)?(?:<({_NAMES})>|\[(THINK)\]|◁(think)▷|<\|START_THINKING\|>|<\|channel>thought\s)",
    re.IGNORECASE,
)
_CLOSING = re.compile(rf"</(?:{_NAMES})>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>|<channel\|>", re.IGNORECASE)
_ANY_THINKING = re.compile(rf"</?(?:{_NAMES})>|\[/?THINK\]|◁/?think▷|<\|?channel\|?>", re.IGNORECASE)
# The raw form of gpt-oss: channels; the final one is the answer.
_CHANNEL = re.compile(
    r"<\|channel\|>\s*+(\w{1,40}+).{0,200}?<\|message\|>(.*?)(?=<\|(?:end|start|channel|return|call)\|>|\Z)",
    re.DOTALL,
)
# Marks of chat templates: between bars, and those that models spell otherwise.
_MARK = r"<[|｜][\w▁ ./:-]{1,40}[|｜]>|<end_of_turn>|<start_of_turn>|<turn\|>|<eos>|<EOT>|\[EOS\]|\[/INST\]"
_LAST_MARK = re.compile(rf"\s*({_MARK}|</s>)\s*\Z")
_MOST_MARKS = 20
# Servers nest texts a few levels deep.
_MOST_DEEP = 20
_ANY_MARK = re.compile(_MARK)
_READS_AS_ERROR = re.compile(
    r"maximum context length|context (length|window) exceeded|rate limit|too many requests|quota exceeded|"
    r"internal server error|service unavailable|bad gateway|\btraceback \(most recent|invalid api key|"
    r"^\W*(api )?error\b\W|^\W*\{\W*error\b|upstream (error|request)|an error occurred",
    re.IGNORECASE,
)
# An error that a server gives as an answer is short.
_ERROR_CHARACTERS = 600
# No usual tokenizer joins words, or as many as ten letters on average; short prompts tell nothing.
_WORDS_PER_TOKEN, _CHARACTERS_PER_TOKEN, _TELLING_CHARACTERS = 1 / 0.9, 10, 400


@dataclass(frozen=True, slots=True)
class _Reply:
    """The parts of a protocol's answer, before the text is cleaned."""

    text: str
    thinking: str = ""
    refusal: str = ""
    finish: Finish = Finish.STOP
    model: str = ""


class _UnreadableError(Exception):
    """The answer is none of this protocol. Its argument says so, after the host's name."""


def read(target: Target, request: GenerationRequest, answer: Answer, seconds: float) -> Outcome:
    """Read an answer: a reply, no answer, or a failure and whose fault it is. Each has its tokens."""
    data = _json(answer.body)
    outcome = _outcome_of(target, request, answer, data, seconds)
    return with_usage(outcome, _usage_in(data, target))


def with_usage(outcome: Outcome, usage: Usage) -> Outcome:
    """The outcome with the tokens that it took."""
    if isinstance(outcome, GenerationFailure):
        return replace(outcome, usage=usage)
    return replace(
        outcome,
        prompt_tokens=usage.prompt,
        cached_tokens=usage.cached,
        completion_tokens=usage.completion,
        thinking_tokens=usage.thinking,
    )


def _outcome_of(
    target: Target, request: GenerationRequest, answer: Answer, data: Any, seconds: float
) -> Outcome:
    said = said_in(data)
    if answer.status >= _REDIRECT or said is not None:
        return ending_of(target, request, answer, said)
    try:
        reply = _reply_in(data, target)
    except _UnreadableError as error:
        if isinstance(error.args[0], Said):
            return ending_of(target, request, answer, error.args[0])
        words = scrub(answer.body[:2000].decode(errors="replace"), target)
        return GenerationFailure(request.key, f"{host_of(target)} {error}", Fault.SERVER, said=words)
    return _result(target, request, reply, seconds)


def _json(body: bytes) -> Any:
    """The JSON of a body, with a mark in place of each broken character; ``None``: it is none."""
    try:
        try:
            return json.loads(body)
        except UnicodeDecodeError:
            return json.loads(body.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _reply_in(data: Any, target: Target) -> _Reply:
    if not isinstance(data, dict):
        raise _UnreadableError("answered with a page or with garbage. Is the address right?")
    match vendor_of(target.provider).protocol:
        case "openai":
            return _read_openai(data)
        case "anthropic":
            return _read_anthropic(data)
        case "bedrock":
            return _read_bedrock(data)


def _result(target: Target, request: GenerationRequest, reply: _Reply, seconds: float) -> Outcome:
    if max(map(len, (reply.text, reply.thinking, reply.refusal))) > 2 * TEXT_CHARACTERS.most:
        return too_large(target, request)
    clean = (scrub_answer(storable(each), target) for each in (reply.text, reply.thinking, reply.refusal))
    text, thinking, refusal = clean
    inside, text = split_thinking(text)
    text, marks = without_marks(text)
    finish = reply.finish
    if refusal and finish != Finish.FILTERED:
        finish = Finish.REFUSED
    if finish in {Finish.FILTERED, Finish.REFUSED}:
        if finish == Finish.REFUSED:
            refusal = refusal or text
        text = ""
    if len(text) > TEXT_CHARACTERS.most:
        return too_large(target, request)
    return GenerationResult(
        key=request.key,
        text="" if is_blank(text) else text,
        prompt_tokens=None,
        completion_tokens=None,
        finish_reason=finish,
        latency_seconds=seconds,
        model=request.model,
        thinking="\n\n".join(filter(None, (thinking.strip(), inside)))[: TEXT_CHARACTERS.most],
        refusal=refusal[: TEXT_CHARACTERS.most],
        marks=marks,
        served_model=scrub_answer(storable(reply.model), target)[:200],
    )


def too_large(target: Target, request: GenerationRequest) -> Outcome:
    """The end of a request whose answer is larger than a text may be."""
    most = f"{TEXT_CHARACTERS.most:,} {TEXT_CHARACTERS.thing}"
    return unanswerable(request.key, f"The answer of {host_of(target)} is longer than {most}.")


def split_thinking(text: str) -> tuple[str, str]:
    """The thinking in a text, and the rest. Thinking that never closes leaves no rest."""
    if text.lstrip().startswith("<|channel|>"):
        channels = _CHANNEL.findall(text)
        thinking = "\n\n".join(said.strip() for name, said in channels if name != "final")
        return thinking, "".join(said for name, said in channels if name == "final")
    if text.startswith("analysis") and "assistantfinal" in text:
        # The same, from a server that leaves out the marks.
        thinking, _, final = text.removeprefix("analysis").partition("assistantfinal")
        return thinking.strip(), final
    thoughts: list[str] = []
    end = 0
    while opening := _OPENING.match(text, end):
        closing = _CLOSING.search(text, opening.end())
        thoughts.append(text[opening.end() : closing.start() if closing else None].strip())
        end = closing.end() if closing else len(text)
    # The template may have opened the thinking before the answer began.
    closing = None if thoughts else _CLOSING.search(text)
    if closing and not _ANY_THINKING.search(text, 0, closing.start()):
        thoughts.append(text[: closing.start()].strip())
        end = closing.end()
    return "\n\n".join(filter(None, thoughts)), text[end:].lstrip() if end else text


def without_marks(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without the marks of a chat template at its end, and those marks in their order."""
    marks: list[str] = []
    for _ in range(_MOST_MARKS):
        last = _LAST_MARK.search(text[-200:])
        if last is None or (last[1] == "</s>" and "<s>" in text):
            break
        marks.insert(0, last[1])
        text = text[: len(text[:-200]) + last.start()]
    return text, tuple(marks)


def _read_openai(data: Mapping[str, Any]) -> _Reply:
    choices = data.get("choices")
    if choices == [] and _object(data.get("promptFeedback")).get("blockReason"):
        # Gemini has read the prompt and answers nothing.
        return _Reply("", finish=Finish.FILTERED, model=_name(data))
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise _UnreadableError("answered without a choice.")
    choice = choices[0]
    # A stream that failed on the way leaves half a sentence behind.
    if choice.get("error"):
        raise _UnreadableError(said_in(choice) or Said())
    message, finish = choice.get("message"), _finish(choice.get("finish_reason"))
    if not isinstance(message, dict):
        if finish not in {Finish.FILTERED, Finish.LENGTH}:
            raise _UnreadableError("answered without a message.")
        message = {}
    text, thinking, refusal = _parts(message.get("content"))
    own = (_parts(message.get(name))[0] for name in ("reasoning_content", "reasoning", "thinking"))
    thinking = thinking or next(filter(None, own), "") or "".join(_texts(message.get("reasoning_details")))
    refusal = refusal or _parts(message.get("refusal"))[0]
    return _Reply(text, thinking, refusal, finish, model=_name(data))


def _read_anthropic(data: Mapping[str, Any]) -> _Reply:
    if not isinstance(data.get("content"), list):
        raise _UnreadableError("answered without content.")
    text, thinking, _ = _parts(data["content"])
    return _Reply(text, thinking, finish=_finish(data.get("stop_reason")), model=_name(data))


def _read_bedrock(data: Mapping[str, Any]) -> _Reply:
    message = _object(_object(data.get("output")).get("message"))
    finish = _finish(data.get("stopReason"))
    if not isinstance(message.get("content"), list) and finish not in {Finish.FILTERED, Finish.LENGTH}:
        raise _UnreadableError("answered without a message.")
    text, thinking, _ = _parts(message.get("content"))
    return _Reply(text, thinking, finish=finish)


def _finish(given: Any) -> Finish:
    name = given.lower() if isinstance(given, str) else ""
    if name in _FINISHES:
        return _FINISHES[name]
    if _FILTERS.search(name):
        return Finish.FILTERED
    if _BROKEN.search(name):
        raise _UnreadableError("broke off in the middle of its answer.")
    return Finish.STOP


def _parts(content: Any) -> tuple[str, str, str]:
    """Text, thinking and refusal of a content: a text, or a list of parts in the way of any vendor."""
    if isinstance(content, str):
        return content, "", ""
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return "", "", ""
    texts, thoughts, refusals = [], [], []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            kind = str(part.get("type", ""))
            if "thinking" in kind or "reasoning" in kind or "reasoningContent" in part:
                thoughts.append("".join(_texts(part)))
            elif kind == "refusal":
                refusals.append(str(part.get("refusal") or ""))
            elif isinstance(part.get("text"), str) and kind in {"", "text", "output_text"}:
                texts.append(part["text"])
    return "".join(texts), "\n\n".join(filter(None, thoughts)), "".join(refusals)


# Fields of a part in which thinking is text.
_THINKING_FIELDS = (
    "thinking",
    "text",
    "summary",
    "reasoning",
    "reasoningText",
    "reasoningContent",
    "content",
)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Every text of a part with thinking, without signatures and encrypted parts."""
    if depth > _MOST_DEEP:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, depth + 1)
    elif isinstance(value, dict):
        for name in _THINKING_FIELDS:
            yield from _texts(value.get(name), depth + 1)


def _usage_in(data: Any, target: Target) -> Usage:
    """The tokens of an answer, also of one that cannot be read."""
    usage = _object(_object(data).get("usage"))
    match vendor_of(target.provider).protocol:
        case "openai":
            return _openai_usage(usage)
        case "anthropic":
            cached = _count(usage.get("cache_read_input_tokens"))
            written = _count(usage.get("cache_creation_input_tokens"))
            thinking = _count(_object(usage.get("output_tokens_details")).get("thinking_tokens"))
            prompt = _sum(_count(usage.get("input_tokens")), cached, written)
            return Usage(prompt, cached, _count(usage.get("output_tokens")), thinking)
        case "bedrock":
            cached = _count(usage.get("cacheReadInputTokens"))
            written = _count(usage.get("cacheWriteInputTokens"))
            prompt = _sum(_count(usage.get("inputTokens")), cached, written)
            return Usage(prompt, cached, _count(usage.get("outputTokens")))


def usage_at_end(end: bytes, target: Target) -> Usage:
    """The tokens in the end of an answer that is too large to be read."""
    _, _, after = end.decode(errors="replace").rpartition('"usage"')
    try:
        usage, _ = json.JSONDecoder().raw_decode(after.lstrip(": \r\n\t"))
    except (ValueError, RecursionError):
        return Usage()
    return _usage_in({"usage": usage}, target)


def _openai_usage(usage: Mapping[str, Any]) -> Usage:
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    total = _count(usage.get("total_tokens"))
    cached = _object(usage.get("prompt_tokens_details")).get("cached_tokens")
    thinking = _count(_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    if prompt is not None and completion is not None and total is not None and total > prompt + completion:
        # Some vendors count thinking in the total alone.
        thinking = total - prompt - completion
        completion = total - prompt
    return Usage(
        prompt,
        _count(usage.get("prompt_cache_hit_tokens") if cached is None else cached),
        completion,
        thinking,
    )


def _count(value: Any) -> int | None:
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return value if valid else None


def _sum(first: int | None, *others: int | None) -> int | None:
    return None if first is None else first + sum(each or 0 for each in others)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(data: Mapping[str, Any]) -> str:
    return data["model"] if isinstance(data.get("model"), str) else ""


def remarks_of(result: GenerationResult, request: GenerationRequest) -> list[str]:
    """Sentences for somebody who tries a policy: oddities of its reply."""
    return list(_remarks(result, request))


def _remarks(result: GenerationResult, request: GenerationRequest) -> Iterator[str]:
    text, sampling = result.text, request.sampling
    if result.finish_reason == Finish.LENGTH:
        if text:
            yield "The answer was cut at its maximum of tokens. Raise max_tokens."
        else:
            yield "No answer within the maximum of tokens. Raise max_tokens, or let the model think less."
    elif result.finish_reason == Finish.STOP and not text:
        yield "No answer: the model stopped without a text, or called a tool. Ask for a text in the prompt."
    if result.marks:
        marks = " ".join(result.marks)
        yield f"The answer ended in {marks}, a mark of a chat template, now cut off. Check the template."
    if left := _ANY_MARK.search(text):
        yield f"The answer holds {left[0]}, a mark of a chat template. Check the server's chat template."
    if _ANY_THINKING.search(text):
        yield (
            "The answer holds tags of thinking, which annotators would see. Start the server with its parser "
            "of thinking, or turn thinking off."
        )
    if left_in := [stop for stop in sampling.stop if stop in text]:
        yield (
            f"The answer holds the stop text {left_in[0]!r}: this server does not stop there. Take the text "
            "out, or choose another model."
        )
    if len(text) <= _ERROR_CHARACTERS and _READS_AS_ERROR.search(text):
        yield "The answer reads as an error of the server, and would be judged as it is. Test the connection."
    if _looks_cut(result.prompt_tokens, [each.content for each in request.messages]):
        yield (
            "The server counts far fewer tokens in the prompt than it has. It may have cut the prompt; raise "
            "the context length there."
        )


def _looks_cut(prompt_tokens: int | None, texts: Sequence[str]) -> bool:
    characters = sum(map(len, texts))
    if prompt_tokens is None or characters < _TELLING_CHARACTERS:
        return False
    words = sum(len(text.split()) for text in texts)
    return (
        prompt_tokens * max(_WORDS_PER_TOKEN, 1.0) < words
        or prompt_tokens * _CHARACTERS_PER_TOKEN < characters
    )
