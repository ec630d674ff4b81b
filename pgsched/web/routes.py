"""Every page's address."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from pgsched.web import overview
from pgsched.web.pages import Endpoint, Page, action, page


def shown(path: str, make: Page) -> Route:
    """A page to look at."""
    return Route(path, page(make), methods=["GET"])


def done(path: str, act: Page) -> Route:
    """A change to make."""
    endpoint: Endpoint = action(act)
    return Route(path, endpoint, methods=["POST"])


ROUTES: list[BaseRoute] = [
    shown("/", overview.overview),
]
