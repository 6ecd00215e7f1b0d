"""URLs as text: the form they are stored in, the form they are shown in, and what is refused at once."""

from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

from shared.clean import needs_cleaning
from shared.errors import CraglineError

MAX_URL = 2000  # characters


class FetchError(CraglineError):
    """A page was refused or could not be had; names the URL (without secrets) and the reason.

    `status` is what the server answered, None when it did not.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def gone(self) -> bool:
        """The server said that there is no such page."""
        return self.status in (404, 410)


class AddressRefused(FetchError):
    """The host's address is one that must not be fetched from."""


def checked_url(url: str) -> str:
    """`url` in the form it is fetched and stored in: lower-case host, no default port, no fragment.

    Raises FetchError for another scheme than http and https, for user and password in it, for no host, and
    for what is no URL. The error never quotes a password.
    """
    if len(url) > MAX_URL:
        raise FetchError(f"A URL of {len(url)} characters is too long; {MAX_URL} are allowed.")
    if any(ord(one) < 33 or ord(one) == 127 for one in url) or needs_cleaning(url):
        raise FetchError(f"{shown(url)}: a URL has no blanks and no control characters, and is UTF-8.")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise FetchError(f"{shown(url)}: not a URL that can be read.") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise FetchError(f"{shown(url)}: only http:// and https:// are fetched.")
    if "@" in parts.netloc or "\\" in parts.netloc:
        raise FetchError(f"{shown(url)}: a URL must not hold a user name or password.")
    if not host:
        raise FetchError(f"{shown(url)}: there is no host in it.")
    return _rebuilt(parts, _ascii(host, url), port)


def joined(base: str, link: str) -> str:
    """The absolute URL of a `link` that stands on the page `base`. Raises FetchError for one that is no URL."""
    try:
        return urljoin(base, link)
    except ValueError:  # `http://[`
        raise FetchError(f"{shown(link)}: not a URL that can be read.") from None


def _rebuilt(parts: SplitResult, host: str, port: int | None) -> str:
    scheme = parts.scheme.lower()
    netloc = f"[{host}]" if ":" in host else host
    if port is not None and port != {"http": 80, "https": 443}[scheme]:
        netloc += f":{port}"
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    return urlunsplit((scheme, netloc, path, quote(parts.query, safe="/%:@!$&'()*+,;=~-._?"), ""))


def _ascii(host: str, url: str) -> str:
    try:
        return host.lower() if host.isascii() else host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise FetchError(f"{shown(url)}: the host's name cannot be read.") from None


def shown(url: str) -> str:
    """`url` for a message: without user, password, query and fragment, printable, and not too long."""
    head, scheme, rest = url.partition("://")
    if not scheme:
        head, rest = "", url
    place, slash, path = rest.partition("/")
    place = place.rpartition("@")[2]
    path = path.split("?")[0].split("#")[0]
    plain = f"{head}{scheme}{place.split('?')[0].split('#')[0]}{slash}{path}"
    return "".join(one if one.isprintable() else "?" for one in plain)[:200]


def host_of(url: str) -> str:
    """Host with port, as one site: `example.com`, `127.0.0.1:8000`."""
    return urlsplit(url).netloc.lower()
