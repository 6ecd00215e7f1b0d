"""What all chat roles have in common: prompts, a model, a recorder, and how a bad reply ends."""

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from shared.clean import clean_json, clean_text, one_line
from workers.models.calls import UnusableOutput
from workers.models.lenient import unit_score, yes_no, yes_no_in_prose
from workers.models.openai_client import OpenAISettings, StructuredReply, shared_chat_model, structured_call
from workers.models.openai_errors import WHERE, refused_by_policy
from workers.models.prompts import Prompt, load_prompts
from workers.models.roles import CallRecorder, CallResult, CallSpec

DETAIL_CHARS = 200

PromptSource = Callable[[str], Prompt]  # a prompt by its name; KeyError when there is none


def shipped_prompt(name: str) -> Prompt:
    """The prompt as it is in this version of the code."""
    return load_prompts()[name]


class Role:
    """A role played by `model` behind `settings`, with the prompts that `prompts` hands out by name."""

    role: ClassVar[str]  # also the name of its first prompt
    schema: ClassVar[dict[str, Any]]

    def __init__(
        self,
        settings: OpenAISettings,
        model: str,
        recorder: CallRecorder,
        prompts: PromptSource = shipped_prompt,
    ) -> None:
        self.model = model
        self._settings = settings
        self._recorder = recorder
        self._prompts = prompts

    @property
    def prompt(self) -> Prompt:
        return self._prompts(self.role)

    @property
    def name(self) -> str:
        """The model as the history names it."""
        return f"openai/{self.model}"

    def _ask(
        self,
        wanted: str,
        read: Callable[[StructuredReply], dict[str, Any]],
        values: dict[str, str],
        *,
        prompt: Prompt | None = None,
        schema: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """What `read` makes of the reply, recorded. What `read` raises is recorded as the call's error."""
        prompt = prompt or self.prompt
        chat = shared_chat_model(self._settings, self.model, schema or self.schema)
        system, human = prompt.render(**values)
        spec = CallSpec(
            role=self.role,
            provider="openai",
            model=self.model,
            prompt_version=prompt.version,
            request={"system": system, "human": human, "method": chat.settings.method},
            deterministic=chat.deterministic,
        )

        def perform() -> CallResult:
            reply = structured_call(chat, system, human, wanted)
            return CallResult(clean_json(read(reply)), reply.input_tokens, reply.output_tokens)

        response = self._recorder.call(spec, perform)
        assert isinstance(response, dict)
        return response


def unusable(reply: StructuredReply, what: str) -> NoReturn:
    """Raises UnusableOutput, or PermanentError when the model refused."""
    if reply.problem == "refused":
        raise refused_by_policy()
    truncated = reply.problem == "truncated"
    raise UnusableOutput(
        "the model reached its output limit before it was done" if truncated else what,
        where=WHERE,
        code="truncated" if truncated else "unusable_output",
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
    )


def read_verdict(reply: StructuredReply) -> tuple[bool | None, float | None, str]:
    """(yes or no, score, detail) of a reply with `binary_score`.

    A verdict of None is neither yes nor no; the detail then says how the output looked.
    """
    parsed = reply.parsed or {}
    verdict = yes_no(parsed.get("binary_score"))
    if verdict is None and reply.parsed is None and reply.problem != "truncated":
        verdict = yes_no_in_prose(reply.text)
    if verdict is None:
        kind = reply.problem or "unusable_output"
        return None, None, f"{kind}: {one_line(reply.text or str(parsed), DETAIL_CHARS)}"
    return verdict, unit_score(parsed.get("score")), ""


def text_field(reply: StructuredReply, field: str) -> str:
    """The text in `field` of the reply, cleaned; "" when there is none."""
    value = (reply.parsed or {}).get(field)
    return clean_text(value).strip() if isinstance(value, str) else ""
