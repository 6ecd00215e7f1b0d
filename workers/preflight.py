"""`python -m workers.preflight`: what only worker code can say of a batch before it is submitted.

Reads one JSON object from stdin (`plan`, `chunk_tokens`, `question_tokens`, `store`) and prints one: `checks`,
each [ok, note or bad; what; a sentence], and `estimate` of one question. The command line starts this as a
process of its own, so that the front door never imports a worker.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from shared.clean import clean_json, one_line
from shared.errors import CallError, CraglineError, NotFound
from shared.plan import Plan
from shared.settings import Settings, get_settings
from workers.bootstrap import openai_settings
from workers.estimate import estimate
from workers.models.openai_client import shared_chat_model, structured_call
from workers.models.schemas import CANARY
from workers.stores.local_owner import open_store

Said = tuple[str, str, str]  # ok, note or bad; what was looked at; a sentence
# for a tiny answer: whoever needs longer is slow or hangs, which is no reason to hold up who submits
CANARY_PATIENCE = 20.0
STORE_PATIENCE = 3.0  # seconds for an owner of the local store that is just opening


def canaries(plan: Plan, settings: Settings) -> list[Said]:
    """One tiny structured call of each model of the plan, in the way the roles make theirs. Paid, and tiny."""
    models = sorted(set(plan.models.values()))
    if plan.provider == "local":
        return []
    with ThreadPoolExecutor(min(len(models), 8)) as pool:
        return list(pool.map(lambda model: _canary(plan, settings, model), models))


def _canary(plan: Plan, settings: Settings, model: str) -> Said:
    server = openai_settings(settings, plan.structured_output)
    server = replace(server, timeout=min(server.timeout, CANARY_PATIENCE))
    chat = shared_chat_model(server, model, CANARY)
    where = f"{model} at {plan.server or 'OpenAI'}"
    try:
        reply = structured_call(chat, "You answer in JSON.", 'Say "yes".', "word")
    except CallError as error:
        words = f"{where}: {error.code}: {error}"
        return ("note" if error.transient else "bad", "model", words)
    if reply.problem:
        return ("note", "model", f"{where} answers, but {plan.structured_output} brought no JSON object back")
    return ("ok", "model", f"{where} answers")


def look_at_store(plan: Plan, settings: Settings) -> Said:
    """Whether the vector store holds the plan's collection."""
    try:
        store = open_store(settings, own=False, patience=STORE_PATIENCE)
        try:
            chunks = store.count(plan.collection)
        finally:
            store.close()
    except CraglineError as error:  # absent; or in the hands of somebody who does not answer
        return ("bad" if isinstance(error, NotFound) else "note", "vector store", str(error).rstrip("."))
    except CallError as error:
        return ("note" if error.transient else "bad", "vector store", f"{error.code}: {error}")
    if not chunks:
        return ("bad", "vector store", f"collection {plan.collection!r} is empty there; ingest it again")
    return ("ok", "vector store", f"collection {plan.collection!r} has {chunks:,} chunks")


def look(request: dict[str, Any], settings: Settings) -> dict[str, Any]:
    plan = Plan.model_validate(request["plan"])
    checks = canaries(plan, settings)
    if request["store"]:
        checks.append(look_at_store(plan, settings))
    guess = estimate(plan, request["chunk_tokens"], request["question_tokens"])
    return {"checks": checks, "estimate": asdict(guess)}


def main() -> int:
    try:
        answer = look(json.load(sys.stdin), get_settings())
    except CraglineError as error:
        print(one_line(str(error)), file=sys.stderr)
        return 1
    print(json.dumps(clean_json(answer), ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
