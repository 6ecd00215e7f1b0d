"""The page at `/`: its routes are added to `router`."""

from fastapi import APIRouter

router = APIRouter(include_in_schema=False)
