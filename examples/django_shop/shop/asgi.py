"""What a server runs: `uvicorn shop.asgi:application`."""

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
# It also serves the style sheets of the admin; elsewhere `collectstatic` gives them to a web server.
application = ASGIStaticFilesHandler(get_asgi_application())
