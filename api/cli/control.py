"""`cragline batch pause|resume|cancel|retry|reprioritise|events` and `cragline run fork`."""

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from api.cli import remote
from api.cli.acting import By, Reason, actor, moment, wake
from api.cli.output import console, in_bigint, print_json, table
from api.cli.remote import ServerOption
from shared import control, history, rework
from shared.budget import Caps
from shared.clean import counted
from shared.control import Done, Share
from shared.db import get_engine
from shared.plan import parse_sets
from shared.settings import get_settings
from shared.statuses import BatchStatus, RunStatus

BatchId = Annotated[
    int, typer.Argument(metavar="BATCH", help="The batch's number.", callback=in_bigint("batch"))
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Priority = Annotated[
    int | None, typer.Option(help="Before all batches with a lower one; usually 0, from -1000 to 1000.")
]
Weight = Annotated[
    float | None,
    typer.Option(help="Share of the workers among equals: 2 gets twice what 1 gets; 0.01 to 100."),
]
MaxInFlight = Annotated[int | None, typer.Option(help="At most so many of its questions at once; 0: no cap.")]


class From(StrEnum):
    """Where a retried run begins."""

    FAILED_NODE = "failed-node"
    START = "start"


def register(app: typer.Typer) -> None:
    """Add the commands to `cragline batch`."""
    for command in (pause, resume, cancel, retry, reprioritise, events):
        app.command()(command)


def pause(
    batch: BatchId, reason: Reason = None, by: By = None, server: ServerOption = None, json: Json = False
) -> None:
    """Begin nothing new of a batch. What is under way ends its step; `resume` goes on from there."""
    if there := remote.at(server):
        done = there.act(batch, "pause", reason=reason)
    else:
        done = control.pause(get_engine(), batch, actor=actor(by), reason=reason)
    said = f"Batch {batch} is paused{'' if done.changed else ' already'}: {done.reason}."
    _say(done, json, f"{said} `cragline batch resume {batch}` goes on.")


def resume(
    batch: BatchId,
    max_cost: Annotated[
        float | None, typer.Option(help="Another cap on its whole cost, in USD; 0: no cap.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Another cap on all its tokens; 0: no cap.")] = None,
    reason: Reason = None,
    by: By = None,
    server: ServerOption = None,
    json: Json = False,
) -> None:
    """Go on with a paused batch, if wanted with another cap."""
    if there := remote.at(server):
        done = there.act(batch, "resume", reason=reason, max_cost_usd=max_cost, max_tokens=max_tokens)
    else:
        caps = Caps(max_cost, max_tokens)
        done = control.resume(get_engine(), batch, actor=actor(by), reason=reason, caps=caps)
        if done.changed:
            wake(get_settings())
    _say(
        done,
        json,
        _resumed(batch, done.changed, capped=max_cost is not None or max_tokens is not None),
    )


def _resumed(batch: int, changed: bool, *, capped: bool) -> str:
    if changed:
        return f"Batch {batch} goes on."
    return f"Batch {batch} was not paused; it is open{', and has the new caps' if capped else ''}."


def cancel(
    batch: BatchId, reason: Reason = None, by: By = None, server: ServerOption = None, json: Json = False
) -> None:
    """End a batch now. What has ended keeps its answer; everything open becomes `cancelled`."""
    if there := remote.at(server):
        done = there.act(batch, "cancel", reason=reason)
    else:
        done = control.cancel(get_engine(), batch, actor=actor(by), reason=reason)
    undo = (
        f" `cragline batch retry {batch} --disposition cancelled` takes them up again." if done.runs else ""
    )
    _say(done, json, f"Batch {batch} is cancelled, with {counted(done.runs, 'open question')}.{undo}")


def retry(
    batch: BatchId,
    disposition: Annotated[
        list[str] | None,
        typer.Option(help="failed, gave_up, cancelled or answered; may be repeated. Left out: failed."),
    ] = None,
    error_class: Annotated[
        str | None,
        typer.Option(help="Only this error: its short word or class in the history, e.g. rate_limited."),
    ] = None,
    node: Annotated[str | None, typer.Option(help="Only runs that ended at this node.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only runs that ended since: 2026-11-30, 2026-11-30T09:00 or 2h.")
    ] = None,
    from_: Annotated[
        From,
        typer.Option(
            "--from", help="Where failed and cancelled runs go on. The others always begin at the start."
        ),
    ] = From.FAILED_NODE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
    reason: Reason = None,
    by: By = None,
    server: ServerOption = None,
    json: Json = False,
) -> None:
    """Do ended runs of a batch again. What they did before stays in the history, and is not paid for again."""
    chosen = rework.Chosen(
        dispositions=tuple(disposition or [RunStatus.FAILED]),
        error_class=error_class,
        node=node,
        since=None if since is None else moment(since, "--since"),
    )
    from_failed_node = from_ == From.FAILED_NODE
    if there := remote.at(server):
        asked = asdict(chosen) | {"since": chosen.since and chosen.since.isoformat()}
        asked |= {"from_failed_node": from_failed_node, "dry_run": dry_run, "reason": reason}
        done = there.act(batch, "retry", **asked)
    else:
        done = rework.retry(
            get_engine(),
            batch,
            chosen,
            actor=actor(by),
            reason=reason,
            from_failed_node=from_failed_node,
            dry_run=dry_run,
        )
        if done.changed and done.status == BatchStatus.OPEN:
            wake(get_settings())
    runs = counted(done.runs, "question")
    if dry_run:
        _say(done, json, f"{runs} of batch {batch} would be done again ({chosen}).")
        return
    paused = (
        f" The batch is paused: `cragline batch resume {batch}`." if done.status == BatchStatus.PAUSED else ""
    )
    _say(done, json, f"{runs} of batch {batch} will be done again ({chosen}).{paused}")


def reprioritise(
    batch: BatchId,
    priority: Priority = None,
    weight: Weight = None,
    max_in_flight: MaxInFlight = None,
    reason: Reason = None,
    by: By = None,
    server: ServerOption = None,
    json: Json = False,
) -> None:
    """Change how a batch shares the workers with others."""
    share = Share(priority, weight, max_in_flight)
    if there := remote.at(server):
        done = there.act(batch, "priority", **asdict(share), reason=reason)
        row = there.progress(batch)
    else:
        done = control.reprioritise(get_engine(), batch, share, actor=actor(by), reason=reason)
        row = history.progress(get_engine(), batch)
    cap = row["max_in_flight"] or "none"
    now = f"priority {row['priority']}, weight {float(row['weight']):g}, cap on runs in flight {cap}"
    _say(done, json, f"Batch {batch} {'has now' if done.changed else 'had this already'}: {now}.")


def events(
    batch: BatchId,
    runs: Annotated[bool, typer.Option("--runs", help="With a line for each retried run.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many, the newest.")] = 100,
    server: ServerOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list and nothing else.")] = False,
) -> None:
    """What was done to a batch: when, by whom, and why."""
    there = remote.at(server)
    if there:
        found = there.get(f"/v1/batches/{batch}/events", limit=min(limit, 10_000), runs=runs)
    else:
        found = history.events(get_engine(), batch, limit, runs=runs)
    if json:
        print_json(found)
        return
    columns = ("at", "who", "did", "run", "why", "detail")
    rows = [[row[key] for key in ("at", "actor", "action", "run_id", "reason")] for row in found]
    shown = [[*row, _detail(event["detail"])] for row, event in zip(rows, found, strict=True)]
    console().print(table(columns, shown, width=80))


def _detail(detail: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_one(value)}" for key, value in detail.items() if value not in (None, {}, []))


def _one(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"was", "is"}:
        return f"{value['was']} -> {value['is']}"
    return str(value)


def fork(
    run: Annotated[int, typer.Argument(metavar="RUN", help="The run's number.", callback=in_bigint("run"))],
    from_: Annotated[int, typer.Option("--from", help="The step to begin with, as `run show` counts them.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value of the pipeline that is to be different.")
    ] = None,
    reason: Reason = None,
    by: By = None,
    server: ServerOption = None,
    json: Json = False,
) -> None:
    """What if: go on from the middle of a run, with other numbers, as a new run in a batch of its own."""
    sets = parse_sets(set_ or [])
    if there := remote.at(server):
        asked = {"step": from_, "settings": sets, "reason": reason}
        made = rework.Forked(**there.post(f"/v1/runs/{run}/fork", asked))
    else:
        settings = get_settings()
        made = rework.fork(get_engine(), run, from_, settings, sets, actor=actor(by), reason=reason)
        wake(settings)
    if json:
        print_json(asdict(made))
        return
    differ = ", ".join(f"{key}={value}" for key, value in made.params.items()) or "nothing changed"
    console().print(
        f"Run {made.run_id} (batch {made.batch_id}) goes on from step {from_} of run {run}: {differ}. "
        f"Watch it with `cragline batch watch {made.batch_id}`.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _say(done: Done, json: bool, words: str) -> None:
    if json:
        print_json(asdict(done))
        return
    console().print(words, markup=False, highlight=False, soft_wrap=True)
