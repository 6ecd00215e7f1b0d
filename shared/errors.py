"""The errors that Cragline raises on purpose.

Two families: errors shown to a person (`CraglineError` and below, with an exit code), and errors of a
node's outside call (`CallError` and below), whose class alone decides whether the runner tries again.
"""


class CraglineError(Exception):
    """Something a person can act on: the message says what was wrong and what to do."""

    exit_code = 1


class UsageError(CraglineError):
    """The command's words were wrong."""

    exit_code = 2


class NotFound(CraglineError):
    """The named batch, run, collection or file does not exist."""


class Conflict(CraglineError):
    """The batch or run is not in a state in which that can be done, or there is nothing to do it to."""


class IntakeError(CraglineError):
    """A file of questions could not be taken; names the file, the row and the remedy."""


class StackError(CraglineError):
    """The embedded servers or workers could not be started, stopped or found."""


class DimensionMismatch(CraglineError):
    """A collection was filled with another embedding model than the one in use."""


class CallError(Exception):
    """An outside call (model, web, store) failed. `code` is a short stable word for the history.

    `where` names the provider; the message holds no key and no question text.
    """

    transient = False
    counts = True  # False: the provider was failing or refusing everybody, so the attempt is not counted

    def __init__(
        self,
        message: str,
        *,
        code: str,
        where: str,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.where = where
        self.retry_after = retry_after
        self.status = status  # HTTP's, of a server that failed


class TransientError(CallError):
    """Worth another try: rate limit, timeout, connection cut, server error, unusable output."""

    transient = True


class PermanentError(CallError):
    """Another try cannot help: wrong key, quota gone, policy refusal, bad request."""


class Postponed(Exception):
    """Not now, and nobody's fault: a rate limit, a cool-down, a provider that is out, somebody else making
    the same call. The runner puts the claim back for `seconds` and counts no attempt.

    No `CallError`, so that no node takes it for a failed call. `why` is a short phrase without any text of
    a question. `failing`: because a provider does not work.
    """

    failing = False

    def __init__(self, seconds: float, why: str) -> None:
        super().__init__(why)
        self.seconds = max(seconds, 0.0)
        self.why = why
