"""Caps on what a batch may cost: set at submit or at `batch resume`, held by reserving each call beforehand.

What is spent and what is reserved never exceed the cap at the moment a call is let through, so the cap is
passed at most by how much calls cost more than was reserved for them.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from shared.db import transaction
from shared.errors import NotFound, UsageError
from shared.plan import Plan, unpriced


@dataclass(frozen=True)
class Caps:
    """None: no cap. Cost in USD; tokens read and written."""

    max_cost_usd: float | None = None
    max_tokens: int | None = None

    @property
    def any(self) -> bool:
        return self.max_cost_usd is not None or self.max_tokens is not None


@dataclass(frozen=True)
class Spending:
    """Of one batch: its caps, what is spent, and what calls under way may come to."""

    caps: Caps
    spent_usd: float
    spent_tokens: int
    reserved_usd: float
    reserved_tokens: int
    under_way: int  # calls

    def over(self, cost_usd: float, tokens: int) -> str:
        """Which cap one more call would pass, in words; "": none."""
        caps = self.caps
        if (
            caps.max_cost_usd is not None
            and self.spent_usd + self.reserved_usd + cost_usd > caps.max_cost_usd
        ):
            return (
                f"max_cost {_usd(caps.max_cost_usd)} USD reached: {_usd(self.spent_usd)} USD spent, and the "
                f"next call may cost {_usd(cost_usd)}"
            )
        if (
            caps.max_tokens is not None
            and self.spent_tokens + self.reserved_tokens + tokens > caps.max_tokens
        ):
            return (
                f"max_tokens {caps.max_tokens} reached: {self.spent_tokens} tokens spent, and the next call "
                f"may take {tokens}"
            )
        return ""


def _usd(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def check_caps(plan: Plan, caps: Caps) -> None:
    """Raises UsageError for a cap that is no positive number, or on costs that nobody can tell."""
    for name, value in (("--max-cost", caps.max_cost_usd), ("--max-tokens", caps.max_tokens)):
        if value is not None and not 0 < value < 1_000_000_000_000_000:
            raise UsageError(f"{name} must be above 0.")
    if caps.max_cost_usd is None:
        return
    if caps.max_cost_usd < 0.0001 or caps.max_cost_usd >= 1_000_000:
        raise UsageError("--max-cost is in USD, from 0.0001 to 999999.")
    if models := unpriced(plan):
        example = f"CRAGLINE_MODEL_PRICES='{{\"{models[0]}\": [0.5, 1.5]}}'"
        raise UsageError(
            f"--max-cost needs the price of {', '.join(models)}, which is not known. Set it in USD per million "
            f"tokens, read and written: {example}; or cap the tokens with --max-tokens."
        )


def set_caps(session: Session, batch_id: int, caps: Caps) -> None:
    """Give a batch other caps; those that are None stay as they are, and 0 takes one away.

    A batch that had none begins with what its stored calls have cost so far. Raises NotFound, and UsageError
    for a cap that cannot be held, or that is below what is spent.
    """
    locked = text("SELECT plan FROM batches WHERE id = :b FOR NO KEY UPDATE")
    row = session.execute(locked, {"b": batch_id}).one_or_none()
    if row is None:
        raise NotFound(f"There is no batch {batch_id}.")
    check_caps(Plan.model_validate(row.plan), Caps(caps.max_cost_usd or None, caps.max_tokens or None))
    session.execute(
        text(
            "UPDATE batches SET max_cost_usd = nullif(coalesce(:cost, max_cost_usd), 0),"
            " max_tokens = nullif(coalesce(:tokens, max_tokens), 0) WHERE id = :b"
        ),
        {"cost": caps.max_cost_usd, "tokens": caps.max_tokens, "b": batch_id},
    )
    if spending(session, batch_id) is None:
        # Calls that are being stored now have looked for the budget in vain, or find it when it is there: those
        # are waited for, so that the sum sees them. A new batch's budget is made without it.
        session.execute(text("LOCK TABLE budgets IN SHARE ROW EXCLUSIVE MODE"))
        session.execute(text(_BEGIN), {"b": batch_id})
    now = spending(session, batch_id)
    if now is not None and (over := now.over(0.0, 1)):
        raise UsageError(f"{over.partition(', and')[0]}. Give more, or 0 for no cap.")


_BEGIN = """
INSERT INTO budgets (batch_id, spent_usd, spent_tokens)
SELECT :b, coalesce(sum(cost_usd), 0), coalesce(sum(tokens), 0)
  FROM (SELECT cost_usd, coalesce(input_tokens, 0) + coalesce(output_tokens, 0) AS tokens
          FROM model_calls WHERE batch_id = :b
         UNION ALL SELECT cost_usd, 0 FROM web_searches WHERE batch_id = :b) AS calls
ON CONFLICT DO NOTHING
"""


def spending(where: Engine | Session, batch_id: int, *, lock: bool = False) -> Spending | None:
    """None for a batch without caps. With `lock` nobody else reserves before the transaction ends."""
    if isinstance(where, Engine):
        with transaction(where) as session:
            return spending(session, batch_id)
    values = {"b": batch_id}
    budget = where.execute(text(_BUDGET + (" FOR UPDATE OF budgets" if lock else "")), values).one_or_none()
    if budget is None:
        return None
    caps = Caps(
        None if budget.max_cost_usd is None else float(budget.max_cost_usd),
        None if budget.max_tokens is None else int(budget.max_tokens),
    )
    reserved: Any = where.execute(text(_RESERVED), values).one()
    return Spending(
        caps=caps,
        spent_usd=float(budget.spent_usd),
        spent_tokens=int(budget.spent_tokens),
        reserved_usd=float(reserved.cost_usd),
        reserved_tokens=int(reserved.tokens),
        under_way=int(reserved.calls),
    )


_BUDGET = """
SELECT batches.max_cost_usd, batches.max_tokens, budgets.spent_usd, budgets.spent_tokens
  FROM budgets JOIN batches ON batches.id = budgets.batch_id WHERE budgets.batch_id = :b
"""
_RESERVED = """
SELECT coalesce(sum(cost_usd), 0) AS cost_usd, coalesce(sum(tokens), 0) AS tokens, count(*) AS calls
  FROM reservations WHERE batch_id = :b
"""
