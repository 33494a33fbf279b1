"""The names of `retriever.service`; `__init__.py` imports each on first use."""

from retriever.service.app import create_app as create_app
from retriever.service.limits import ServiceSettings as ServiceSettings
from retriever.service.limits import is_loopback as is_loopback
from retriever.service.serving import create_server as create_server
from retriever.service.serving import open_socket as open_socket
