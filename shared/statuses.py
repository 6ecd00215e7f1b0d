"""Every status there is, each value and each legal move.

The CHECK constraints of `tables.py` are made from these enums, so a value missing here cannot be stored.
"""

from enum import StrEnum


class BatchStatus(StrEnum):
    OPEN = "open"  # submitted; its runs may be admitted. -> paused, ended, cancelled
    PAUSED = "paused"  # nothing new is begun, see `pause_reason`. -> open, cancelled, ended
    ENDED = "ended"  # every run has a disposition. -> open (runs of it are retried)
    CANCELLED = "cancelled"  # stopped by a person, and its open runs with it. -> open (retried)


UNENDED = (BatchStatus.OPEN, BatchStatus.PAUSED)


class RunStatus(StrEnum):
    PENDING = "pending"  # a row, not yet admitted to the window. -> running, cancelled; answered, gave_up (taken over)
    RUNNING = "running"  # admitted: it has a claim that is ready or running. -> any disposition
    ANSWERED = "answered"  # an answer with its sources. -> pending (a retry: its next round)
    GAVE_UP = "gave_up"  # an honest "could not answer", with `reason`. -> pending (a retry)
    FAILED = "failed"  # something broke, named in `error`. -> pending (a retry)
    CANCELLED = "cancelled"  # stopped by a person, see `reason`. -> pending (a retry)


DISPOSITIONS = (RunStatus.ANSWERED, RunStatus.GAVE_UP, RunStatus.FAILED, RunStatus.CANCELLED)


class ClaimStatus(StrEnum):
    READY = "ready"  # published, or to be published; nobody works on it. -> running
    RUNNING = "running"  # a worker holds its lease. -> done, failed, ready (retry, or lease run out)
    DONE = "done"  # its transition is stored; a fan-out's join waits for the others. Deleted by the join.
    FAILED = "failed"  # out of tries, or an error that no try can mend. The join ends the run as failed.


class TransitionStatus(StrEnum):
    SUCCEEDED = "succeeded"  # the attempt that counts: one at the most for each (run, step, branch)
    RETRIED = "retried"  # failed with a transient error; another attempt follows
    FAILED = "failed"  # failed for good
    LOST = "lost"  # its worker was not heard of in time; another attempt follows
    SKIPPED = "skipped"  # not started because it was no longer needed
    CANCELLED = "cancelled"  # under way when its batch was cancelled; its result is not wanted


# Those that close their (run, step, branch): one at the most for each in a round.
COUNTING = (TransitionStatus.SUCCEEDED, TransitionStatus.FAILED, TransitionStatus.SKIPPED)


class GradeLabel(StrEnum):
    RELEVANT = "relevant"
    NOT_RELEVANT = "not_relevant"
    UNPARSED = "unparsed"  # the model answered, but neither yes nor no; counts as not relevant


class CallStatus(StrEnum):
    OK = "ok"
    ERROR = "error"


class FileStatus(StrEnum):
    """A file, site or repository handed to `ingest`, or another piece of work on a collection."""

    PENDING = "pending"  # -> running
    RUNNING = "running"  # -> done, failed, pending (worker lost)
    DONE = "done"  # Final.
    FAILED = "failed"  # `error` says why. Final.


class WorkKind(StrEnum):
    """What a row of `ingest_files` asks of a worker."""

    FILE = "file"  # bring in a file
    SITE = "site"  # bring in a page, and those of its host that it leads to
    REPOSITORY = "repository"  # bring in the files of a commit
    PRUNE = "prune"  # remove the documents below a folder whose files are gone
    DELETE = "delete"  # remove the collection


class DeliveryStatus(StrEnum):
    """The news of a batch's end for its `callback_url`."""

    PENDING = "pending"  # to be sent, now or at `next_at`. -> delivered, failed
    DELIVERED = "delivered"  # answered with a status of the 2xx. Final.
    FAILED = "failed"  # given up after the last try, or refused for its address. Final.


class EventAction(StrEnum):
    """What was done to a batch or a run, by a person or (actor `system`) by Cragline itself."""

    SUBMITTED = "submitted"
    PAUSED = "paused"
    RESUMED = "resumed"
    CANCELLED = "cancelled"
    RETRIED = "retried"
    REPRIORITISED = "reprioritised"
    FORKED = "forked"  # of the original run; `detail` names the new one
    ENDED = "ended"
    DROPPED = "dropped"  # by retention; the one event that stays of a batch
