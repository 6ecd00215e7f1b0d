"""Where the stored result of a call is looked for: first this task's own, then anybody's that may be shared.

One query a call, by two indexes; in SQL of its own, because it stands before every paid call.
"""

from sqlalchemy import text
from sqlalchemy.orm import Session

from workers.models.roles import CallSpec
from workers.runner.claims import Won
from workers.runner.reuse import WRITERS, Found

WEB_ROLE = "web_search"

# Who retries a run from its start does not want the verdicts once more that made it what it was, be they its
# own or its neighbours': only what was asked since then is taken over. (greatest() passes over NULL.)
_OLDEST = """greatest(now() - make_interval(secs => :age),
                          (SELECT min(at) FROM events
                            WHERE CAST(:fresh_step AS int) IS NOT NULL AND run_id = :run_id AND action = 'retried'
                              AND CAST(detail ->> 'from_step' AS int) = :fresh_step))"""
# Of those that may be shared the oldest: everybody takes the same one, should there be more than one.
_CALL = text(
    f"""
    SELECT response, cost_usd, attempt, input_tokens, output_tokens, NULL::bigint AS id
      FROM model_calls
     WHERE (run_id, step, branch, role, request_hash) = (:run_id, :step, :branch, :role, :hash) AND status = 'ok'
     UNION ALL
   (SELECT response, cost_usd, attempt, input_tokens, output_tokens, id
      FROM model_calls
     WHERE reuse_key = :key AND called_at > {_OLDEST}
       AND NOT (:writes AND EXISTS (
               SELECT FROM model_calls AS asked
                WHERE (asked.run_id, asked.role, asked.request_hash) = (:run_id, :role, :hash)
                  AND asked.status = 'ok'))
     ORDER BY id LIMIT 1)
     ORDER BY id NULLS FIRST LIMIT 1
    """  # noqa: S608 - a constant of ours, no value
)
_SEARCH = text(
    f"""
    SELECT results, cost_usd, attempt, NULL::bigint, NULL::bigint, NULL::bigint AS id
      FROM web_searches
     WHERE (run_id, step, branch, request_hash) = (:run_id, :step, :branch, :hash) AND status = 'ok'
     UNION ALL
   (SELECT results, cost_usd, attempt, NULL, NULL, id
      FROM web_searches
     WHERE reuse_key = :key AND searched_at > {_OLDEST}
     ORDER BY id LIMIT 1)
     ORDER BY id NULLS FIRST LIMIT 1
    """  # noqa: S608 - a constant of ours, no value
)


def stored(session: Session, won: Won, spec: CallSpec, request_hash: str, key: str | None) -> Found | None:
    """The response of a model call, or the results of a web search. `key` None: only this task's own.

    A role that writes and was asked the same in this run is asked again, to bring something else.
    """
    values = {"run_id": won.run_id, "step": won.step, "branch": won.branch, "hash": request_hash, "key": key}
    values["fresh_step"] = _fresh_step(won)
    if spec.role == WEB_ROLE:
        found = session.execute(_SEARCH, values | {"age": won.plan.reuse_web_hours * 3600})
    else:
        more = {"role": spec.role, "writes": spec.role in WRITERS, "age": won.plan.reuse_days * 86400}
        found = session.execute(_CALL, values | more)
    row = found.one_or_none()
    if row is None:
        return None
    response, cost, attempt, tokens_in, tokens_out, found_id = row
    return Found(response, None if cost is None else float(cost), found_id, attempt, tokens_in, tokens_out)


def _fresh_step(won: Won) -> int | None:
    """The step at which a retry from the start began, where this run is such a retry."""
    course = won.course
    began = course.inherited[-1].before if course.inherited else 1
    return None if course.first_step == began else course.first_step
