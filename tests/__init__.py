"""The tests; like the server, they load of LlamaIndex and qdrant-client only what is asked for."""

from config.deferred import defer_packages

defer_packages()
