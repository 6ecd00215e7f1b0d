"""Addresses from outside: which may become links, and which may be gone to after a login."""

import unicodedata
from urllib.parse import urlsplit


def safe_link(source: object) -> str | None:
    """`source` when it is an http(s) address with a host; None for anything else, which is shown as text.

    A browser drops white space and control characters from an address before it reads its scheme, so an
    address with such in it is none.
    """
    if not isinstance(source, str) or len(source) > 2000:
        return None
    if any(c.isspace() or unicodedata.category(c) in ("Cc", "Cf") for c in source) or "\\" in source:
        return None
    try:
        parts = urlsplit(source)
        usable = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return None
    return source if usable else None


def own_path(given: str | None) -> str:
    """`given` when it is a path on this server, else `/`: a login sends nobody elsewhere."""
    if not given or not given.startswith("/") or given.startswith(("//", "/\\")) or len(given) > 500:
        return "/"
    if any(c in "\\\r\n\t" or not c.isprintable() for c in given):
        return "/"
    return given
