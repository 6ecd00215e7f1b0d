"""Prompts by version: which ones a plan uses is frozen at its first admission, and their texts are kept."""

from functools import lru_cache

from sqlalchemy import Engine, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from shared.db import transaction
from shared.errors import CraglineError
from shared.plan import Plan
from shared.tables import Prompt as PromptRow
from workers.models.prompts import Prompt, load_prompts, names_of, parse_prompt, role_of


def freeze_prompts(session: Session, plan: Plan) -> Plan:
    """`plan` with today's versions of all prompts of its roles, whose texts are stored."""
    prompts = load_prompts()
    chosen = {name: prompts[name] for role in plan.models for name in names_of(role)}
    for prompt in chosen.values():
        session.execute(
            insert(PromptRow)
            .values(role=prompt.role, version=prompt.version, text=prompt.text)
            .on_conflict_do_nothing()
        )
    return plan.model_copy(update={"prompts": {name: prompt.version for name, prompt in chosen.items()}})


class PromptBook:
    """Prompts of any version that a running batch was planned with."""

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._stored = lru_cache(maxsize=256)(self._load)

    def get(self, name: str, version: str | None) -> Prompt:
        """The shipped prompt, or the stored one where the plan names another version."""
        shipped = load_prompts()[name]
        if version is None or version == shipped.version:
            return shipped
        return self._stored(name, version)

    def _load(self, name: str, version: str) -> Prompt:
        if self._engine is None:
            raise CraglineError(f"prompt {name} {version} is not at hand without a database")
        with transaction(self._engine) as session:
            text = session.scalar(
                select(PromptRow.text).where(PromptRow.role == role_of(name), PromptRow.version == version)
            )
        if text is None:
            raise CraglineError(f"prompt {name} {version} is not in the table `prompts`")
        return parse_prompt(name, text)
