"""The page at `/`: rendered here, kept fresh by htmx, with no build step and nothing from elsewhere.

    batches.py, runs.py, upload.py, login.py   the routes
    access.py     who may, errors as pages, proof that a change comes from our own page
    figures.py    counts of batches, counted once for all who look
    graph.py, layout.py   a pipeline's graph with the way that a run took
    render.py, templates/, static/   what it looks like

Text of people is text: every template escapes it, only http(s) addresses become links, and the policy in
`api.middleware` lets no script or style run that is not a file of ours.
"""

from fastapi import APIRouter

from api.web import batches, login, runs, static_files, upload
from api.web.access import install as install

router = APIRouter(include_in_schema=False)
for _module in (batches, runs, upload, login, static_files):
    router.include_router(_module.router)
