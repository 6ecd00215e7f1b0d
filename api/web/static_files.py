"""Styles, scripts and the icon: files of ours, for everybody."""

from fastapi import APIRouter, Query, Request, Response

from api.problems import ApiError
from api.web.render import STATIC

router = APIRouter(include_in_schema=False)
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.suffix in _KINDS}


@router.get("/static/{name:path}")
def static_file(request: Request, name: str, v: str | None = Query(None, max_length=40)) -> Response:
    path = _FILES.get(name)  # only a name that is known: no path can lead elsewhere
    if path is None:
        raise ApiError(404, "not-found", "There is no such file.")
    # its address changes with its content
    cache = "public, max-age=31536000, immutable" if v else "no-cache"
    # small and whole: a file response would also take ranges, and refuse wrong ones in plain text
    return Response(path.read_bytes(), media_type=_KINDS[path.suffix], headers={"Cache-Control": cache})
